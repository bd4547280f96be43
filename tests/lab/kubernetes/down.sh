#!/usr/bin/env bash
# down.sh: end the cluster: no process, mount, namespace or cgroup of it stays. What provision.sh made stays.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
root_only
state=$LAB_RUN/kubernetes
[ -d "$state" ] || exit 0
cd "$state"
[ ! -f forward.pid ] || stop forward.pid
[ ! -f cluster.pid ] || capsule_stop cluster
for file in node[2-4].pid; do [ ! -f "$file" ] || stop "$file"; done   # nsenter, which outlives what it started
cgroup_remove "$LAB_CGROUP/kubernetes"
cd /
rm -rf "$state"
rmdir "$LAB_RUN" 2>/dev/null || true
