#!/usr/bin/env bash
# inner.sh CACHE STATE: the cluster itself; the first process of its namespaces, started by up.sh only.
# Ends, and so ends the whole cluster, as soon as one of its servers ends. The network namespace is new and
# private, so nobody else can hold a port in it.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
[ $$ = 1 ] || die "is started by up.sh."
cache=$1 state=$2
export LAB_INSIDE=1
cd "$state"
mkdir -p pki

capsule_floor "$state" /var/lib /var/log
ip addr add 10.200.0.1/32 dev lo         # the node's address, and the cluster's DNS
sysctl -qw net.ipv4.ip_forward=1

log() { echo "[$(date +%T)] $*"; }
names=()
start() {                                # start NAME COMMAND...
  local name=$1; shift
  "$@" > "$name.log" 2>&1 &
  names[$!]=$name
}

any_dead() { local pid; for pid in "${!names[@]}"; do kill -0 "$pid" 2>/dev/null || return 0; done; return 1; }
report() {                               # report PID: say which server ended, and end the cluster
  log "${names[$1]} ended; the cluster ends with it. The end of its log:"
  tail -n 20 "${names[$1]}.log"
  exit 1
}
wait_alive() {                           # wait_alive SECONDS WHAT COMMAND...: wait_for, but not for the dead
  local seconds=$1 what=$2 pid; shift 2
  done_or_dead() { any_dead || "$@"; }
  wait_for "$seconds" "$what" done_or_dead "$@" || { tail -n 10 ./*.log; exit 1; }
  for pid in "${!names[@]}"; do kill -0 "$pid" 2>/dev/null || report "$pid"; done
}

# Certificates and one random token for each identity.
ec=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
openssl genrsa -out pki/sa.key 2048 2>/dev/null
openssl req -x509 "${ec[@]}" -keyout pki/ca.key -out pki/ca.crt -subj /CN=lab -days 30 2>/dev/null
certificate() {                          # certificate NAME SUBJECT EXTENSIONS
  openssl req "${ec[@]}" -keyout "pki/$1.key" -out "pki/$1.csr" -subj "$2" 2>/dev/null
  openssl x509 -req -in "pki/$1.csr" -CA pki/ca.crt -CAkey pki/ca.key -CAcreateserial -out "pki/$1.crt" -days 30 \
    -extfile <(echo "$3") 2>/dev/null
}
certificate apiserver /CN=kube-apiserver 'subjectAltName=DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.200.0.1,IP:10.96.0.1'
certificate kubelet-client /O=system:masters/CN=apiserver-kubelet-client 'extendedKeyUsage=clientAuth'

umask 077
identity() {                             # identity NAME USER [GROUP]: a token and NAME.kubeconfig
  local token
  token=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')
  echo "$token,$2,$1${3:+,\"$3\"}" >> tokens.csv
  echo "$token" > "$1.token"
  cat > "$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://127.0.0.1:6443", certificate-authority: $state/pki/ca.crt}}]
users: [{name: $1, user: {token: $token}}]
contexts: [{name: lab, context: {cluster: lab, user: $1}}]
current-context: lab
YAML
}
identity admin admin system:masters
identity controllers system:kube-controller-manager
identity scheduler system:kube-scheduler
identity proxy system:kube-proxy
for i in 1 2 3 4; do identity "node$i" "system:node:node$i" system:nodes; done
umask 022

api() { curl -fsS --cacert pki/ca.crt -H "Authorization: Bearer $(cat admin.token)" "https://127.0.0.1:6443$1" "${@:2}"; }

log "starting"
start etcd etcd --data-dir etcd --unsafe-no-fsync --listen-client-urls http://127.0.0.1:2379 \
  --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
# Pods on a lost node are given up after 5 s instead of 5 min, so that a test can see them replaced.
start apiserver "$cache/bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 \
  --advertise-address=10.200.0.1 --secure-port=6443 --insecure-port=0 --service-cluster-ip-range=10.96.0.0/24 \
  --token-auth-file=tokens.csv --authorization-mode=Node,RBAC --client-ca-file=pki/ca.crt \
  --tls-cert-file=pki/apiserver.crt --tls-private-key-file=pki/apiserver.key \
  --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=pki/sa.key \
  --service-account-signing-key-file=pki/sa.key --allow-privileged=true --kubelet-preferred-address-types=InternalIP \
  --kubelet-client-certificate=pki/kubelet-client.crt --kubelet-client-key=pki/kubelet-client.key \
  --default-not-ready-toleration-seconds=5 --default-unreachable-toleration-seconds=5 --feature-gates=TTLAfterFinished=true
start node1 "$here/node.sh" 1 "$cache" "$state"   # imports images while the API server starts
wait_alive 180 "the API server" api /readyz
log "API server ready"

start controllers "$cache/bin/kube-controller-manager" --kubeconfig=controllers.kubeconfig \
  --authentication-kubeconfig=controllers.kubeconfig --authorization-kubeconfig=controllers.kubeconfig \
  --service-account-private-key-file=pki/sa.key --root-ca-file=pki/ca.crt --use-service-account-credentials=true \
  --leader-elect=false --port=0 --bind-address=127.0.0.1 --node-monitor-period=2s --node-monitor-grace-period=20s \
  --feature-gates=TTLAfterFinished=true
start scheduler "$cache/bin/kube-scheduler" --kubeconfig=scheduler.kubeconfig --authentication-kubeconfig=scheduler.kubeconfig \
  --authorization-kubeconfig=scheduler.kubeconfig --leader-elect=false --port=0 --bind-address=127.0.0.1
server=(--server https://127.0.0.1:6443 --authority pki/ca.crt --token admin.token)
start volumes "$here/volumes.py" "${server[@]}" --root "$state/volumes"
start dns "$here/dns.py" "${server[@]}" \
  --listen 10.200.0.1 --hosts "$state/dns.hosts"
api /apis/rbac.authorization.k8s.io/v1/clusterrolebindings -o /dev/null -H 'Content-Type: application/json' -d '{
  "metadata": {"name": "kube-proxy"}, "subjects": [{"kind": "User", "name": "system:kube-proxy"}],
  "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"}}'
start proxy "$cache/bin/kube-proxy" --kubeconfig proxy.kubeconfig --hostname-override node1 --proxy-mode iptables \
  --cluster-cidr 10.244.0.0/24 --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0 \
  --conntrack-tcp-timeout-close-wait 0 --oom-score-adj 0

# A pod made before the default service account is refused, so that is part of being ready.
usable() {
  [ -f node1.ready ] && api /api/v1/namespaces/default/serviceaccounts/default &&
    api /apis/storage.k8s.io/v1/storageclasses/lab
}
wait_alive 180 "node1" usable
log "node ready"
touch ready

wait -n -p ended || true
report "$ended"
