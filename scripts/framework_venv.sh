#!/bin/sh
# Makes .cache/venvs/NAME from requirements/NAME.txt and prints its python; does nothing if that is up to date.
# Frameworks other than torch live apart so that none of them dictates the versions of what the agent is tested with.
set -eu

name=${1:?usage: scripts/framework_venv.sh NAME}
root=$(cd "$(dirname "$0")/.." && pwd)
requirements=$root/requirements/$name.txt
venv=$root/.cache/venvs/$name
stamp=$venv/.installed

mkdir -p "$root/.cache/venvs"
# Several test processes may ask at once: one builds, the others wait and find it done.
exec 9>"$venv.lock"
flock 9
if ! cmp -s "$requirements" "$stamp"; then
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements" >&2
    cp "$requirements" "$stamp"
fi
echo "$venv/bin/python"
