# shellcheck shell=bash
# shellcheck disable=SC2034,SC2317  # variables and nested functions are used by whoever sources this
# What every script of the lab shares: where state lives, how a script fails, how it waits,
# and how it proves that a server is its own child before it uses or ends it. Sourced, never run.
#
# LAB_DIR   folder for everything the lab writes (default: the user's cache folder)
# LAB_NAME  name of one lab; two labs with different names can be up at the same time

LAB_DIR=${LAB_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/lattice-lab}
LAB_NAME=${LAB_NAME:-lab}
LAB_RUN=$LAB_DIR/run/$LAB_NAME           # removed piece by piece by the down.sh scripts
LAB_CGROUP=lattice-lab/$LAB_NAME         # below every cgroup v1 hierarchy

say() { printf '%s\n' "$*" >&2; }
die() { say "${0##*/}: $*"; exit 1; }

root_only() { [ "$(id -u)" = 0 ] || die "must run as root: namespaces, mounts and cgroups need it."; }

# one_at_a_time FILE: wait until no other script holds FILE, and hold it until this one and all that it started have ended:
# when the next one goes on, nothing of a killed one writes any more. What the holder writes to FILE.doing is shown meanwhile.
one_at_a_time() {
  local patience=0
  mkdir -p "$(dirname "$1")"
  exec 9> "$1"
  until flock -w "$patience" 9; do
    say "${0##*/} [$SECONDS s]: waiting for another one$(sed 's/^/, which is /' "$1.doing" 2>/dev/null || true)"
    patience=20
  done
}

# install PACKAGE...: Debian packages that are missing; their services are not started.
install() { "$(dirname "${BASH_SOURCE[0]}")/../../scripts/apt_install.sh" "$@" >&2 9>&-; }

# debian_sources: the file that names this machine's own Debian mirror, so that the lab names none.
debian_sources() {
  local file
  for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
    if [ -s "$file" ]; then echo "$file"; return; fi
  done
  die "found no Debian sources under /etc/apt."
}

# private_apt FOLDER SOURCES COMMAND...: apt with its own lists, so that the machine's are left alone.
private_apt() {
  local folder=$1 sources=$2; shift 2
  mkdir -p "$folder"/lists/partial "$folder"/cache/archives/partial
  "$1" -qq -o Dir::Etc::sourcelist="$sources" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$folder/lists" \
    -o Dir::Cache="$folder/cache" -o APT::Sandbox::User=root "${@:2}"
}

# wait_for SECONDS WHAT COMMAND...: poll until COMMAND succeeds, or fail saying what did not happen.
wait_for() {
  local end=$((SECONDS + $1)) limit=$1 what=$2; shift 2
  until "$@" >/dev/null 2>&1; do
    if [ "$SECONDS" -ge "$end" ]; then say "${0##*/}: $what: not within $limit s."; return 1; fi
    sleep 0.1
  done
}

# A pid alone may have been reused, so a pid file holds the pid and the start time of the process.
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
zombie() { [ "$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c1)" = Z ]; }
save_pid() { echo "$2 $(start_time "$2")" > "$1"; }
live_pid() {                             # live_pid FILE: prints the pid if it is still that process
  local pid started
  [ -f "$1" ] || return 1
  read -r pid started < "$1" || return 1
  [ -n "$started" ] && [ "$(start_time "$pid")" = "$started" ] && ! zombie "$pid" && echo "$pid"
}
gone() { ! live_pid "$1" >/dev/null; }

# spawn NAME COMMAND...: a server in the background, in the current folder: NAME.log and NAME.pid.
spawn() {
  local name=$1; shift
  setsid "$@" > "$name.log" 2>&1 < /dev/null &
  save_pid "$name.pid" $!
}

# stop PIDFILE [SECONDS]: SIGTERM, then SIGKILL after SECONDS. Nothing happens if it is not running.
stop() {
  local pid
  if pid=$(live_pid "$1"); then
    kill -TERM "$pid" 2>/dev/null || true
    if ! wait_for "${2:-5}" "end of $(basename "$1" .pid)" gone "$1" 2>/dev/null; then
      kill -KILL "$pid" 2>/dev/null || true
      wait_for 5 "end of killed $(basename "$1" .pid)" gone "$1" || true
    fi
  fi
  rm -f "$1"
}

# in_net HOST COMMAND...: only the network of a host; HOST may be - for the network of this script.
in_net() { if [ "$1" = - ]; then "${@:2}"; else nsenter --net="/run/netns/$1" "${@:2}"; fi; }

