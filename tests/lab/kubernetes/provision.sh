#!/usr/bin/env bash
# provision.sh [CACHE]: the cluster's programs, built once: CACHE/bin (Kubernetes 1.20.2, the version that Debian 12 has in
# source, compiled with Debian's Go) and CACHE/images/pause.tar. Default CACHE: $LAB_DIR/kubernetes. Prints CACHE.
# Skips each part that is there, and goes on where it was killed. 5 to 8 minutes and 1.5 GB of disk while it builds, 300 MB
# after. Two at the same time are one: the second waits for the first, and says how far that is. prepare.sh builds ahead of
# the tests, in the background.
set -eEuo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/../lab.sh"
root_only
recipe=1                                 # another number makes everybody build anew
programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy)
cache=${1:-$LAB_DIR/kubernetes}
mkdir -p "$cache"
cache=$(readlink -f "$cache")
work=$cache/build
step() { doing=$*; say "kubernetes [$SECONDS s]: $doing"; echo "$doing" > "$cache/lock.doing"; }
trap 'say "${0##*/}: failed while $doing; the reason is above. What is done is kept: run it again."' ERR
doing="waiting for another build"
one_at_a_time "$cache/lock"

doing="installing packages"
echo "$doing" > "$cache/lock.doing"
# A containerd or kubectl that is installed from elsewhere stays: Debian's package would replace it.
command -v containerd >/dev/null || install containerd runc
command -v kubectl >/dev/null || install kubernetes-client
install etcd-server containernetworking-plugins dnsmasq-base iptables conntrack iproute2 openssl curl

# part NAME FUNCTION: a folder of the build. It gets its name last, so that half of one is never taken for the whole.
part() {
  [ ! -d "$work/$1" ] || return 0
  rm -rf "$work/$1.partial"
  mkdir -p "$work/$1.partial"
  cd "$work/$1.partial"
  "$2"
  cd "$work"
  mv "$work/$1.partial" "$work/$1"
}

unpack_go() {                            # unpacked, not installed: the machine may have another Go
  local package packages=(golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev)
  local download=(apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}")
  step "downloading Go"
  "${download[@]}" >&2 || { apt-get -qq update >&2; "${download[@]}" >&2; }   # the machine may have no lists yet
  for package in *.deb; do dpkg -x "$package" .; done
  rm ./*.deb
}

unpack_source() {
  local sources vendored tree=src/k8s.io/kubernetes
  step "downloading the source"
  # The machine's own mirror, asked for sources; the machine's own lists stay as they are.
  sources=$(debian_sources)
  case $sources in
    *.sources) sed 's/^Types:.*/Types: deb-src/' "$sources" > src.sources; sources=$PWD/src.sources ;;
    *)         sed -n 's/^deb /deb-src /p' "$sources" > src.list; sources=$PWD/src.list ;;
  esac
  private_apt "$PWD/apt" "$sources" apt-get update >&2
  private_apt "$PWD/apt" "$sources" apt-get source --download-only kubernetes >&2
  step "unpacking the source"
  mkdir -p src/k8s.io
  dpkg-source --no-check -x kubernetes_*.dsc "$tree" >/dev/null
  rm -rf apt kubernetes_*
  # The vendored reflect2 1.0.1 crashes the API server under Go 1.18 and later when it encodes a map for a plain
  # curl (JSON, not protobuf): a segmentation fault, not an error. Debian's 1.0.2 is fixed.
  vendored=$tree/vendor/github.com/modern-go/reflect2
  rm -rf "$vendored"
  cp -rL "$work/go/usr/share/gocode/src/github.com/modern-go/reflect2" "$vendored"
}

# Debian's source has no generated OpenAPI definitions: make them as upstream's Makefile does.
generate_openapi() {
  local folders
  step "generating OpenAPI definitions"
  go build -o "$PWD/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
  cd "$GOPATH/src/k8s.io/kubernetes"
  folders=$(grep -rl --include='*.go' '+k8s:openapi-gen=' pkg plugin cmd staging/src |
    grep -vE '_test.go|/testdata/|code-generator|sample-apiserver|zz_generated|/kube-openapi/' |
    xargs -n1 dirname | sort -u | sed 's,^staging/src/,vendor/,;s,^,k8s.io/kubernetes/,' | paste -sd,)
  "$work/openapi.partial/openapi-gen" --logtostderr -i "$folders" -p k8s.io/kubernetes/pkg/generated/openapi \
    -O zz_generated.openapi -h hack/boilerplate/boilerplate.generatego.txt -r /dev/null
}

compile() {
  local flags='-s -w' package program
  cd "$GOPATH/src/k8s.io/kubernetes"
  for package in component-base/version client-go/pkg/version; do
    package=k8s.io/kubernetes/vendor/k8s.io/$package
    flags+=" -X $package.gitVersion=v1.20.2 -X $package.gitMajor=1 -X $package.gitMinor=20 -X $package.gitTreeState=archive"
  done
  for program in "${programs[@]}"; do    # one after the other only to tell how far it is: nearly all of it is shared
    step "compiling $program (${programs[*]})"
    go build -tags 'providerless dockerless' -ldflags "$flags" -o "$work/bin.partial/" "./cmd/$program"
  done
  gcc -static -Os -DVERSION=3.2 -o "$work/bin.partial/pause" build/pause/linux/pause.c
  echo "$recipe" > "$work/bin.partial/recipe"
}

if [ "$(cat "$cache/bin/recipe" 2>/dev/null)" != "$recipe" ]; then
  install gcc libc6-dev dpkg-dev
  # What another recipe left half done is of no use to this one.
  [ "$(cat "$work/recipe" 2>/dev/null)" = "$recipe" ] || rm -rf "$work"
  mkdir -p "$work"
  echo "$recipe" > "$work/recipe"
  # Tests that look at clocks may run beside it. It is never raised: who started it may have lowered it further.
  [ "$(nice)" -ge 10 ] || renice -n 10 $$ >/dev/null
  part go unpack_go
  part source unpack_source
  export GOROOT=$work/go/usr/lib/go-1.19 GOPATH=$work/source GOCACHE=$work/gocache PATH=$work/go/usr/lib/go-1.19/bin:$PATH
  export GOPROXY=off GOFLAGS='' GO111MODULE=off CGO_ENABLED=0 GOGC=400 GOTMPDIR=$work/tmp
  rm -rf "$GOTMPDIR"                     # of a build that was killed
  mkdir "$GOTMPDIR"
  part openapi generate_openapi
  part bin compile
  cd "$cache"
  sync -f "$work"                        # a machine that is switched off now must not find empty files by their names
  rm -rf "${cache:?}/bin" "$cache/images"
  mv "$work/bin" "$cache/bin"
  step "built"
fi
rm -rf "$work"
if [ ! -f "$cache/images/pause.tar" ]; then
  step "making the pause image"
  mkdir -p "$cache/images"
  tar -C "$cache/bin" -cf "$cache/pause.layer" pause
  "$here/image.py" local/pause:1 "$cache/images/pause.tar" "$cache/pause.layer" --entrypoint /pause
  rm "$cache/pause.layer"
fi
echo "$cache"
