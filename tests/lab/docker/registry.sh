#!/usr/bin/env bash
# registry.sh [CACHE]: prints the path of CACHE/docker-registry, the program of this Debian release that keeps images. It is
# taken out of its package, not installed: nobody else on the machine needs it.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
root_only
cache=${1:-$LAB_DIR/docker}
one_at_a_time "$cache/registry.lock"
out=$(readlink -f "$cache")/docker-registry
if [ ! -x "$out" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  sources=$(debian_sources)
  private_apt "$work/apt" "$sources" apt-get update >&2
  (cd "$work" && private_apt "$work/apt" "$sources" apt-get download docker-registry >&2 && dpkg -x docker-registry_*.deb x)
  mv "$work/x/usr/bin/docker-registry" "$out.partial"   # it may come from another disk
  mv "$out.partial" "$out"
fi
echo "$out"
