#!/usr/bin/env bash
# inner.sh STATE COMMAND...: the first process of a cloud, started by up.sh only. Makes the network that instances are
# plugged into, and the images that their engines have, then runs COMMAND.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
[ $$ = 1 ] || die "is started by up.sh."
state=$1; shift
capsule_floor "$state" /etc /opt
ip netns attach switch 1
# With an address of its own: otherwise it has the lowest of its ports', and whoever knows it by another one that a port
# brought or took along cannot reach AWS until that is forgotten.
ip link add br0 address 02:00:0a:4d:ff:01 type bridge
ip addr add 10.77.0.1/16 dev br0
ip addr add 169.254.169.254/32 dev br0   # whoever is plugged in finds the metadata service here
ip link set br0 up

# In memory: an image is thousands of small files, and with the namespaces they are gone at once.
images=$state/images
mkdir "$images"
mount -t tmpfs -o size=4g tmpfs "$images"
export DOCKER_HOST=unix:///run/docker.sock DOCKER_BUILDKIT=0 DOCKER_CONFIG=$images
dockerd --data-root "$images" --bridge none --iptables=false --storage-driver overlay2 --cgroup-parent "/$LAB_CGROUP/cloud" \
  --oom-score-adjust 0 > "$state/images.log" 2>&1 &
engine=$!
wait_for 60 "the engine that makes the images" docker info || { tail -n 20 "$state/images.log" >&2; exit 1; }
docker import "$state/image.tar" local/base
for name in "$state"/build/*/; do
  docker build -q --network none -t "local/$(basename "$name")" -f "$name/Dockerfile" "$state/context"
done
kill -TERM "$engine"
wait "$engine" || true

# Not exec: the first process must also collect orphans.
"$@" <&0 &
wait $!
