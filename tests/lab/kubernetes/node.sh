#!/usr/bin/env bash
# node.sh INDEX [off]: add node INDEX (2 to 4) to the running cluster, or cut its power.
# A node is a containerd and a kubelet in a cgroup and a mount namespace of their own. All nodes share one network
# namespace, with an address (10.200.0.INDEX) and a range of pod addresses each: what is lost with a node is its
# processes, not a link.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
root_only
index=${1:?node.sh INDEX [off]}
node=node$index
cgroup=$LAB_CGROUP/kubernetes/$node

if [ -z "${LAB_INSIDE:-}" ]; then        # called by a person or a test, on the machine
  [[ $index =~ ^[2-4]$ ]] || die "INDEX must be 2, 3 or 4; node1 goes with the cluster."
  state=$LAB_RUN/kubernetes
  live_pid "$state/cluster.init" >/dev/null || die "cluster '$LAB_NAME' is not up."
  cd "$state"
  if [ "${2:-}" = off ]; then
    # Everything of the node is in this cgroup, its pods too. SIGKILL at once: nothing gets to say goodbye.
    dark() { local pid; for pid in $(cgroup_pids "$cgroup"); do kill -KILL "$pid" 2>/dev/null || true; done; [ -z "$(cgroup_pids "$cgroup")" ]; }
    wait_for 30 "the end of $node" dark
    # Its pods' networks are gone, too, with the mounts that held them: a peer hears nothing, as from any dead machine.
    rm -f "$node.ready"
    exit
  fi
  [ -z "$(cgroup_pids "$cgroup")" ] || { say "$node is up"; exit; }
  spawn "$node" "$here/enter.sh" env LAB_INSIDE=1 "$here/node.sh" "$index" "$(cat cache)" "$state"
  ready_or_dead() { [ -f "$node.ready" ] || gone "$node.pid"; }
  wait_for 220 "$node" ready_or_dead || true
  [ -f "$node.ready" ] || { tail -n 20 "$node.log" "$node/kubelet.log" >&2; die "$node did not come up."; }
  exit
fi

# From here on: inside the cluster's namespaces, and in a mount namespace of the node's own.
if [ "$(readlink /proc/self/ns/mnt)" = "$(readlink /proc/1/ns/mnt)" ]; then
  exec unshare --mount --propagation private -- "$0" "$@"
fi
cache=$2 state=$3
low=$((index * 50 - 40)) high=$((index * 50 + 9))   # the node's pods are 10.244.0.LOW to 10.244.0.HIGH
cd "$state"
echo "$cache" > cache
cgroup_make "$cgroup"
echo 0 > "/sys/fs/cgroup/freezer/$cgroup/cgroup.procs"
ip addr replace "10.200.0.$index/32" dev lo
rm -rf "$node" "/run/$node" "$node.ready"         # a node that had its power cut starts from an empty disk
mkdir -p "$node"/{cni,containerd}
# What their settings cannot move. A kubelet removes logs of pods that it does not know from /var/log/pods, and at its start
# what it finds in /var/lib/kubelet/device-plugins. The rest of /run is shared: iptables, of one network, has its lock there.
for folder in /run/netns /run/containerd /var/lib/{cni,containerd,kubelet} /var/log/{pods,containers}; do
  mkdir -p "$folder" "$node/own$folder"
  mount --bind "$node/own$folder" "$folder"
done
# In memory where there is plenty: an image is thousands of small files, and with the namespaces they are gone at once.
available=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
[ "$available" -lt 8 ] || mount -t tmpfs -o size=3g tmpfs "$node/containerd"
socket=$state/$node/containerd.sock

# restrict_oom_score_adj: without CAP_SYS_RESOURCE no process may lower its score, and pods would not start.
cat > "$node/containerd.toml" <<TOML
version = 2
root = "$state/$node/containerd"
state = "/run/$node/containerd"
[grpc]
  address = "$socket"
[plugins."io.containerd.internal.v1.opt"]
  path = "$state/$node/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/local/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$state/$node/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
TOML
cat > "$node/cni/10-bridge.conflist" <<JSON
{"cniVersion": "0.4.0", "name": "lab", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipam": {"type": "host-local",
   "ranges": [[{"subnet": "10.244.0.0/24", "gateway": "10.244.0.1",
                "rangeStart": "10.244.0.$low", "rangeEnd": "10.244.0.$high"}]],
   "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/$node/ipam"}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
JSON
# syncFrequency 2s: a deleted pod is replaced in 8 s, with the default minute in up to 59 s.
cat > "$node/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $state/pki/ca.crt}}
authorization: {mode: Webhook}
address: 10.200.0.$index
healthzBindAddress: 127.0.0.1
healthzPort: $((10247 + index))
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup
clusterDNS: [10.200.0.1]
clusterDomain: cluster.local
resolvConf: ""
failSwapOn: false
oomScoreAdj: 0
syncFrequency: 2s
nodeStatusUpdateFrequency: 2s
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: 50Mi}
imageGCHighThresholdPercent: 100
volumePluginDir: $state/$node/volume-plugins
YAML

log() { echo "[$(date +%T)] $*"; }
log "starting"
containerd -c "$node/containerd.toml" > "$node/containerd.log" 2>&1 &
wait_for 60 "containerd of $node" ctr -a "$socket" version
for image in "$cache"/images/*.tar images/*.tar; do ctr -a "$socket" -n k8s.io images import "$image" >/dev/null; done
log "images imported"
api() { curl -fsS --cacert pki/ca.crt -H "Authorization: Bearer $(cat admin.token)" "https://127.0.0.1:6443$1"; }
wait_for 180 "the API server" api /readyz # a kubelet that comes too early waits 7 s before it tries again
"$cache/bin/kubelet" --config "$node/kubelet.yaml" --kubeconfig "$node.kubeconfig" --root-dir "$state/$node/kubelet" \
  --cert-dir "$state/$node/pki" --hostname-override "$node" --node-ip "10.200.0.$index" \
  --container-runtime=remote --container-runtime-endpoint "unix://$socket" > "$node/kubelet.log" 2>&1 &
log "kubelet started"

ready() {
  api "/api/v1/nodes/$node" |
    python3 -c 'import json, sys; sys.exit(not any(c["type"] == "Ready" and c["status"] == "True" for c in json.load(sys.stdin)["status"]["conditions"]))'
}
wait_for 120 "$node ready" ready
log "ready"
touch "$node.ready"
wait -n                                  # containerd or kubelet ended: so does the node
