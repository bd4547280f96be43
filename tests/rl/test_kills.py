"""
Real processes, killed at random: each trajectory is trained on once, and nobody has to be helped.

``LATTICE_TEST_KILL_SEEDS`` is the number of random stories; without it, `make test` tries one and `make lab` two more.
To look for a rare race, run many, some of them at the same time:
``LATTICE_TEST_KILL_SEEDS=200 pytest tests/rl/test_kills.py -k random -n 5``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lattice.process.guard import read_processes
from tests.agents import alive, command_of
from tests.checkpoint.looking import steps
from tests.etcd_server import free_ports
from tests.rl import race
from tests.tiers import quick_and_long
from tests.waiting import eventually, pass_time, patience

pytestmark = pytest.mark.timeout(120)
ASKED_FOR = int(os.environ.get("LATTICE_TEST_KILL_SEEDS", "0"))
SEEDS = list(range(1, ASKED_FOR + 1)) if ASKED_FOR else quick_and_long([1], [2, 3])


@contextmanager
def started(role: str, **settings: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = race.start(role, **settings)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ended(process: subprocess.Popen[bytes], within: float = 30.0) -> int:
    eventually(lambda: process.poll() is not None, within=within)
    return process.returncode


def saved(folder: Path) -> bool:
    """Tell whether a checkpoint is in the storage: no agent is here, whose keeper would hand on what is in memory."""
    return bool(steps(str(folder / "state")))


def numbers(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Give the numbers of each worker's trajectories, as they were taken in."""
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["worker"], []).append(row["number"])
    return found


