#!/usr/bin/env bash
# venv.sh PYTHON FOLDER: a virtual environment with pip, also where Debian's python3-venv is not installed.
set -euo pipefail
python=$1 folder=$2
command -v "$python" >/dev/null || { echo "There is no $python here. Install Python 3.11 or newer, or name one: make PYTHON=python3.12" >&2; exit 1; }
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "Lattice needs Python 3.11 or newer; $python is $("$python" -V 2>&1). Name a newer one: make PYTHON=python3.12" >&2
  exit 1
fi
if [ -x "$folder/bin/python" ] && "$folder/bin/python" -m pip --version >/dev/null 2>&1; then exit; fi
"$python" -m venv --clear "$folder" >/dev/null 2>&1 && exit
# Without ensurepip the environment has no pip of its own: the machine's pip puts one in.
"$python" -m venv --clear --without-pip "$folder"
if ! "$python" -m pip --version >/dev/null 2>&1; then
  echo "$python has neither venv with ensurepip nor pip. On Debian or Ubuntu: apt install python3-venv" >&2
  exit 1
fi
"$python" -m pip --disable-pip-version-check -q --python "$folder/bin/python" install pip setuptools
