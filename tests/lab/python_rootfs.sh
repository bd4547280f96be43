#!/usr/bin/env bash
# python_rootfs.sh NAME PYTHON [REQUIREMENT...]: prints the path of $LAB_DIR/images/NAME-<key>.tar: this Debian release with
# Python, etcd, OpenSSL, what Lattice needs and the REQUIREMENTs, and a user with the id 1000, but not Lattice. PYTHON is an
# interpreter with pip, for the download. Made anew when the requirements change.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/lab.sh"
root_only
usage="python_rootfs.sh NAME PYTHON [REQUIREMENT...]"
name=${1:?$usage} python=${2:?$usage}; shift 2
cache=$LAB_DIR/images
lattice=$(readlink -f "$here/../../requirements/common.txt")
key=$({ cat "$lattice" "$0" "$here/rootfs.sh"; echo "$@"; } | sha256sum | cut -c1-12)
out=$cache/$name-$key.tar
one_at_a_time "$cache/$name.lock"        # two tests may want it at the same time
if [ ! -f "$out" ]; then
  say "making the root file system for $name"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  version=$(apt-cache policy python3 | sed -n 's/.*Candidate: \([0-9]*\.[0-9]*\)\..*/\1/p')
  "$python" -m pip -qq --disable-pip-version-check install --target "$work/usr/local/lib/python$version/dist-packages" \
    --only-binary=:all: --python-version "$version" --no-compile -r "$lattice" "$@" >&2
  # Compiled beforehand, because a container's user may not write there.
  ROOTFS_ADD=$work/usr ROOTFS_RUN="useradd -m -u 1000 lattice && python3 -m compileall -q /usr/local/lib/python$version" \
    "$here/rootfs.sh" "$work/made.tar" python3 python-is-python3 etcd-server etcd-client openssl >&2
  rm -f "$cache/$name"-*.tar             # of older requirements
  mv "$work/made.tar" "$out.partial"     # it may come from another disk
  mv "$out.partial" "$out"
fi
echo "$out"