def check(folder: Path) -> dict[str, Any]:
    """Nothing twice, no gaps: neither in what was taken in nor in what was trained on."""
    told: dict[str, Any] = json.loads((folder / "seen.json").read_text())
    rows = race.rewards(folder)
    for worker, taken in numbers(rows).items():
        assert taken == list(range(1, len(taken) + 1)), f"worker {worker}: {taken}"
    seen = Counter(map(tuple, told["seen"]))
    assert set(seen.values()) == {1}, "trained on twice"
    by_simulator: dict[int, set[int]] = {}
    for simulator, episode in seen:
        by_simulator.setdefault(simulator, set()).add(episode)
    for simulator, episodes in by_simulator.items():
        assert episodes == set(range(1, len(episodes) + 1)), f"simulator {simulator} lost one"
    assert 0 <= len(rows) - len(seen) <= 4, "what was taken in and not trained on is in the queue"
    return told


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_under_random_kills_nothing_is_lost_or_trained_on_twice(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    (port,) = free_ports(1)
    learner = {"port": port, "folder": str(tmp_path), "updates": 1_000_000}
    worker = {"port": port, "folder": str(tmp_path)}
    victims = ["learner", "worker 0"]  # at least one of each, whatever the seed
    victims += [chance.choice(["learner", "learner", "learner", "worker 0", "worker 1", "worker 2"]) for _ in range(10)]
    chance.shuffle(victims)
    with ExitStack() as stack:
        running = {
            "learner": stack.enter_context(started("learner", **learner)),
            **{f"worker {n}": stack.enter_context(started("worker", **worker)) for n in range(3)},
        }

        def replace(name: str) -> None:
            running[name].kill()
            running[name].wait()
            role, settings = ("learner", learner) if name == "learner" else ("worker", worker)
            running[name] = stack.enter_context(started(role, **settings))

        eventually(lambda: race.metrics(tmp_path), within=60)
        for name in victims:
            pass_time(chance.uniform(0.3, 1.2))
            assert running[name].poll() is None, f"{name} ended by itself"
            replace(name)
        # However slow the machine is, there is a checkpoint to come back to, and some way to go to the goal.
        eventually(lambda: saved(tmp_path), within=90)
        workers = [process for name, process in running.items() if name != "learner"]
        eventually(lambda: all((tmp_path / f"playing-{process.pid}").exists() for process in workers), within=90)
        goal = learner["updates"] = race.metrics(tmp_path)[-1]["updates"] + 300
        replace("learner")
        assert ended(running["learner"], within=90) == 0
        for process in workers:
            process.terminate()  # one that had not reached the learner before it ended would wait for the next
        assert [ended(process) for process in workers] == [0, 0, 0]
    told = check(tmp_path)
    assert told["finished"] and told["updates"] >= goal
    learners = victims.count("learner") + 2
    assert 2 <= told["lives"] <= learners, "one that ended before its first checkpoint does not count"


def keeper_of(learner: subprocess.Popen[bytes]) -> int:
    """Give the process that writes a learner's checkpoints."""
    mine = [process.pid for process in read_processes() if process.parent == learner.pid]
    (keeper,) = [pid for pid in mine if "lattice.checkpoint.keeper" in command_of(pid)]
    return keeper


def test_what_only_a_refused_checkpoint_had_comes_again(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = {"port": port, "folder": str(tmp_path)}
    state, away = tmp_path / "state", tmp_path / "away"
    with ExitStack() as stack:
        worker = stack.enter_context(started("worker", **settings))
        first = stack.enter_context(started("learner", **settings, updates=1_000_000))
        eventually(lambda: saved(tmp_path) and race.metrics(tmp_path))
        keeper = keeper_of(first)
        state.rename(away)  # the storage fails: the keeper holds the newest checkpoint, and tries again
        state.symlink_to(tmp_path / "nowhere")
        before = race.metrics(tmp_path)[-1]["seconds"]
        eventually(lambda: race.metrics(tmp_path)[-1]["seconds"] > before + 1.5)  # five times as long as between saves
        first.kill()
        first.wait()
        os.kill(keeper, signal.SIGSTOP)  # the machine has no time for it until the next learner is there
        try:
            state.unlink()
            away.rename(state)
            goal = race.metrics(tmp_path)[-1]["updates"] + 300
            second = stack.enter_context(started("learner", **settings, updates=goal))
            eventually(lambda: race.metrics(tmp_path)[-1]["life"] == 2)
        finally:
            os.kill(keeper, signal.SIGCONT)  # the next learner has opened the log, which refuses what comes now
        assert ended(second, within=60) == ended(worker) == 0
        eventually(lambda: not alive(keeper), within=60)  # it may pause for 30 s before it tries again
    assert check(tmp_path)["lives"] == 2


def test_workers_wait_for_a_learner_that_is_away_and_none_exits(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    learner = {"port": port, "folder": str(tmp_path), "updates": 100}
    with ExitStack() as stack:
        workers = [stack.enter_context(started("worker", port=port, folder=str(tmp_path))) for _ in range(2)]
        first = stack.enter_context(started("learner", **learner))
        eventually(lambda: saved(tmp_path))
        first.kill()
        first.wait()
        pass_time(3.0)  # longer than the patience of workers
        assert [worker.poll() for worker in workers] == [None, None]
        assert ended(stack.enter_context(started("learner", **learner))) == 0
        assert [ended(worker) for worker in workers] == [0, 0]
    assert check(tmp_path)["lives"] == 2


def test_a_learner_that_comes_back_has_its_buffer_and_counters(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    learner = {"port": port, "folder": str(tmp_path), "updates": 10_000}
    with ExitStack() as stack:
        stack.enter_context(started("worker", port=port, folder=str(tmp_path)))
        first = stack.enter_context(started("learner", **learner))
        before = eventually(lambda: [row for row in race.metrics(tmp_path) if row["updates"] > 20])[-1]
        eventually(lambda: saved(tmp_path))
        files = sorted((tmp_path / "rewards").glob("[0-9]*.jsonl"))
        first.kill()
        first.wait()
        # Nobody plays now: what the next one has, it has from its checkpoint.
        second = stack.enter_context(started("learner", **{**learner, "port": free_ports(1)[0]}))
        after = eventually(lambda: [row for row in race.metrics(tmp_path) if row["life"] == 2])[0]
        assert after["updates"] >= before["updates"] - 200
        assert 0 < after["updates"] * 2 <= after["episodes"] <= after["updates"] * 2 + 4
        assert after["episodes"] == after["taken"] >= len(files)
        second.send_signal(signal.SIGTERM)
        assert ended(second) == 0
    told = json.loads((tmp_path / "seen.json").read_text())
    assert (told["finished"], told["lives"], len(told["seen"])) == (False, 2, after["updates"] * 2)


def test_workers_join_and_leave_while_the_learner_goes_on(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = {"port": port, "folder": str(tmp_path)}
    with ExitStack() as stack:
        learner = stack.enter_context(started("learner", **settings, updates=100_000))
        one = stack.enter_context(started("worker", **settings))
        eventually(lambda: race.metrics(tmp_path)[-1]["workers"] == 1 if race.metrics(tmp_path) else False)
        two = stack.enter_context(started("worker", **settings))
        eventually(lambda: race.metrics(tmp_path)[-1]["workers"] == 2)
        one.send_signal(signal.SIGTERM)
        assert ended(one) == 0
        eventually(lambda: race.metrics(tmp_path)[-1]["workers"] == 1)
        updates = race.metrics(tmp_path)[-1]["updates"]
        eventually(lambda: race.metrics(tmp_path)[-1]["updates"] > updates)
        learner.send_signal(signal.SIGTERM)
        assert ended(learner) == 0
        assert two.poll() is None, "the goal is not reached: it waits for the next learner"
        two.send_signal(signal.SIGTERM)
        assert ended(two) == 0
    reason, untaken = json.loads((tmp_path / f"worked-{one.pid}.json").read_text())
    assert (reason, untaken) == ("asked to stop", 0), "what was finished was handed over"
    check(tmp_path)


def test_a_worker_without_room_gets_a_checkpoint(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with (
        started("worker", port=port, folder=str(tmp_path), limit=6) as worker,
        started("learner", port=port, folder=str(tmp_path), updates=20, every=1000.0) as learner,
    ):
        began = time.monotonic()
        assert ended(learner) == ended(worker) == 0
        assert time.monotonic() - began < patience(60)
    assert len(list((tmp_path / "rewards").glob("[0-9]*.jsonl"))) >= 6, (
        "40 episodes, and at most 6 between two checkpoints"
    )
    check(tmp_path)
