#!/usr/bin/env bash
# apt_install.sh PACKAGE...: install the Debian packages that are missing, with root or passwordless sudo, without
# starting their services. Without either it says what is missing and succeeds: the tests that need it are skipped.
set -euo pipefail
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "apt_install: no apt here; tests that need one of these are skipped: $*"
  exit
fi
# One at a time: two that update the lists and put the policy below in place would take both away from each other.
exec 9> "${TMPDIR:-/tmp}/lattice-apt-$(id -u).lock"
flock 9
missing=()
for package; do
  [ "$(dpkg-query -Wf '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} != 0 ] || exit 0
as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    echo "apt_install: not root and no passwordless sudo. Missing: ${missing[*]}; tests that need one are skipped."
    exit
  fi
  as_root=(sudo -n)
fi

echo "apt_install: installing ${missing[*]}"
# The one way to keep maintainer scripts from starting services: a policy that says no, for as long as this takes.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  "${as_root[@]}" sh -c "printf '#!/bin/sh\nexit 101\n' > $policy && chmod 755 $policy"
  trap '"${as_root[@]}" rm -f $policy' EXIT
fi
"${as_root[@]}" apt-get -qq update || echo "apt_install: apt-get update failed for some source; going on with the lists there are."
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null
