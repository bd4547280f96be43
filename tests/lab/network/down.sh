#!/usr/bin/env bash
# down.sh: end every process on the hosts, then remove hosts, switch and files.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
root_only
state=$LAB_RUN/network
[ -f "$state/hosts" ] || exit 0

mapfile -t hosts < "$state/hosts"
# The namespaces are ours, so whatever runs in them is ours too. One pass may miss a process that is just forking.
pids() { for host in "${hosts[@]}"; do ip netns pids "$host" 2>/dev/null || true; done; }
signal() { local pid; for pid in $(pids); do kill "-$1" "$pid" 2>/dev/null || true; done; }
empty() { [ -z "$(pids)" ]; }
killed() { signal KILL; empty; }
signal TERM
wait_for 2 "end of processes on the hosts" empty 2>/dev/null || wait_for 10 "end of killed processes" killed

for host in "${hosts[@]}" "$LAB_NAME-switch"; do
  [ ! -e "/run/netns/$host" ] || ip netns del "$host"
  rm -rf "/etc/netns/$host"
done
rmdir /etc/netns 2>/dev/null || true
rm -r "$state"
rmdir "$LAB_RUN" 2>/dev/null || true
