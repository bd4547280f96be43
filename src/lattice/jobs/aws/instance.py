"""
What runs beside the worker on each instance, in the job's image: ``python -m lattice.jobs.aws.instance WHAT JOB.json``.

``prepare`` fetches secrets and code; ``attend PID`` looks after the worker until it ends; ``leave CODE`` tells how it
ended, and ends the groups with the run; ``rdzv`` runs etcd, see :mod:`lattice.jobs.aws.rdzv`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from lattice.core.addresses import endpoints
from lattice.errors import LatticeError
from lattice.jobs import agents
from lattice.jobs.aws import plan
from lattice.jobs.aws.client import AwsFailed
from lattice.jobs.aws.code import fetch
from lattice.jobs.aws.node import Node, attempt, insist, interrupted, write
from lattice.jobs.aws.plan import LEASE, Call, lease, resize
from lattice.jobs.aws.specs import RDZV
from lattice.jobs.aws.userdata import run_words
from lattice.jobs.progress import LEFT, ends_job

PORT = 2379
TICK = 5.0
SOON = 1.0
"""seconds between two looks for an etcd that moved: all nodes have to find it within lease_ttl of each other, or those
who found it first give the others up and start anew"""
FINAL = 3
"""exit code of what would fail in the same way again"""
FAREWELL = 3 * TICK
"""seconds that the other nodes have to tell how they ended, before their instances go"""


def prepare(node: Node) -> int:
    """Fetch what the worker needs: where etcd is, the secrets, the code, the words of its command line."""
    if node.has(plan.OUTCOME):
        # A latecomer must not begin the run anew.
        (node.folder / "over").touch()
        end_groups(node)
        return 0
    order = json.loads(node.get(node.order_key))
    while not write_endpoints(node):
        time.sleep(TICK)
    write(node.folder / "ca.pem", node.secret("certificate"))
    write(node.folder / "password", node.secret("password"), 0o600)
    script = fetch(node.client, order["code"], node.folder / "code")
    words = run_words(order, node.names, node.name, script)
    write(node.folder / "words", "".join(f"{word}\0" for word in words))
    return 0


def attend(node: Node, pid: int) -> int:
    """Look after the worker until it ends: tell how it stands, pass on who wants it to end, keep the lease."""
    # When the instance is shut down all containers get this; the worker's last words are still to be told.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker = agents.Process(pid, agents.birth(pid), agents.boot())
    told, renewed, asked, cut_off = b"", -LEASE.total_seconds(), False, False
    while True:
        ended = worker.wait(SOON if cut_off or not told else TICK)
        journal = node.journal()
        if journal != told and attempt(partial(node.put, node.journal_key, journal), again=ended):
            told = journal
        if ended:
            return 0
        if not asked and (attempt(lambda: node.has(plan.KILL)) or interrupted()):
            asked = worker.signal(signal.SIGTERM)
        if time.monotonic() - renewed > node.lease_interval():
            attempt(lambda: renew(node))
            renewed = time.monotonic()
        cut_off = not reachable(node)
        if cut_off:
            attempt(lambda: write_endpoints(node))


def leave(node: Node, code: int) -> int:
    """Tell how the worker ended. The end of the job ends the groups; a node that ended by itself takes itself out."""
    view = node.view()
    if view.end != LEFT:
        (node.folder / "over").touch()  # a reboot does not begin it again
    if journal := node.journal():  # nobody attended a worker that ended at once
        insist(lambda: node.put(node.journal_key, journal))
    words = (node.read("last_words") or node.read("trouble")).decode(errors="replace")
    insist(lambda: node.note({"code": code, "words": words}))
    if ends_job(view, node.ends):
        insist(lambda: node.put(plan.OUTCOME, json.dumps({"status": view.status}).encode()))
        time.sleep(FAREWELL + node.names.get("grace", 0.0))
        end_groups(node)
    elif view.end != LEFT:
        insist(lambda: take_out(node))
    return 0


def end_groups(node: Node) -> None:
    """
    End all instances of the job: etcd's first, and those of our own group last, because this one is among them.

    If this instance may not do that, the lease ends them later.
    """
    ours = node.names["workers"]
    others = [group for group in node.workers if group != ours]
    for group in (node.names["rdzv"], *others, ours):
        insist(partial(node.client.call, resize(group, 0, 0)))


def take_out(node: Node) -> bool:
    """Have this instance ended and not replaced: another one would fail, too. The last one ends etcd's, too."""

    def left() -> int:
        return sum(group["DesiredCapacity"] for name in node.workers for group in node.groups(name))

    etcd = resize(node.names["rdzv"], 0, 0)
    if left() <= 1:
        node.client.call(etcd)  # now: we may not come to it after our own end
    ended = {"InstanceId": node.name, "ShouldDecrementDesiredCapacity": True}
    node.client.call(Call("autoscaling", "terminate_instance_in_auto_scaling_group", ended))
    if not left():
        node.client.call(etcd)  # the others went at the same time
    return True


def renew(node: Node) -> bool:
    """Let the groups live a while longer."""
    try:
        for group in (*node.workers, node.names["rdzv"]):
            node.client.call(lease(group, datetime.now(UTC) + LEASE))
    except AwsFailed as error:
        # Who reads this in time can still save the job.
        node.note({"words": f"the lease of this job cannot be moved, it ends with it: {error}", "lasting": True})
        raise
    return True


def write_endpoints(node: Node) -> bool:
    """Write where etcd is into the file that the agent reads; tells whether it is known."""
    ids = [
        one["InstanceId"]
        for group in node.groups(node.names["rdzv"])
        for one in group["Instances"]
        if one["LifecycleState"] == "InService"
    ]
    if not ids:
        return False
    found = node.client.call(Call("ec2", "describe_instances", {"InstanceIds": ids}))
    addresses = [
        f"{one['PrivateIpAddress']}:{PORT}"
        for reservation in found["Reservations"]
        for one in reservation["Instances"]
        if one.get("PrivateIpAddress")
    ]
    if addresses:
        write(node.folder / "endpoints", ",".join(addresses))
    return bool(addresses)


def reachable(node: Node) -> bool:
    """Tell whether somebody answers where etcd was last: only if not is AWS asked, which has many to answer."""
    for host, port in endpoints(node.read("endpoints").decode()):
        try:
            socket.create_connection((host, port or PORT), timeout=SOON).close()
            return True
        except OSError:
            continue
    return False


def main(words: list[str]) -> int:
    """Do one of them."""
    what, path, *more = words
    node = Node(Path(path))
    try:
        match what:
            case "prepare":
                return prepare(node)
            case "attend":
                return attend(node, int(more[0]))
            case "leave":
                return leave(node, int(more[0]))
            case "rdzv":
                from lattice.jobs.aws.rdzv import serve

                return serve(node)
        raise ValueError(what)
    except (LatticeError, OSError) as error:
        final = isinstance(error, LatticeError) and not isinstance(error, AwsFailed)
        said = str(error)
        print(f"lattice: {said}", file=sys.stderr, flush=True)
        write(node.folder / "trouble", said)
        attempt(lambda: node.note({"words": said}, RDZV if what == "rdzv" else ""))
        return FINAL if final else 1


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(sys.argv[1:]))
