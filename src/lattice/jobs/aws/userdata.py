"""
What instances run when they start, and again after a reboot. Pure.

There is no secret in it, and nothing of the job but its names: the rest is in S3 and in the parameter store, read there
by the instance's own role. All that talks to AWS runs in the job's image, beside the worker's container, so that an
instance needs nothing but Docker.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lattice.jobs.aws.specs import Specs

if TYPE_CHECKING:
    from lattice.jobs.aws.plan import Names

FOLDER = "/var/lib/lattice"
EFS = "/mnt/efs1"
NFS_OPTIONS = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"
PRIVATE = re.compile(r"(\d+\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?)/")
"""images in a registry of an AWS account"""
SERVER_NAME = "lattice-rdzv"
"""the name in etcd's certificate, whatever its address is"""
PATIENCE = "connect_timeout=1800,join_timeout=1800,store_grace=900,outcome_ttl=600"
"""how long agents wait for instances to come, and workers go on without etcd: until its instance is replaced"""

_START = f"""\
#!/bin/bash
# A node of a job of Lattice. cloud-init runs this once; the copy runs at every later boot.
set -u
export HOME=~root
say() {{ echo "lattice: $*"; }}
install -D -m 755 "$0" /var/lib/cloud/scripts/per-boot/lattice 2>/dev/null || true
[ ! -e {FOLDER}/over ] || exit 0
mkdir -p {FOLDER}/code {EFS}
chmod 777 {FOLDER} {FOLDER}/code # the image may have a user of its own
systemctl start docker || true
"""

_PULL = """\
until docker image inspect "$image" > /dev/null 2>&1 || said=$(docker pull --quiet "$image" 2>&1); do
  say "cannot pull $image: ${said##*$'\\n'}; trying again"
  sleep 20
done
"""

_WORKER = f"""\
tries=1
until prepare; do
  if [ $? = 3 ] || [ $tries = 30 ]; then
    leave 1
    exit 1
  fi
  say "cannot prepare this node (attempt $tries)"
  tries=$((tries + 1))
  sleep 20
done
[ ! -e {FOLDER}/over ] || exit 0
# Options, image and arguments, each ended by a zero byte: no shell reads them again.
mapfile -d '' -t words < {FOLDER}/words
docker rm --force lattice-worker > /dev/null 2>&1 || true
if ! docker run --detach --name lattice-worker "${{words[@]}}" > {FOLDER}/last_words 2>&1; then
  say "cannot start the worker: $(tail -n 1 {FOLDER}/last_words)"
  leave 125
  exit 1
fi
while pid=$(docker inspect --format '{{{{.State.Pid}}}}' lattice-worker) && [ "$pid" != 0 ]; do
  attend "$pid" || sleep 1
done
code=$(docker wait lattice-worker) || code=255
docker logs --tail 20 lattice-worker > {FOLDER}/last_words 2>&1 || true
until leave "$code"; do sleep 20; done
"""

_RDZV = """\
until rdzv; do
  say "etcd has ended; starting it again"
  sleep 5
done
"""


@dataclass(frozen=True, slots=True)
class CodeAt:
    """Where the nodes find the code."""

    url: str
    """s3:// of a file or an archive; empty if it is in the image"""
    digest: str
    """SHA-256 in hex; empty for what somebody else put there"""
    archive: bool
    script: str
    """the script in the archive, or its path in the image"""


def rdzv(specs: Specs, called: Names, region: str) -> str:
    """Give the user data of etcd's instance."""
    facts = _facts(called, region, called.groups[0])
    return _START + facts + _image(specs) + _companion("rdzv", region, "--user 0") + _PULL + _RDZV


def worker(specs: Specs, called: Names, region: str, section: str, more: Mapping[str, Any]) -> str:
    """
    Give the user data of a worker's instance.

    :param section: which of the job's nodes it is
    :param more: what the instances of a role are told besides
    """
    companions = (
        _companion("prepare", region)
        + _companion("attend", region, "--user 0 --pid host --stop-timeout 150")
        + _companion("leave", region, "--user 0")
    )
    facts = _facts(called, region, called.group(section), more)
    return _START + facts + _mount(specs, region) + _image(specs) + companions + _PULL + _WORKER


