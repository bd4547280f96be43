"""Simulators that crash, hang or give nonsense are started again, and counted; the worker lives."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lattice.rl.interfaces import Acted, Array, Arrays
from lattice.rl.rollout import Play
from lattice.rl.simulator import Backoff, Simulator
from lattice.rl.wire import Message
from tests.rl.race import Numbered, Same
from tests.waiting import eventually, patience


class Failing(Numbered):
    """Does something in its third step, the first time that it is played."""

    def __init__(self, once: Path, fail: Callable[[], Any]) -> None:
        super().__init__(0.0)
        self.once, self.fail = once, fail

    def reset(self, *, seed: int | None = None) -> tuple[Array, dict[str, Any]]:
        return super().reset(seed=seed)[0].astype(np.float32), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        found = super().step(action)
        if self.at == 3 and not self.once.exists():
            self.once.touch()
            failed = self.fail()
            if isinstance(failed, float):
                return found[0], failed, *found[2:]
            if failed is not None:
                return failed, *found[1:]
        return found


@contextmanager
def simulator(play: Play, **timeouts: float) -> Iterator[tuple[Simulator, list[str]]]:
    said: list[str] = []
    made = Simulator(play, timeouts.get("step", 20.0), timeouts.get("start", 20.0), said.append, Backoff(0.01, 0.05))
    try:
        yield made, said
    finally:
        made.close()


def played(one: Simulator, evaluate: dict[str, Any] | None = None) -> Message:
    """Have it play until something comes of it."""
    found: list[Message] = []

    def something() -> bool:
        found.extend(one.tick())
        if not found and not one.ordered and one.wants({}):
            one.go(7, {"updates": np.zeros(1)}, 1, evaluate)
        return bool(found)

    eventually(something)
    assert found[0].fields["version"] == 7
    return found[0]


FAULTS: list[tuple[str, str, Callable[[], Any]]] = [
    ("crash", "exit code 3", lambda: os._exit(3)),
    ("crash", "signal SIGKILL", lambda: os.kill(os.getpid(), signal.SIGKILL)),
    ("crash", "ZeroDivisionError", lambda: 1 / 0),
    ("hang", "did no step in 0.5s", lambda: time.sleep(1000)),
    ("hang", "did no step in 0.5s", lambda: os.kill(os.getpid(), signal.SIGSTOP)),
    ("nan", "reward has values", lambda: float("nan")),
    ("nan", "reward has values", lambda: float("inf")),
    ("nan", "observation has values", lambda: np.array([np.nan, 1.0], np.float32)),
]


@pytest.mark.parametrize(("kind", "text", "fail"), FAULTS, ids=range(len(FAULTS)))
def test_it_is_started_again_and_counted(tmp_path: Path, kind: str, text: str, fail: Callable[[], Any]) -> None:
    once = tmp_path / "once"
    with simulator(Play(lambda: Failing(once, fail), Same, 100, 0), step=0.5) as (one, said):
        message = played(one)
        assert once.exists()
        assert one.faults == {**dict.fromkeys(("crash", "hang", "nan"), 0), kind: 1}
        (line,) = said
        assert text in line and "started again" in line
        assert message.fields["steps"] == 5, "an episode of its own: the partial one is dropped"
        assert message.arrays["observation"][0, 1] == 1


def test_what_the_worker_closes_is_closed_although_a_simulator_lives() -> None:
    reading, writing = os.pipe()
    here, there = socket.socketpair()
    with simulator(Play(lambda: Numbered(0.0), Same, 100, 0)) as (one, _), here:
        played(one)
        os.close(writing)
        there.close()
        for end in (here.fileno(), reading):
            assert select.select([end], [], [], patience(10))[0], "the simulator keeps the other end open"
            assert os.read(end, 1) == b""
    os.close(reading)


BESIDE_GRPC = """
import grpc
from lattice.rl.rollout import Play
from tests.rl.race import Numbered, Same
from tests.rl.test_simulator import played, simulator

with grpc.insecure_channel("127.0.0.1:1") as channel:
    call = channel.unary_unary("/some/method")
    for _ in range(20):
        try:
            call(b"", timeout=5)
        except grpc.RpcError:
            pass  # refused; gRPC has threads from now on
        with simulator(Play(lambda: Numbered(0.0), Same, 100, 0)) as (one, said):
            played(one)
            assert not said, said
