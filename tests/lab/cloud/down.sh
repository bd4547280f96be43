#!/usr/bin/env bash
# down.sh STATE: remove what a cloud leaves when its capsule has ended.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
root_only
cgroup_remove "$LAB_CGROUP/cloud"
rm -rf "${1:?down.sh STATE}"