# listener HOST PORT: the pids that listen there on TCP.
listener() { in_net "$1" ss -Hltnp "sport = :$2" | grep -o 'pid=[0-9]*' | cut -d= -f2 | sort -u; }

claim_port() {                           # claim_port HOST PORT: fail if somebody has it
  local line
  line=$(in_net "$1" ss -Hltnp "sport = :$2")
  [ -z "$line" ] || die "port $2 $([ "$1" = - ] || echo "on $1 ")is already in use: $line. End that process or choose another port."
}

owns_port() { [ "$(listener "$1" "$2")" = "$(live_pid "$3")" ]; }   # owns_port HOST PORT PIDFILE

# serve SECONDS HOST PORT NAME COMMAND...: spawn, then prove that our own child has the port.
serve() {
  local seconds=$1 host=$2 port=$3 name=$4; shift 4
  claim_port "$host" "$port"
  spawn "$name" "$@"
  _up_or_dead() { gone "$name.pid" || owns_port "$host" "$port" "$name.pid"; }
  if ! wait_for "$seconds" "$name on port $port" _up_or_dead || gone "$name.pid"; then
    tail -n 20 "$name.log" >&2
    die "$name did not come up on port $port; the end of its log is above."
  fi
}

# Capsule: private network, mount and process namespaces. Killing it takes every process, mount
# and link inside along; only its cgroups have to be removed by hand.

# capsule NAME COMMAND...: NAME.pid is unshare itself, NAME.init the first process inside.
capsule() {
  local name=$1 init; shift
  spawn "$name" unshare --net --mount --pid --fork --kill-child --mount-proc --propagation private -- "$@"
  _has_init() { init=$(ps -o pid= --ppid "$(live_pid "$name.pid")"); }
  wait_for 5 "capsule $name" _has_init || return 1
  save_pid "$name.init" $((init))
}

# capsule_floor STATE FOLDER...: first step inside a capsule. No namespace of the machine stays pinned, /run is
# empty, and what servers write below the FOLDERs, whatever their settings say, goes to STATE/over instead.
capsule_floor() {
  local at over state=$1; shift
  awk '$3 == "nsfs" {print $2}' /proc/mounts | while read -r at; do umount "$at"; done
  for at in /run "$@"; do
    case $state/ in "$at"/*) die "LAB_DIR must not be below $at, which is covered inside; set another." ;; esac
  done
  for at; do
    over=$state/over$at
    mkdir -p "$over/upper" "$over/work"
    mount -t overlay -o "lowerdir=$at,upperdir=$over/upper,workdir=$over/work" overlay "$at"
  done
  mount -t tmpfs tmpfs /run
  mkdir -p /run/lock /run/netns
  ip link set lo up
}

capsule_stop() {                         # capsule_stop NAME
  local pid
  if pid=$(live_pid "$1.pid"); then kill -KILL "$pid"; fi
  if pid=$(live_pid "$1.init"); then kill -KILL "$pid" 2>/dev/null || true; fi
  wait_for 20 "end of capsule $1" gone "$1.init" && rm -f "$1.pid" "$1.init"
}

cgroup_roots() {                         # the cgroup v1 hierarchies, and "unified", in which runc leaves folders too
  [ -d /sys/fs/cgroup/freezer ] || die "the lab needs cgroup v1 below /sys/fs/cgroup."
  find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d
}

cgroup_make() {                          # cgroup_make PATH: in every hierarchy
  local root part at
  cgroup_roots | while read -r root; do
    at=$root
    for part in ${1//\// }; do
      mkdir -p "$at/$part"
      if [ -f "$at/cpuset.cpus" ]; then  # a cpuset is born empty and then takes no process
        cat "$at/cpuset.cpus" > "$at/$part/cpuset.cpus"
        cat "$at/cpuset.mems" > "$at/$part/cpuset.mems"
      fi
      at=$at/$part
    done
  done
}

cgroup_pids() { find "/sys/fs/cgroup/freezer/$1" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -un; }

cgroup_remove() {                        # cgroup_remove PATH: and its parents that are empty then
  local root at=$1
  _removed() {
    cgroup_roots | while read -r root; do
      [ ! -d "$root/$1" ] || find "$root/$1" -depth -type d -exec rmdir {} + || exit 1
    done
  }
  wait_for 10 "removal of cgroup $1" _removed "$1" || return 1
  while at=$(dirname "$at"); [ "$at" != . ]; do
    cgroup_roots | while read -r root; do rmdir "$root/$at" 2>/dev/null || true; done
  done
}
