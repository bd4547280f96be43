#!/usr/bin/env bash
# load.sh IMAGE.tar...: have images on every node of the running cluster, and on those that come later.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
root_only
state=$LAB_RUN/kubernetes
live_pid "$state/cluster.init" >/dev/null || die "cluster '$LAB_NAME' is not up."
for image; do
  cp --remove-destination "$image" "$state/images/$(basename "$image")"
  for ready in "$state"/node?.ready; do
    node=$(basename "$ready" .ready)
    "$here/enter.sh" ctr -a "$state/$node/containerd.sock" -n k8s.io images import "$state/images/$(basename "$image")" >/dev/null
  done
done
