"""What `make demo` runs: a job on one agent, then one on two that survives a killed worker and a killed agent."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from scripts.demo_agents import ROOT, Agent, DemoError, Program, alive, caption, paint, until

WORKERS = 2
"""per agent"""
# Shorter than the defaults (5 s for a silent node, 5 s for late comers, 30 s between growths), to see it in a minute.
CONF = "lease_ttl=2,last_call=1,grow_interval=1"


@dataclass(frozen=True)
class Recovery:
    """One row of the table at the end."""

    what: str
    then: str
    started: float
    formed: float


def free_port() -> int:
    """Find a port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def one_agent(folder: Path, stack: ExitStack) -> str:
    """Run the example on one agent, whose store is in its own process."""
    caption(f"One agent, {WORKERS} workers, no store to set up: examples/hello_elastic.py")
    agent = Agent("a", folder, ["--nproc_per_node", str(WORKERS)], [str(ROOT / "examples/hello_elastic.py")])
    stack.callback(agent.close)
    if code := agent.wait():
        raise DemoError(f"the example ended with {code}")
    return f"a: {WORKERS} workers, hello_elastic.py, in-process store"


def meeting_place(stack: ExitStack) -> tuple[str, list[str], list[str]]:
    """
    Start etcd if there is one; otherwise agent a serves the store.

    :return: its name, and options for the first agent and for the others
    """
    port = str(free_port())
    endpoint = ["--rdzv_endpoint", f"127.0.0.1:{port}"]
    if shutil.which("etcd"):
        etcd = Program("etcd", [sys.executable, "-m", "lattice", "etcd", "--port", port], hide=lambda line: True)
        stack.callback(etcd.close)
        until("etcd", lambda: etcd.lines or etcd.process.poll() is not None)
        if etcd.process.poll() is not None:
            raise DemoError(f"lattice etcd ended: {etcd.lines}")
        common = [*endpoint, "--rdzv_conf", CONF]
        return "etcd", common, common
    # On one machine every agent owns the address, so each is told whether it is the one that serves.
    embedded = [*endpoint, "--rdzv_backend", "embedded", "--rdzv_conf"]
    name = "a store that agent a serves (no etcd on PATH)"
    return name, [*embedded, f"{CONF},is_host=1"], [*embedded, f"{CONF},is_host=0"]


def recovered(what: str, since: float, world: int, agents: Sequence[Agent]) -> Recovery:
    """Wait until all workers of these agents have formed a group again, and tell how long it took."""

    def all_formed() -> list[tuple[float, int]] | None:
        for agent in agents:
            if agent.process.poll() is not None:
                raise DemoError(f"agent {agent.name} ended with {agent.process.returncode} after {what}")
        found = [agent.formed(world, since) for agent in agents]
        complete = [moment for moment in found if moment is not None]
        same_round = len({number for _, number in complete}) == 1
        return complete if len(complete) == len(agents) and same_round else None

    formed = until(f"a group of {world} after {what}", all_formed)
    number = formed[0][1]
    started = [agent.started(number) for agent in agents]
    moments = [line["moment"] for line in started if line is not None]
    then = f"round {number}, {world} workers"
    return Recovery(what, then, max(moments) - since, max(at for at, _ in formed) - since)


def two_agents(folder: Path, stack: ExitStack) -> tuple[list[str], list[Recovery]]:
    """Run two agents, kill a worker, kill an agent, add one."""
    place, first, others = meeting_place(stack)
    caption(f"Two agents with {WORKERS} workers each, --nnodes 1:2; they meet in {place}")
    enough = folder / "enough"
    common = ["--nnodes", "1:2", "--nproc_per_node", str(WORKERS), "--max_restarts", "3", "--rdzv_id", "demo"]
    entry = [str(ROOT / "scripts/demo_worker.py"), str(enough)]

    def agent(name: str, options: Sequence[str]) -> Agent:
        started = Agent(name, folder, [*common, *options], entry)
        stack.callback(started.close)
        return started

    begin = time.time()
    a, b = agent("a", first), agent("b", others)
    rows = [recovered("start of both agents", begin, 2 * WORKERS, [a, b])]

    victim = b.pids()[-1]
    caption(f"SIGKILL for worker {victim} of agent b")
    killed = time.time()
    os.kill(victim, signal.SIGKILL)
    rows.append(recovered(f"worker {victim} killed", killed, 2 * WORKERS, [a, b]))

    orphans = b.pids()
    caption(f"SIGKILL for agent b itself (pid {b.process.pid}); its workers must not outlive it")
    killed = time.time()
    b.process.kill()
    until("the end of the killed agent's workers", lambda: not any(map(alive, orphans)), 20)
    rows.append(recovered("agent b killed", killed, WORKERS, [a]))

    caption("A new agent c joins")
    joined = time.time()
    c = agent("c", others)
    rows.append(recovered("agent c joined", joined, 2 * WORKERS, [a, c]))

    caption("Enough: the workers end, and with them the run")
    enough.touch()
    for last in (a, c):
        if code := last.wait():
            raise DemoError(f"agent {last.name} ended with {code}")
    left = [pid for pid in [*a.pids(), *c.pids(), *orphans] if alive(pid)]
    if left:
        raise DemoError(f"workers were left behind: {left}")
    return [f"a, b, c: {WORKERS} workers each, met in {place}"], rows


def summary(ran: Sequence[str], rows: Sequence[Recovery], took: float) -> None:
    """Print who ran, what failed, and how long each recovery took."""
    caption("Summary")
    for line in ran:
        print(f"  {line}")
    print(f"\n  {'what happened':<24} {'then':<22} {'new workers after':>18} {'new group after':>16}")
    for row in rows:
        print(f"  {row.what:<24} {row.then:<22} {row.started:>16.2f} s {row.formed:>14.2f} s")
    print("\n  A silent node is given up lease_ttl (here 2 s) after its last sign of life. The first start of an agent")
    print("  pays for importing torch; after that workers are forked from an interpreter that has it.")
    print("\n" + paint(f"  All recovered, nothing left behind, {took:.0f} s in all.", "1;32"), flush=True)


def stop(number: int, frame: object) -> None:
    """Make every signal that ends a program end this one in order."""
    raise KeyboardInterrupt


def main() -> int:
    began = time.monotonic()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    ran: list[str] = []
    try:
        with tempfile.TemporaryDirectory(prefix="lattice-demo-") as name, ExitStack() as stack:
            folder = Path(name)
            ran.append(one_agent(folder, stack))
            more, rows = two_agents(folder, stack)
    except DemoError as error:
        print(paint(f"\nThe demo failed: {error}", "1;31"), flush=True)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; nothing was left running.", flush=True)
        return 130
    summary([*ran, *more], rows, time.monotonic() - began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
