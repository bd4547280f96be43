"""Workers, agents, keepers and storages that fail, for real: what save returned for is never lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agents import ROOT, AgentProcess, Cluster, clean_environment, cluster, command_of
from tests.checkpoint.conftest import BUCKET, make_bucket
from tests.checkpoint.looking import steps
from tests.etcd_server import free_ports
from tests.lab.scripts import require
from tests.moto_server import moto_server
from tests.tiers import quick_and_long
from tests.waiting import eventually, patience

SAVER = str(ROOT / "tests" / "workers" / "saver.py")
Start = Callable[..., AgentProcess]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "run").mkdir()
    with cluster(tmp_path / "run", "--max_restarts", "3") as made:
        yield made


def start(run: Cluster, where: str, *options: str, **plan: Any) -> AgentProcess:
    """Start an agent whose worker saves; files in the run's folder tell how far it has come."""
    told = json.dumps({"folder": str(run.said), "steps": 5, **plan})
    return run.agent(*options, entry=[SAVER, where, told])


def reached(run: Cluster, step: int) -> None:
    eventually((run.said / f"saved-{step}").exists, within=60)


def keeper_of(agent: AgentProcess) -> int:
    pid: int = eventually(lambda: agent.events("keeper started"))[-1]["pid"]
    return pid


def alive(pid: int) -> bool:
    return "checkpoint" in command_of(pid)


def test_what_was_saved_before_a_crash_is_there_after_it(run: Cluster, where: str) -> None:
    # An interval can be suggested once the storage has anything: what a save costs is known from there.
    agent = start(run, where, steps=8, kill={"0": 3, "1": 6}, stored=5)
    assert agent.wait() == 0, agent.output()
    output = agent.output()
    for step in (0, 3, 6):
        assert f"rank 0 from {step}" in output
    assert "going on from step 3, from memory" in output and "going on from step 6, from memory" in output
    assert "would lose least: a save costs" in output
    assert steps(where) == [8, 7, 6]
    assert len(agent.events("keeper started")) == 1


