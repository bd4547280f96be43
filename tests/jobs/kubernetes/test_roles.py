"""A learner and its workers in a cluster: they find each other, have what they need beside them, and end together."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
from pathlib import Path

from tests.jobs.kubernetes.pods import KEPT_FOR, STARTED, KubernetesPlace, secret
from tests.lab.cluster import IMAGE
from tests.lab.kubernetes_api import Refused
from tests.waiting import eventually, patience

LEARNER = """\
import os, socket
import lattice
server = socket.create_server(("", int(os.environ["LATTICE_WORKER_PORT"])))
heard = set()
while len(heard) < 2:
    connection, _ = server.accept()
    with connection:
        heard.add(connection.recv(1000).decode())
print("heard", sorted(heard), os.environ["COLOUR"], os.path.ismount("/scratch"), flush=True)
open("/data/learned", "w").write("yes")
while not os.path.exists("/lattice/end"):
    __import__("time").sleep(0.1)
"""
WORKER = """\
import os, socket, time, urllib.request
import lattice
while True:
    try:
        urllib.request.urlopen("http://127.0.0.1:8000", timeout=5).read()
        host, port = lattice.peers("learner", at_least=1)[0].rsplit(":", 1)
        with socket.create_connection((host, int(port)), 5) as connection:
            connection.sendall(socket.gethostname().encode())
    except OSError:
        pass
    time.sleep(0.5)
"""
JOB = f"""\
folder: project
primary: learner
image: {IMAGE}
secrets: colours
roles:
  worker:
    script: work.py
    size: 1:2
    group: each
    if_failed: go_on
    shutdown_timeout: 2
    notice_grace: 1
    sidecars:
      simulator:
        image: {IMAGE}
        command: [sh, -c, "trap exit TERM; python3 -u -m http.server 8000 & wait"]
  learner:
    script: learn.py
    volumes:
      scratch: {{path: /scratch}}
      data: {{path: /data, claim: results}}
"""


def write(place: KubernetesPlace) -> None:
    project = place.folder / "project"
    project.mkdir()
    (project / "learn.py").write_text(LEARNER)
    (project / "work.py").write_text(WORKER)
    (place.folder / "job.yaml").write_text(JOB)


def options(place: KubernetesPlace) -> list[str]:
    return ["--kubeconfig", str(place.cluster.kubeconfig), "--namespace", place.namespace]


def claim(place: KubernetesPlace) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    place.api.create("persistentvolumeclaims", place.namespace, {"metadata": {"name": "results"}, "spec": spec})


def test_a_learner_and_its_workers(place: KubernetesPlace) -> None:
    write(place)
    words = ["submit", "--file", "job.yaml", "--name", "roles", "--on", "kubernetes", *options(place)]
    words += ["--image_pull_policy", "Never", "--keep_for", str(KEPT_FOR)]
    refused = place.run(*words)
    assert (refused.code, "no Secret colours" in refused.err, "Claim results" in refused.err) == (2, True, True)
    claim(place)
    with secret(place, "colours", COLOUR="dark green") as made:
        assert "dark green" not in made.err + made.out
        assert place.run("secret", "list", *options(place)).out == "colours: COLOUR\n"
        place.submitted.add("roles")
        said = place.run(*words)
        assert said.code == 0, said.err
        heard = "heard ['roles-worker-0', 'roles-worker-1'] dark green True"
        eventually(lambda: heard in place.run("logs", "--role", "learner", "roles").out, within=STARTED)
        eventually(
            lambda: "GET / HTTP" in place.run("logs", "--role", "worker", "-c", "simulator", "roles").out, within=60
        )
        look_inside(place)
        assert "dark green" not in eventually(lambda: description(place), within=60)

        assert place.run("scale", "--role", "worker", "roles", "1").code == 0
        eventually(lambda: "roles-worker-1" not in place.running(), within=60)
        assert place.status("roles")["state"] == "running"
        assert place.run("exec", "roles", "--", "touch", "/lattice/end").code == 0
        assert place.run("wait", "roles").code == 0
        eventually(lambda: not place.running(), within=STARTED)


def look_inside(place: KubernetesPlace) -> None:
    inside = place.run("exec", "roles", "--role", "worker", "--index", "1", "--", "sh", "-c", "hostname; id -u; exit 3")
    assert (inside.code, inside.out) == (3, "roles-worker-1\n1000\n"), inside.err
    beside = place.run("exec", "roles", "--role", "worker", "-c", "simulator", "--", "sh", "-c", "echo $PPID >&2")
    assert (beside.code, beside.err) == (0, "0\n")


def description(place: KubernetesPlace) -> str:
    """Return what is told of the job with all workers ready: a kubelet says so later than a pod's own programs."""
    described = place.run("describe", "roles").out
    assert "StatefulSet roles-worker: 2 of 2 pods are ready" in described, described
    assert "    simulator: running" in described, described
    return described


def test_exec_has_a_terminal_if_there_is_one(place: KubernetesPlace) -> None:
    (place.folder / "sleep.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(1000)\n")
    assert place.submit("term", "sleep.py", size=1).code == 0
    eventually(lambda: "up" in place.run("logs", "term").out, within=STARTED)
    leader, follower = pty.openpty()
    with subprocess.Popen(
        place.argv("exec", "term", "--", "sh", "-c", "tty; read word; echo got $word; exit 5"),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=place.environ(),
        cwd=place.folder,
    ) as process:
        os.close(follower)
        seen = b""
        while b"/dev/pts" not in seen:
            seen += os.read(leader, 1000)
        os.write(leader, b"this\r")
        while b"got this" not in seen:
            seen += os.read(leader, 1000)
        assert process.wait(patience(60)) == 5
    os.close(leader)


def test_an_etcd_for_all_jobs_is_made_once_and_used(place: KubernetesPlace, tmp_path: Path) -> None:
    where = ["--kubeconfig", str(place.cluster.kubeconfig)]
    words = ["install", "--on", "kubernetes", "--image", IMAGE, "--image_pull_policy", "Never", *where]
    dry = place.run(*words, "--gpu", "--dry_run")
    assert (dry.code, "nvidia-device-plugin" in dry.out) == (0, True), dry.err
    try:
        assert place.run(*words).code == 0
        again = place.run(*words)
        assert (again.code, "Secret lattice-rdzv is there" in again.err) == (0, True), again.err
        (tmp_path / "tell.py").write_text("print('met')\n")
        assert place.submit("met", "tell.py").code == 0
        assert place.run("wait", "met").code == 0
        assert not [one for one in place.left() if "met-rdzv" in one]
    finally:
        with contextlib.suppress(Refused):
            place.api.call("CoreV1Api", "delete_namespace", "lattice")
        eventually(lambda: is_forgotten(place, "lattice"), within=120)


def is_forgotten(place: KubernetesPlace, namespace: str) -> bool:
    """Tell whether a namespace is gone; its pods are forgotten, as their kubelet may take a minute to tidy up."""
    with contextlib.suppress(Refused):
        now = {"grace_period_seconds": 0}
        place.api.call("CoreV1Api", "delete_namespaced_pod", "lattice-rdzv-0", namespace, **now)
    there = place.api.call("CoreV1Api", "list_namespace")["items"]
    return namespace not in [one["metadata"]["name"] for one in there]
