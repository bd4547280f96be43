#!/usr/bin/env bash
# host.sh STATE PORT NAME ADDRESS REGION: an instance. The first process of its namespaces, started by service.py only; the
# instance's user data is STATE/user-data, and is run as it is, once, as root, by an interpreter of its own choice.
#
# What an instance of AWS has and a host of this machine lacks is stood in for here, and nowhere else:
#   - the network: eth0 leads to a switch with all other instances, and to nobody else.
#   - the metadata service, at its usual address: service.py. It wants tokens, and knows who asks by the address.
#   - AWS itself: moto, at http://10.77.0.1. Programs in containers are told so by AWS_ENDPOINT_URL in the image, and
#     the engine's log driver by daemon.json; this makes awslogs the driver of containers that name none.
#   - the system image: this machine's programs and Docker engine; what is written below /etc /opt /mnt /var is private
#     to the instance, as is /run, and what the engine pulls is there already.
#   - systemd, EFS and power: programs in shims/ that come first on PATH.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
[ $$ = 1 ] || die "is started by service.py."
state=$1 port=$2 name=$3 address=$4 region=$5
images=$state/../../images

ip link add eth0 type veth peer name "port$port" netns switch
ip -n switch link set "port$port" master br0 up
disk=$state/disk
mkdir "$disk"
mount -t tmpfs -o size=2g tmpfs "$disk"
capsule_floor "$disk" /etc /opt /mnt /var
ip addr add "$address/16" dev eth0
ip link set eth0 up
ip route add 169.254.169.254 dev eth0
hostname "$name"
printf '127.0.0.1 localhost\n%s %s\n' "$address" "$name" > /etc/hosts

# Every engine has a data folder of its own; the layers of images, which nobody writes to, are the same for all.
data=/var/lib/docker
mkdir -p "$disk/docker/overlay2" "$data"
mount --bind "$disk/docker" "$data"
cp -a "$images/image" "$data"
cp -a "$images/overlay2/l" "$data/overlay2"
for layer in "$images"/overlay2/*/diff; do
  of=$(dirname "$layer") own=$data/overlay2/$(basename "$(dirname "$layer")")
  mkdir -p "$own/diff"
  cp -a "$of/link" "$own"
  if [ -f "$of/lower" ]; then cp -a "$of/lower" "$own"; mkdir "$own/work"; fi
  mount --bind "$layer" "$own/diff"
done
mkdir -p /etc/docker
cat > /etc/docker/daemon.json <<END
{
  "log-driver": "awslogs",
  "log-opts": {
    "awslogs-endpoint": "http://10.77.0.1",
    "awslogs-region": "$region",
    "awslogs-group": "companions",
    "awslogs-create-group": "true"
  }
}
END
env -i PATH="$PATH" dockerd --bridge none --iptables=false --storage-driver overlay2 --cgroup-parent "/$LAB_CGROUP/cloud" --oom-score-adjust 0 \
  -H unix:///run/docker.sock -H "unix://$state/docker.sock" > "$state/engine.log" 2>&1 &
engine=$!
up_or_dead() { docker -H "unix:///run/docker.sock" info || ! kill -0 "$engine"; }
wait_for 60 "the engine of $name" up_or_dead

script=/var/lib/cloud/instance/scripts/part-001
mkdir -p "$(dirname "$script")"
cp "$state/user-data" "$script"
chmod 700 "$script"
cd /
env -i PATH="$here/shims:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" CLOUD_STATE="$state" LANG=C.UTF-8 \
  "$script" > "$state/user-data.log" 2>&1 < /dev/null &
wait "$engine"