def python(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Python without an agent."""
    environ = {**os.environ, **clean_environment()}
    return subprocess.run(
        [sys.executable, *words], env=environ, capture_output=True, text=True, timeout=patience(60), check=False
    )


@pytest.mark.parametrize("where", quick_and_long(["folder"], ["s3"]), indirect=True)
def test_a_script_that_no_agent_runs(where: str, tmp_path: Path) -> None:
    for last in (3, 5):
        told = json.dumps({"folder": str(tmp_path), "steps": last})
        done = python(SAVER, where, told)
        assert done.returncode == 0, done.stderr
        assert steps(where)[0] == last, "all was written when it ended"
    assert "rank 0 from 3" in done.stdout


def test_a_script_whose_child_lives_on(tmp_path: Path) -> None:
    code = (
        "import os, sys; from lattice.checkpoint import Checkpointer\n"
        "c = Checkpointer(sys.argv[1])\n"
        "c.save(1, 'state')\n"
        "ended, ends = os.pipe()\n"
        "if not os.fork():\n"
        "    for number in (ends, 1, 2): os.close(number)\n"
        "    os.read(ended, 1)\n"  # until its parent is gone
        "    os._exit(0)\n"
    )
    done = python("-c", code, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert steps(str(tmp_path)) == [1]


def test_what_is_kept(run: Cluster, tmp_path: Path) -> None:
    where = tmp_path / "saved"
    settings = {"keep_last": 2, "keep_every": 5, "keep_best": 1}
    agent = start(run, str(where), steps=12, settings=settings)
    assert agent.wait() == 0, agent.output()
    assert steps(str(where)) == [12, 11, 10, 5, 2]
    assert sorted(int(path.name[5:17]) for path in where.glob("step_*")) == [2, 5, 10, 11, 12]


@pytest.fixture
def missing(tmp_path: Path) -> Path:
    """A folder that nobody can write to, not even root, until what it leads to is there."""
    (tmp_path / "saved").symlink_to(tmp_path / "elsewhere")
    return tmp_path / "saved"


def test_a_storage_that_fails_for_a_while(run: Cluster, missing: Path) -> None:
    agent = start(run, str(missing), hold=5)
    reached(run, 5)
    eventually(lambda: "CHECKPOINTS ARE NOT WRITTEN to" in agent.output())
    missing.readlink().mkdir()
    eventually(lambda: "are written to" in agent.output() and steps(str(missing)), within=60)
    (run.said / "go").touch()
    assert agent.wait() == 0, agent.output()
    assert steps(str(missing))[0] == 5


def test_a_storage_that_fails_to_the_end(run: Cluster, missing: Path, tmp_path: Path) -> None:
    agent = start(run, str(missing), "--checkpoint_timeout", "1")
    assert agent.wait() == 74, agent.output()
    assert "A CHECKPOINT IS LOST" in agent.output() and "exit code 74" in agent.output()
    assert agent.events("checkpoints lost")
    told = json.dumps({"folder": str(tmp_path), "steps": 1})
    code = f"import sys; sys.argv = {[SAVER, str(missing), told]!r}; import lattice.checkpoint.client as c; "
    code += f"c.PATIENCE = 1; exec(open({SAVER!r}).read())"
    done = python("-c", code)
    assert done.returncode == 74 and "A CHECKPOINT IS LOST" in done.stderr, done.stderr


@pytest.mark.lab
def test_a_full_disk(run: Cluster, tmp_path: Path) -> None:
    require("mount", "umount")
    where = tmp_path / "disk"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)], check=True)
    try:
        (where / "ballast").write_bytes(bytes(900_000))
        agent = start(run, str(where), hold=5, size=20_000)
        eventually(lambda: "No space left on device" in agent.output(), within=60)
        reached(run, 5)
        (where / "ballast").unlink()
        (run.said / "go").touch()
        assert agent.wait() == 0, agent.output()
        assert steps(str(where))[0] == 5
        assert not list(where.glob("**/.new-*"))
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def test_a_keeper_that_dies_is_replaced_and_told_everything_anew(run: Cluster, tmp_path: Path) -> None:
    agent = start(run, str(tmp_path / "saved"), steps=6, hold=3)
    reached(run, 3)
    os.kill(keeper_of(agent), signal.SIGKILL)
    eventually(lambda: "keeper of checkpoints ended" in agent.output())
    (run.said / "go").touch()
    assert agent.wait() == 0, agent.output()
    assert steps(str(tmp_path / "saved"))[0] == 6
    assert len(agent.events("keeper started")) == 2


def test_a_keeper_that_dies_last_may_have_lost_something(run: Cluster, tmp_path: Path) -> None:
    agent = start(run, str(tmp_path / "saved"), steps=3, hold=3)
    reached(run, 3)
    os.kill(keeper_of(agent), signal.SIGKILL)
    eventually(lambda: "keeper of checkpoints ended" in agent.output())
    (run.said / "go").touch()
    assert agent.wait() == 74, agent.output()
    assert "was killed (-9)" in agent.output() and agent.events("checkpoints lost")


@contextmanager
def own_s3(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    folder.mkdir()
    with moto_server(folder, free_ports(1)[0]) as server:
        make_bucket(server)
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        yield server


def test_an_agent_that_dies_leaves_a_keeper_that_writes_and_ends(
    run: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = f"s3://{BUCKET}/x"
    with own_s3(tmp_path / "s3", monkeypatch) as server:
        agent = start(run, where, steps=4, hold=3)
        eventually(lambda: steps(where)[:1] == [3])
        os.kill(server.pid, signal.SIGSTOP)  # so that nothing more is written before the agent is dead
        (run.said / "go").touch()
        reached(run, 4)
        keeper = keeper_of(agent)
        agent.kill()
        assert alive(keeper)
        os.kill(server.pid, signal.SIGCONT)
        eventually(lambda: not alive(keeper), within=60)
        assert steps(where)[0] == 4
        eventually(lambda: not run.descendants())


def test_memory_serves_while_s3_does_not_answer(run: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = f"s3://{BUCKET}/x"
    with own_s3(tmp_path / "s3", monkeypatch) as server:
        agent = start(run, where, steps=6, hold=3, kill={"0": 4})
        eventually(lambda: steps(where)[:1] == [3])
        os.kill(server.pid, signal.SIGSTOP)
        (run.said / "go").touch()
        reached(run, 6)
        eventually(lambda: "rank 0 from 4" in agent.output() and "is not needed" in agent.output())
        os.kill(server.pid, signal.SIGCONT)
        assert agent.wait() == 0, agent.output()
        assert steps(where) == [6, 5, 4], "that which was in memory only, too"


def test_saves_wait_for_a_storage_that_is_slower_than_they_are(
    run: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = f"s3://{BUCKET}/x"
    with own_s3(tmp_path / "s3", monkeypatch) as server:
        agent = start(run, where, steps=9, hold=1)
        eventually(lambda: steps(where)[:1] == [1])
        os.kill(server.pid, signal.SIGSTOP)
        (run.said / "go").touch()
        eventually(lambda: "saves come faster than they can be written" in agent.output())
        assert not (run.said / "saved-9").exists()
        os.kill(server.pid, signal.SIGCONT)
        assert agent.wait() == 0, agent.output()
        assert steps(where)[:3] == [9, 8, 7], "and none was left out"


def test_a_node_that_leaves_saves_first(run: Cluster, tmp_path: Path) -> None:
    agent = start(run, str(tmp_path / "saved"), steps=5, hold=5, notice=True)
    reached(run, 5)
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 143, agent.output()
    assert steps(str(tmp_path / "saved")) == [5]


def test_half_a_checkpoint_is_never_the_newest(run: Cluster, tmp_path: Path) -> None:
    where = tmp_path / "saved"
    agent = start(run, str(where), steps=2, hold=1, size=20_000_000)
    eventually(lambda: steps(str(where)) == [1], within=60)
    (run.said / "go").touch()
    keeper = keeper_of(agent)
    eventually(lambda: len(list(where.glob("step_*2-*/.new-*"))) == 1, within=60)
    agent.signal(signal.SIGSTOP)  # so that nobody starts another keeper
    os.kill(keeper, signal.SIGKILL)
    agent.kill()
    assert steps(str(where)) == [1]
    again = start(run, str(where), steps=2, size=20_000_000)
    assert again.wait() == 0, again.output()
    assert "rank 0 from 1" in again.output()
    assert steps(str(where)) == [2, 1] and not list(where.glob("**/.new-*")), "what was left of it is gone"


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Processes that are a round of a run, and do what they are told on their standard input."""
    program = (
        "import sys; from lattice.checkpoint import Checkpointer\n"
        "c = Checkpointer(sys.argv[1])\n"
        "for line in sys.stdin:\n"
        "    try: print(repr(eval(line)), flush=True)\n"
        "    except Exception as error: print(repr(error), flush=True)\n"
    )
    with ExitStack() as stack:

        def make(where: str, round: int) -> subprocess.Popen[str]:
            environ = {**os.environ, **clean_environment(), "LATTICE_RUN_ID": "run", "LATTICE_ROUND": str(round)}
            errors = stack.enter_context((tmp_path / f"errors-{round}").open("w"))
            process = subprocess.Popen(
                [sys.executable, "-c", program, where],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            stack.callback(process.communicate, timeout=patience(60))
            return process

        yield make


def ask(process: subprocess.Popen[str], question: str) -> str:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(question + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.mark.parametrize("where", quick_and_long(["folder"], ["s3"]), indirect=True)
def test_a_round_that_was_cut_off_adds_nothing_once_another_has_begun(
    where: str, writers: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    old = writers(where, 1)
    assert ask(old, "c.restore('new')") == "('new', 0)"
    assert ask(old, "c.save(5, 'five'), c.wait()") == "(True, True)"
    new = writers(where, 2)
    assert ask(new, "c.restore('new')") == "('five', 5)"
    assert ask(old, "c.save(6, 'of the round that is over'), c.wait()") == "(True, True)"
    assert steps(where) == [5]
    assert "of step 6 was not added" in (tmp_path / "errors-1").read_text()
    assert "round 2 of run 'run' has taken over" in (tmp_path / "errors-1").read_text()
    assert ask(new, "c.save(6, 'six'), c.wait()") == "(True, True)"
    assert steps(where) == [6, 5]
    assert "TakenOver" in ask(old, "c.restore(None)")
    late = writers(where, 1)
    assert ask(late, "c.save(7, 'without having looked'), c.wait()") == "(True, True)"
    assert steps(where) == [6, 5]


def test_a_keeper_that_slept_finds_out_that_it_was_overtaken(
    where: str, writers: Callable[..., subprocess.Popen[str]]
) -> None:
    old = writers(where, 1)
    assert ask(old, "c.restore('new')") == "('new', 0)"
    assert ask(old, "c.save(5, 'five'), c.wait()") == "(True, True)"
    keeper = int(ask(old, "__import__('lattice.checkpoint.client').checkpoint.client._own[0][2].pid"))
    os.kill(keeper, signal.SIGSTOP)
    assert ask(old, "c.save(6, 'six')") == "True"
    new = writers(where, 2)
    assert ask(new, "c.restore('new')") == "('five', 5)"
    os.kill(keeper, signal.SIGCONT)
    assert ask(old, "c.wait()") == "True"
    assert steps(where) == [5]


def test_a_keeper_of_a_script_that_dies_is_replaced(
    writers: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    where, pid = str(tmp_path / "saved"), "__import__('lattice.checkpoint.client').checkpoint.client._own[0][2].pid"
    writer = writers(where, 1)
    assert ask(writer, "c.restore('new'), c.save(5, 'five'), c.wait()") == "(('new', 0), True, True)"
    os.kill(int(ask(writer, pid)), signal.SIGKILL)
    assert ask(writer, "c.save(6, 'six'), c.wait()") == "(True, True)"
    assert steps(where) == [6, 5]
    os.kill(int(ask(writer, pid)), signal.SIGKILL)
    writer.communicate(timeout=patience(60))
    assert writer.returncode == 74, "nobody knows whether it had written everything"
    assert "A CHECKPOINT MAY BE LOST" in (tmp_path / "errors-1").read_text()


@pytest.mark.parametrize("damage", quick_and_long(["changed"], ["shorter", "missing"]))
def test_the_one_before_it_is_taken_if_the_newest_is_damaged(damage: str, run: Cluster, tmp_path: Path) -> None:
    where = tmp_path / "saved"
    first = start(run, str(where), steps=3)
    assert first.wait() == 0, first.output()
    for number, left in ((3, 2), (2, 1)):
        (file,) = where.glob(f"step_*{number}-*/state.safetensors")
        data = file.read_bytes()
        if damage == "missing":
            file.unlink()
        else:
            file.write_bytes(data[:-1] if damage == "shorter" else data[:-1] + b"x")
        again = start(run, str(where), steps=left)
        assert again.wait() == 0, again.output()
        assert f"THE CHECKPOINT OF STEP {number} CANNOT BE USED" in again.output()
        assert f"rank 0 from {left}" in again.output()
    (file,) = where.glob("step_*1-*/state.json")
    file.write_text("{}")
    again = start(run, str(where), "--max_restarts", "0", steps=3)
    assert again.wait() == 1
    assert "none of the 3 checkpoints at" in again.output() and "rank 0 from" not in again.output()


def test_all_ranks_take_what_rank_0_took(run: Cluster, tmp_path: Path) -> None:
    options = "--nproc_per_node", "3"
    assert start(run, str(tmp_path / "saved"), *options, steps=4).wait() == 0
    again = start(run, str(tmp_path / "saved"), *options, steps=6)
    assert again.wait() == 0, again.output()
    assert [f"rank {rank} from 4" in again.output() for rank in range(3)] == [True] * 3
    assert steps(str(tmp_path / "saved"))[0] == 6


def test_an_id_that_is_used_again_is_another_run(run: Cluster, tmp_path: Path) -> None:
    where, options = str(tmp_path / "saved"), ("--rdzv_id", "same")
    first = start(run, where, *options, steps=4, kill={"0": 2})
    assert first.wait() == 0, first.output()
    again = start(run, where, *options, "--nproc_per_node", "2", "--max_restarts", "0", steps=6)
    assert again.wait() == 0, again.output()
    assert [f"rank {rank} from 4" in again.output() for rank in range(2)] == [True] * 2
    assert steps(where)[0] == 6


def test_a_save_that_nobody_took_says_so(tmp_path: Path) -> None:
    code = "import sys; from lattice.checkpoint import Checkpointer; print(Checkpointer(sys.argv[1]).save(1, 'state'))"
    environ = {**clean_environment(), "LATTICE_KEEPER": "nobody-listens-here"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert "CHECKPOINT OF STEP 1 NOT TAKEN" in done.stderr
