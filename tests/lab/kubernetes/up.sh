#!/usr/bin/env bash
# up.sh [PORT=0] [IMAGE.tar...]: a one-node Kubernetes in private namespaces, its API on a loopback port of this machine (0:
# any free one), with IMAGEs on its nodes. Prints `export KUBECONFIG=...`. Run provision.sh first.
# LAB_OWNER is the pid of a process with which the cluster ends, even if nobody runs down.sh.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
root_only
port=${1:-0}
cache=$LAB_DIR/kubernetes
state=$LAB_RUN/kubernetes
answer() { echo "export KUBECONFIG=$state/kubeconfig"; }

if [ -f "$state/up" ] && live_pid "$state/cluster.init" >/dev/null && live_pid "$state/forward.pid" >/dev/null; then
  answer
  exit
fi
[ -x "$cache/bin/kubelet" ] || die "no Kubernetes in $cache; run provision.sh."
"$here/down.sh"                          # what a broken run may have left
[ "$port" = 0 ] || claim_port - "$port"
mkdir -p "$state/images"
[ ${#state} -lt 75 ] || die "the path $state is too long for sockets in it; set a shorter LAB_DIR."
trap '[ $? = 0 ] || "$here/down.sh"' EXIT
for image in "${@:2}"; do ln "$(readlink -f "$image")" "$state/images/" 2>/dev/null || cp "$image" "$state/images/"; done
cd "$state"

cgroup_make "$LAB_CGROUP/kubernetes"
capsule cluster "$here/inner.sh" "$cache" "$state"
spawn forward "$here/forward.py" "$port" 127.0.0.1:6443 --pid "$(live_pid cluster.init)" --tell "$state/port" \
  ${LAB_OWNER:+--owner "$LAB_OWNER" --then "$here/down.sh"}
ready_or_dead() { [ -f "$state/ready" ] || gone cluster.init; }
if ! wait_for 400 "the cluster" ready_or_dead || gone cluster.init; then
  tail -n 30 cluster.log >&2
  die "the cluster did not come up; the end of its log is above."
fi
forwarding() { gone forward.pid || [ -s "$state/port" ]; }
if ! wait_for 60 "the forwarded port" forwarding || gone forward.pid; then
  tail -n 20 forward.log >&2
  die "no port leads to the API server; the reason is above."
fi
port=$(cat port)
owns_port - "$port" forward.pid || die "port $port is not ours."
(umask 077; sed "s/:6443/:$port/" admin.kubeconfig > kubeconfig)
# Our certificate authority is minutes old: only our own API server can answer this.
answers() { curl -fsS --cacert pki/ca.crt -H "Authorization: Bearer $(cat admin.token)" "https://127.0.0.1:$port/readyz"; }
wait_for 60 "the API server through port $port" answers || exit 1
touch up
answer
