#!/usr/bin/env bash
# up.sh STATE COMMAND...: replaced by a capsule in which inner.sh prepares the ground and runs COMMAND. When this process
# ends, so does all that runs inside; down.sh then removes what is left.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
root_only
cgroup_make "$LAB_CGROUP/cloud"
exec unshare --net --mount --pid --fork --kill-child --mount-proc --propagation private -- "$here/inner.sh" "$@"
