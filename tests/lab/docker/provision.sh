#!/usr/bin/env bash
# provision.sh [CACHE]: dockerd from this Debian release, and Compose v2 as a plugin in CACHE/config/cli-plugins.
# Default CACHE: $LAB_DIR/docker. Debian 12 has only Compose 1, so the plugin is taken out of Debian 13's package.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
root_only
cache=${1:-$LAB_DIR/docker}
one_at_a_time "$cache/provision.lock"    # on a new machine two test processes want it in the same second
# An engine that is installed from elsewhere stays: Debian's package would replace it.
command -v dockerd >/dev/null || install docker.io containerd runc
install iptables iproute2
cache=$(readlink -f "$cache")
plugin=$cache/config/cli-plugins/docker-compose
if [ ! -x "$plugin" ]; then
  work=$cache/build
  rm -rf "$work"
  mkdir -p "$work" "$(dirname "$plugin")"
  # The machine's own mirror with another release; the first entry only, the others are updates of this release.
  sources=$(debian_sources)
  case $sources in
    *.sources) awk 'NF == 0 {exit} {sub(/^Suites:.*/, "Suites: trixie"); print}' "$sources" > "$work/next.sources" ;;
    *)         grep -m1 '^deb ' "$sources" | sed -E 's/(bookworm|stable)/trixie/' > "$work/next.list" ;;
  esac
  sources=$(find "$work" -maxdepth 1 -name 'next.*')
  private_apt "$work/apt" "$sources" apt-get update
  (cd "$work" && private_apt "$work/apt" "$sources" apt-get download docker-compose && dpkg -x docker-compose_*.deb x)
  found=$(find "$work/x" -type f -name docker-compose -path '*cli-plugins*')
  "$found" docker-cli-plugin-metadata >/dev/null
  mv "$found" "$plugin"
  rm -rf "$work"
fi
echo "$cache"
