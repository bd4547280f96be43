#!/usr/bin/env bash
# base.sh PYTHON [CACHE]: prints the path of CACHE/base-<key>.tar, a root file system for Dockerfile's BASE, to be given to
# `docker import`: this Debian release with Python and all that Dockerfile installs, and every wheel of
# requirements/dev.txt in /wheels, because containers of the lab reach no index. PYTHON is an interpreter with pip that
# does the download.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
root_only
python=${1:?base.sh PYTHON [CACHE]}
cache=${2:-$LAB_DIR/docker}
requirements=$(readlink -f "$here/../../../requirements")
packages=(python3 python3-venv etcd-server etcd-client iproute2 util-linux openssl procps make
  git openssh-client openssh-server)
key=$(cat "$requirements"/{common,dev}.txt "$0" "$here/../rootfs.sh" | sha256sum | cut -c1-12)
out=$cache/base-$key.tar
one_at_a_time "$cache/base.lock"
if [ ! -f "$out" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  version=$(apt-cache policy python3 | sed -n 's/.*Candidate: \([0-9]*\.[0-9]*\)\..*/\1/p')
  "$python" -m pip -qq --disable-pip-version-check download -d "$work/wheels" --only-binary=:all: \
    --python-version "$version" -r "$requirements/dev.txt" 'setuptools>=77' >&2
  ROOTFS_ADD=$work/wheels "$here/../rootfs.sh" "$work/base.tar" "${packages[@]}"
  rm -f "$cache"/base-*.tar              # of older requirements
  mv "$work/base.tar" "$out"
fi
echo "$out"
