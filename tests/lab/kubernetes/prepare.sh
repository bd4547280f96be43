#!/usr/bin/env bash
# prepare.sh PYTHON: have ready what the tests' cluster takes minutes for on a new machine: its programs, and what its image
# is made of. For the background: it has a low priority, tests that need something of it wait for it, and killed at any time
# it leaves nothing half done. PYTHON is an interpreter with pip, for the download.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
root_only
python=${1:?prepare.sh PYTHON}
[ "$(nice)" -ge 10 ] || renice -n 10 $$ >/dev/null
"$here/image.sh" "$python"
"$here/provision.sh" >/dev/null
say "kubernetes: all is prepared"
