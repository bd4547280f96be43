"""Workers that are forked from a warm interpreter, as the agent uses it; the interpreter itself is tested below."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.agents import ROOT, alive, cluster
from tests.etcd_server import EtcdServer
from tests.waiting import eventually

WARMTH = str(ROOT / "tests" / "workers" / "warmth.py")
SLOW = "import time\ntime.sleep(600)\n"


def test_workers_find_what_they_import_and_fail_as_they_would(tmp_path: Path) -> None:
    with cluster(tmp_path, "--nproc_per_node", "2", "--max_restarts", "2", "--preload", "decimal") as run:
        agent = run.agent(entry=[WARMTH, "decimal", "2"])
        assert agent.wait() == 0, agent.output()
        assert agent.output().count("round 3: decimal warm") == 2, agent.output()
        assert "cold" not in agent.output()
        again = run.agent(entry=[WARMTH, "decimal", "3"])
        assert again.wait() == 5


def test_workers_of_a_job_with_roles_are_warm_too(tmp_path: Path, etcd: EtcdServer) -> None:
    job = ("--job_id", f"warm-{tmp_path.name}", "--job_roles", "learner,roll-out", "--role", "roll-out")
    store = ("--rdzv_endpoint", "{}:{}".format(*etcd.endpoint))
    with cluster(tmp_path, *job, *store, "--nproc_per_node", "2", "--max_restarts", "2", "--preload", "decimal") as run:
        agent = run.agent(entry=[WARMTH, "decimal", "2"])
        assert agent.wait() == 0, agent.output()
        assert agent.output().count("round 3: decimal warm") == 2, agent.output()
        assert "cold" not in agent.output() and "fresh interpreter" not in agent.output()


def test_nothing_is_imported_if_that_is_asked_for(tmp_path: Path) -> None:
    with cluster(tmp_path, "--max_restarts", "1") as run:
        agent = run.agent("--preload", "none", "--framework", "pytorch", entry=[WARMTH, "torch", "1"])
        assert agent.wait() == 0
        assert "warm" not in agent.output()


def test_pytorch_comes_by_itself_and_one_import_serves_all(tmp_path: Path) -> None:
    script = tmp_path / "imports_torch.py"
    script.write_text("import sys\nprint('torch' in sys.modules)\nimport torch\n")
    with cluster(tmp_path, "--framework", "pytorch", "--nproc_per_node", "2") as run:
        agent = run.agent(entry=[str(script)], environ={"LATTICE_PRELOAD": ""})
        assert agent.wait(120) == 0, agent.output()
        assert agent.output().count("] True") == 2, agent.output()


def test_a_module_that_cannot_be_imported_is_named_and_left_out(tmp_path: Path) -> None:
    with cluster(tmp_path, "--max_restarts", "1", "--preload", "no_such_module,decimal") as run:
        agent = run.agent(entry=[WARMTH, "decimal", "1"])
        assert agent.wait() == 0, agent.output()
        assert "preload no_such_module" in agent.output()


def test_a_killed_zygote_costs_no_worker_and_is_replaced(tmp_path: Path) -> None:
    with cluster(tmp_path, "--max_restarts", "3", "--preload", "decimal") as run:
        agent = run.agent()
        first = run.workers(run.round_of(1))[0]["pid"]
        zygote = eventually(lambda: [pid for pid in _zygotes(agent.pid) if pid != first])
        for pid in zygote:
            _kill(pid)
        run.tell("exit-1-0", 7)
        second = run.round_of(1, after=1)
        assert alive(run.workers(second)[0]["pid"])
        run.tell("exit")
        assert agent.wait() == 0


def test_a_goodbye_does_not_wait_for_imports(tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    script = tmp_path / "script" / "script.py"
    script.parent.mkdir()
    script.write_text("import slow_to_import\n")
    with cluster(tmp_path, "--preload", "slow_to_import") as run:
        environ = {"PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}"}
        agent = run.agent(entry=[str(script)], environ=environ)
        eventually(lambda: agent.events("round started"))
        assert not agent.events("workers started")
        agent.signal(signal.SIGTERM)
        assert agent.wait() == 143


def _zygotes(agent: int) -> list[int]:
    """Give the children of an agent that wait in our program."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            environ = (stat.parent / "environ").read_bytes()
        except OSError:
            continue
        if parent == agent and b"/process/zygote" in environ:
            found.append(int(stat.parent.name))
    return found


def _kill(pid: int) -> None:
    import os

    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
