#!/bin/sh
# Makes .cache/venvs/NAME from requirements/NAME.txt and prints its python; does nothing if that is up to date.
# Such an environment sees all of $PYTHON's packages, Lattice and torch among them, and has its own for the rest: none of
# these libraries dictates the versions of what Lattice is tested with, and the large torch is there once.
set -eu

name=${1:?usage: scripts/framework_venv.sh NAME}
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
requirements=$root/requirements/$name.txt
venv=$root/.cache/venvs/$name
stamp=$venv/.installed
shared=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
wanted=$(cat "$requirements"; echo "# beside $shared")

mkdir -p "$root/.cache/venvs"
# Several test processes may ask at once: one builds, the others wait and find it done.
exec 9>"$venv.lock"
flock 9
if [ "$wanted" != "$(cat "$stamp" 2>/dev/null)" ]; then
    rm -rf "$venv"
    "$python" -m venv --without-pip "$venv" >&2
    # addsitedir, not the bare path: what is installed there for development is found by a .pth file of its own.
    own=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "import site; site.addsitedir('$shared')" > "$own/shared.pth"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements" >&2
    echo "$wanted" > "$stamp"
fi
echo "$venv/bin/python"
