#!/bin/sh -e
# Makes the Secret of roles: what its nodes are told, and what protects the etcd where they meet.
# Run it once, with kubectl's options as arguments (such as --context team), before the manifests.
cd "$(dirname "$0")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
  -subj /CN=lattice-rdzv -addext subjectAltName=DNS:lattice-rdzv \
  -keyout "$folder/key" -out "$folder/certificate"
openssl rand -hex 32 | tr -d '\n' > "$folder/password"
kubectl create secret generic roles --from-file=order-learner --from-file=order-workers "--from-file=$folder/certificate" "--from-file=$folder/key" "--from-file=$folder/password" "$@"
kubectl label secret roles app.kubernetes.io/managed-by=lattice lattice/job=roles lattice/submission=roles-rendered "$@"