def run_words(order: Mapping[str, Any], names: Mapping[str, Any], instance: str, script: str) -> list[str]:
    """
    Give the arguments of ``docker run`` that start the worker: options, image, script, the script's arguments.

    :param order: what the job's nodes are told, as :func:`lattice.jobs.aws.sections.order` made it
    :param names: the facts of the user data
    :param instance: id of this instance
    :param script: as the container finds it
    """
    given = dict(order["run_options"])
    run = order.get("rdzv_id", names["submission"])
    conf = [
        PATIENCE,
        given.pop("rdzv_conf", ""),  # what the user says comes later, and holds
        f"cacert={FOLDER}/ca.pem,server_name={SERVER_NAME},user=root,password_file={FOLDER}/password",
    ]
    options = {
        **given,
        "nnodes": order["nnodes"],
        "rdzv_id": f"{run}-{instance}" if order.get("each") else run,
        "rdzv_backend": "etcd",
        "rdzv_endpoint": f"@{FOLDER}/endpoints",
        "rdzv_conf": ",".join(filter(None, conf)),
        "events": f"{FOLDER}/journal.jsonl",
        "log_dir": f"{FOLDER}/logs",
    }
    variables = {
        "AWS_DEFAULT_REGION": names["region"],
        **{f"LATTICE_{name.upper()}": text for name, text in options.items()},
        **order["environment"],
    }
    stop = int(float(given.get("shutdown_timeout", 30))) + 30
    return [
        *("--network", "host", "--ipc", "host", "--stop-timeout", str(stop)),
        *(("--gpus", "all") if order["gpus"] else ()),
        *("--volume", f"{FOLDER}:{FOLDER}", "--volume", f"{EFS}:{EFS}", "--workdir", f"{FOLDER}/code"),
        *("--log-driver", "awslogs", "--log-opt", f"awslogs-region={names['region']}"),
        *("--log-opt", f"awslogs-group={names['log_group']}"),
        *("--log-opt", f"awslogs-stream={names['submission']}/{instance}"),
        *(word for name, value in variables.items() for word in ("--env", f"{name}={value}")),
        order["image"],
        *(order.get("command") or [script]),
        *order["arguments"],
    ]


def _facts(called: Names, region: str, workers: str, more: Mapping[str, Any] | None = None) -> str:
    facts = {
        "job": called.job,
        "submission": called.submission,
        "region": region,
        "bucket": called.bucket,
        "folder": called.folder,
        "log_group": called.log_group,
        "secrets": called.secret(""),
        "rdzv": called.rdzv,
        "workers": workers,
        **({"groups": called.groups, **more} if more else {}),
    }
    return f"cat > {FOLDER}/job.json <<'END'\n{json.dumps(facts, indent=1)}\nEND\n"


def _mount(specs: Specs, region: str) -> str:
    if not specs.worker.efs_file_system_id:
        return ""
    target = f"{specs.worker.efs_file_system_id}.efs.{region}.amazonaws.com:/"
    return (
        f"until mountpoint -q {EFS} || mount -t nfs4 -o {NFS_OPTIONS} {shlex.quote(target)} {EFS}; do\n"
        f'  say "cannot mount {specs.worker.efs_file_system_id}; trying again"\n'
        "  sleep 10\n"
        "done\n"
    )


def _image(specs: Specs) -> str:
    image = specs.worker.docker_image
    text = f"image={shlex.quote(image)}\n"
    if registry := PRIVATE.match(image):
        helpers = json.dumps({"credHelpers": {registry[1]: "ecr-login"}})
        text += (
            "command -v docker-credential-ecr-login > /dev/null || dnf install -y -q amazon-ecr-credential-helper\n"
            f"mkdir -p $HOME/.docker\necho '{helpers}' > $HOME/.docker/config.json\n"
        )
    return text


def _companion(what: str, region: str, options: str = "") -> str:
    words: Sequence[str] = (
        "docker run --rm --network host",
        *filter(None, [options]),
        f"--env AWS_DEFAULT_REGION={shlex.quote(region)} --volume {FOLDER}:{FOLDER} --entrypoint python3",
        f'"$image" -m lattice.jobs.aws.instance {what} {FOLDER}/job.json "$@"',
    )
    return f"{what}() {{\n  {' '.join(words)}\n}}\n"
