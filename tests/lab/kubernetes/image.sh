#!/usr/bin/env bash
# image.sh PYTHON [OUT.tar]: the image local/lattice-node:1: Python, etcd, OpenSSL, what Lattice needs, boto3, and Lattice as
# this tree has it now, installed where pip would; its user is 1000. PYTHON is an interpreter with pip, for the download.
# Give OUT.tar to up.sh, or to load.sh when the cluster is up. Without OUT.tar only the part that is kept for the next time.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
root_only
python=${1:?image.sh PYTHON [OUT.tar]}
source=$(readlink -f "$here/../../../src/lattice")
base=$("$here/../python_rootfs.sh" cloud "$python" boto3)   # the same as for the lab's cloud, made once
[ $# -gt 1 ] || exit 0
out=$(readlink -f "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The folder is asked for, not the machine's Python: the image's may be another.
packages=$(tar -tf "$base" | grep -m1 -oP '^\./\Kusr/local/lib/python3\.\d+/dist-packages(?=/$)' || true)
[ -n "$packages" ] || die "found no folder for packages in $base."
mkdir -p "$work/$packages" "$work/usr/local/bin"
cp -r "$source" "$work/$packages/lattice"
find "$work" -name __pycache__ -type d -prune -exec rm -r {} +
for command in lattice:lattice.cli petctl:lattice.petctl; do
  printf '#!/usr/bin/python3\nimport sys\nfrom %s import main\nsys.exit(main())\n' "${command#*:}" > "$work/usr/local/bin/${command%:*}"
done
chmod 755 "$work"/usr/local/bin/*
version=$(grep -oP 'python\K3\.\d+' <<< "$packages")
# Compiled if that Python is here, too: it saves each process in a container half a second.
if command -v "/usr/bin/python$version" >/dev/null; then
  "/usr/bin/python$version" -m compileall -q -s "$work" -p / "$work/$packages/lattice"
fi
tar -C "$work" --owner=0 --group=0 --mode=go=rX -cf "$work/lattice.layer" usr
"$here/image.py" local/lattice-node:1 "$out" "$base" "$work/lattice.layer" --user 1000:1000
