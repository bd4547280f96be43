from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lattice.rl.buffers import OnPolicyQueue, ReplayBuffer
from lattice.rl.trajectory import Trajectory


def made(first: int, steps: int, number: int = 1) -> Trajectory:
    """Steps whose observations are numbers that follow each other."""
    observations = np.arange(first, first + steps + 1, dtype=np.float32)[:, None]
    return Trajectory("w", number, 0, {"observation": observations, "reward": np.ones(steps, np.float32)}, steps)


def held(buffer: ReplayBuffer) -> list[float]:
    state = buffer.state()
    return sorted(state["arrays"]["observation"][:, 0]) if state["length"] else []


@given(st.integers(1, 20), st.lists(st.integers(1, 30), max_size=10), st.integers(1, 30))
def test_the_newest_steps_stay_also_through_a_checkpoint(capacity: int, lengths: list[int], later: int) -> None:
    buffer, dumb = ReplayBuffer(capacity, 1), list[float]()
    for number, steps in enumerate(lengths):
        buffer.add(made(number * 100, steps))
        dumb += [float(one) for one in range(number * 100, number * 100 + steps)]
        assert held(buffer) == sorted(dumb[-capacity:])
        assert len(buffer) == min(len(dumb), capacity)
    again = ReplayBuffer(later, 1)
    again.restore(buffer.state())
    assert held(again) == sorted(dumb[-capacity:][-later:])
    again.add(made(5000, 2))
    assert held(again) == sorted([*dumb[-capacity:][-later:], 5000.0, 5001.0][-later:])


def test_batches_go_on_after_a_checkpoint_as_if_nothing_had_happened() -> None:
    buffer, again = ReplayBuffer(50, 8, seed=3), ReplayBuffer(50, 8, seed=4)
    buffer.add(made(0, 20))
    buffer.batch()
    again.restore(buffer.state())
    np.testing.assert_array_equal(again.batch()["observation"], buffer.batch()["observation"])


def test_a_transition_has_what_comes_next() -> None:
    buffer = ReplayBuffer(7, 7)
    for first in range(0, 500, 100):
        buffer.add(made(first, 3))
    batch = buffer.batch()
    np.testing.assert_array_equal(batch["next_observation"], batch["observation"] + 1)


def test_it_is_ready_when_it_is_warm() -> None:
    buffer = ReplayBuffer(10, 2, warm_up=5)
    buffer.add(made(0, 4))
    assert not buffer.ready
    buffer.add(made(0, 1))
    assert buffer.ready
    assert buffer.room > 1000


def test_other_shapes_are_refused_and_change_nothing() -> None:
    buffer = ReplayBuffer(10, 2)
    buffer.add(made(0, 4))
    before = held(buffer)
    other = Trajectory("w", 2, 0, {"observation": np.zeros((2, 5), np.float32), "reward": np.ones(1, np.float32)}, 1)
    with pytest.raises(ValueError, match="observation"):
        buffer.add(other)
    more = made(0, 1)
    with pytest.raises(ValueError, match="extra"):
        buffer.add(Trajectory("w", 2, 0, {**more.arrays, "extra": np.ones(1)}, 1))
    with pytest.raises(ValueError, match="earlier ones had"):
        buffer.add(Trajectory("w", 2, 0, {"observation": more.arrays["observation"]}, 1))
    assert held(buffer) == before


def test_a_queue_gives_each_trajectory_once_and_says_when_it_is_full() -> None:
    queue = OnPolicyQueue(2, capacity=3)
    queue.add(made(0, 3, 1))
    assert not queue.ready
    queue.add(made(100, 2, 2))
    queue.add(made(200, 1, 3))
    assert queue.room == 0
    again = OnPolicyQueue(2, capacity=3)
    again.restore(queue.state())
    batch = again.batch()
    assert list(batch["observation"][:, 0]) == [0, 1, 2, 100, 101]
    assert list(batch["first"]) == [0, 3]
    assert (len(again), again.ready, again.room) == (1, False, 2)


@pytest.mark.parametrize("wrong", [(4, 5, 0), (4, 0, 0), (4, 1, 5)])
def test_sizes_that_do_not_fit_are_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must fit"):
        ReplayBuffer(*wrong)


def test_a_queue_refuses_what_no_batch_could_be_made_of() -> None:
    queue = OnPolicyQueue(2)
    queue.add(made(0, 3, 1))
    other = made(100, 3, 2)
    strange = Trajectory("w", 2, 0, {**other.arrays, "log_probability": np.zeros(3, np.float32)}, 3)
    with pytest.raises(ValueError, match="log_probability"):
        queue.add(strange)
    again = OnPolicyQueue(2)
    again.restore(queue.state())
    with pytest.raises(ValueError, match="log_probability"):
        again.add(strange)
    again.add(other)
    assert again.ready
