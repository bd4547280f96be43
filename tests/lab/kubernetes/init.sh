#!/usr/bin/env bash
# init.sh: prints the pid of the cluster's first process, in whose namespaces it lives.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
live_pid "$LAB_RUN/kubernetes/cluster.init" || die "cluster '$LAB_NAME' is not up."