"""


def test_it_lives_beside_the_threads_of_another_library() -> None:
    """gRPC starts its threads again in a forked process, and aborts it if what they wait for was closed."""
    ended = subprocess.run(
        [sys.executable, "-c", BESIDE_GRPC], check=False, capture_output=True, text=True, timeout=patience(60)
    )
    assert ended.returncode == 0, ended.stderr


def test_one_that_never_starts_is_tried_with_longer_and_longer_pauses(tmp_path: Path) -> None:
    def broken() -> Any:
        raise RuntimeError("no licence")

    with simulator(Play(broken, Same, 100, 0)) as (one, said):
        eventually(lambda: one.tick() or one.faults["crash"] == 4)
    assert [line.rpartition(" in ")[2].split("s")[0] for line in said] == ["0.01", "0.02", "0.04", "0.05"]
    assert "no licence" in said[0]


def test_one_that_hangs_at_its_start_is_started_again() -> None:
    with simulator(Play(lambda: time.sleep(1000), Same, 100, 0), start=0.3) as (one, _):  # type: ignore[arg-type, return-value]
        eventually(lambda: one.tick() or one.faults["hang"] == 2)


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def environment() -> Any:
        pid.write_text(str(subprocess.Popen(["sleep", "1000"]).pid))
        time.sleep(1000)

    def ended() -> bool:
        try:
            return Path(f"/proc/{pid.read_text()}/stat").read_text().split()[2] == "Z"
        except FileNotFoundError:
            return True

    with simulator(Play(environment, Same, 100, 0), start=0.5) as (one, _):
        eventually(lambda: one.tick() or one.faults["hang"] == 1)
        eventually(ended)


def test_evaluation_has_its_own_environment_and_seeds() -> None:
    seeds: list[int | None] = []

    class Seeded(Numbered):
        def reset(self, *, seed: int | None = None) -> tuple[Array, dict[str, Any]]:
            seeds.append(seed)
            return super().reset(seed=seed)

        def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
            found = super().step(action)
            return found[0], float(sum(seed or 0 for seed in seeds)), *found[2:]

    with simulator(Play(lambda: Seeded(0.0), Same, 3, 7)) as (one, _):
        first = played(one)
        assert (first.fields["steps"], first.fields["episode"]) == (3, None), "cut, and goes on"
        judged = played(one, {"order": 5, "episodes": 2, "seed": 100})
        assert judged.fields["order"] == 5
        assert judged.fields["rewards"] == [(7 + 100) * 5, (7 + 100 + 101) * 5]
        rest = played(one)
        assert (rest.fields["steps"], rest.fields["episode"]["length"]) == (2, 5), "the same episode as before"
        assert rest.arrays["observation"][0, 1] == 1
        assert list(rest.arrays["terminated"]) == [False, True]


def test_orders_are_given_ahead_but_large_parameters_to_one_that_waits() -> None:
    large = {"updates": np.zeros(1), "large": np.zeros(1_000_000)}
    found: list[Message] = []
    with simulator(Play(lambda: Numbered(0.05), Same, 100, 0)) as (one, _):

        def ticked(condition: Callable[[], bool]) -> bool:
            found.extend(one.tick())
            return condition()

        eventually(lambda: ticked(lambda: one.wants({})))
        one.go(1, {"updates": np.zeros(1)})
        assert not one.wants(large)
        one.go(2, {})
        assert not one.wants({}), "two are enough"
        with pytest.raises(RuntimeError):
            one.go(3, {})
        eventually(lambda: ticked(lambda: not one.ordered))
        one.go(4, large)
        eventually(lambda: ticked(lambda: not one.ordered))
    seen = [(message.fields["version"], message.arrays["observation"][0, 1]) for message in found]
    assert seen == [(1, 1), (2, 2), (4, 3)]


def test_short_episodes_come_several_at_once_also_before_a_failure() -> None:
    found: list[Message] = []

    class Third(Numbered):
        def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
            if self.episode == 6:
                raise RuntimeError("the sixth")
            return super().step(action)

    with simulator(Play(lambda: Third(0.0), Same, 100, 0)) as (one, said):

        def ticked(condition: Callable[[], bool]) -> bool:
            found.extend(one.tick())
            return condition()

        eventually(lambda: ticked(lambda: one.wants({})))
        one.go(1, {"updates": np.zeros(1)}, 3)
        assert one.ordered == 3
        eventually(lambda: ticked(lambda: not one.ordered))
        assert len(found) <= 3

        def crashed() -> bool:
            found.extend(one.tick())
            if not one.ordered and one.wants({}) and not one.faults["crash"]:
                one.go(2, {}, 100)
            return one.faults["crash"] == 1

        eventually(crashed)
    assert "the sixth" in said[0]
    assert [message.arrays["observation"][0, 1] for message in found] == [1, 2, 3, 4, 5], "all that were finished"


def test_extras_of_a_policy_are_recorded() -> None:
    class Odds(Same):
        def act(self, observation: Array, explore: bool) -> Any:
            return Acted(np.float64(0.5), {"log_probability": -1.5})

    with simulator(Play(lambda: Numbered(0.0), Odds, 100, 0)) as (one, _):
        arrays: Arrays = played(one).arrays
    assert arrays["log_probability"].tolist() == [-1.5] * 5
    assert arrays["action"].dtype == np.float32


def test_one_that_fails_just_when_its_time_is_over_has_failed_once(tmp_path: Path) -> None:
    def late() -> None:
        time.sleep(2.5)
        raise ConnectionError("no answer of the simulator")

    with simulator(Play(lambda: Failing(tmp_path / "once", late), Same, 100, 1), step=2.0) as (one, said):
        eventually(lambda: one.tick() == [] and one.wants({}))
        one.go(7, {"updates": np.zeros(1)})
        eventually(lambda: one.tick() or (tmp_path / "once").exists())
        select.select([one.descriptor], [], [], 20.0)  # its last words are here, and its time was over before
        one.tick()
        assert (one.faults, len(said)) == ({"crash": 1, "hang": 0, "nan": 0}, 1), said
        assert played(one).fields["steps"] == 5


class Growing(Numbered):
    """Begins with whole numbers."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return [0, 0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return [0.5, float("nan")], *super().step(action)[1:]


class Clipped(Same):
    """Acts with a whole number when it is at the border, and then with a fraction."""

    def __init__(self) -> None:
        self.left = [2]

    def act(self, observation: Array, explore: bool) -> Any:
        return self.left.pop() if self.left else 0.7


@pytest.mark.parametrize(("environment", "policy"), [(Growing, Same), (lambda: Numbered(0.0), Clipped)])
def test_nothing_is_cut_to_whole_numbers(environment: Callable[[], Any], policy: Callable[[], Any]) -> None:
    with simulator(Play(environment, policy, 100, 1)) as (one, said):
        eventually(lambda: one.tick() == [] and one.wants({}))
        one.go(7, {"updates": np.zeros(1)})
        eventually(lambda: one.tick() or one.faults["crash"])
        assert "came after int64 values" in said[0], said
