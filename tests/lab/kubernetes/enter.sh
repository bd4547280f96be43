#!/usr/bin/env bash
# enter.sh COMMAND...: run COMMAND inside the cluster's namespaces, for example curl to a pod's address.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
init=$("$here/init.sh")
exec nsenter --target "$init" --net --mount --pid --wd=/ -- "$@"
