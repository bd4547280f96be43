from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lattice.rl.messages import read_trajectory, trajectory_message
from lattice.rl.pipe import HEAD, LENGTH, Inflow
from lattice.rl.trajectory import Trajectory
from lattice.rl.wire import BadMessage, Frame, Message, decode, encode

ARRAYS = hnp.arrays(
    st.one_of(hnp.boolean_dtypes(), hnp.integer_dtypes(), hnp.floating_dtypes(), hnp.complex_number_dtypes()),
    hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
)


@given(st.dictionaries(st.text(max_size=5), ARRAYS, max_size=4))
def test_arrays_come_as_they_were(arrays: dict[str, Any]) -> None:
    got = decode([bytes(frame) for frame in encode(Message("x", {"a": [1, None, "b"]}, arrays))])
    assert (got.kind, dict(got.fields), list(got.arrays)) == ("x", {"a": [1, None, "b"]}, list(arrays))
    for name, array in arrays.items():
        np.testing.assert_array_equal(got.arrays[name], array)
        assert got.arrays[name].dtype == array.dtype.newbyteorder("<")


def test_an_array_that_is_not_in_one_piece_is_sent_all_the_same() -> None:
    array = np.arange(24).reshape(4, 6)[::2, ::-3].T
    got = decode([bytes(frame) for frame in encode(Message("x", {}, {"a": array}))])
    np.testing.assert_array_equal(got.arrays["a"], array)


def test_objects_are_not_sent() -> None:
    with pytest.raises(TypeError, match="only numbers"):
        encode(Message("x", {}, {"a": np.array([object()])}))


def header(**fields: Any) -> bytes:
    return json.dumps({"kind": "x", "arrays": [], **fields}).encode()


HOSTILE: list[list[bytes]] = [
    [],
    [b""],
    [b"\xff\xfe"],
    [b"[" * 100_000],
    [b"[]"],
    [b"{}"],
    [b"{" + b" " * (1 << 20) + b"}"],
    [pickle.dumps({"kind": "x"})],
    [header(kind=3)],
    [header(arrays="a")],
    [header(arrays=[["a", "<f4", [1]]])],
    [header(), b"1234"],
    [header(arrays=[["a", "<f4", [2]]]), b"1234"],
    [header(arrays=[["a", "<f4", [-1]]]), b"1234"],
    [header(arrays=[["a", "<f4", [1.0]]]), b"1234"],
    [header(arrays=[["a", "<f4", [True]]]), b"1234"],
    [header(arrays=[["a", "<f4", [1 << 62, 1 << 62]]]), b"1234"],
    [header(arrays=[["a", "<f4", [1] * 33]]), b"1234"],
    [header(arrays=[["a", "|O", [1]]]), b"12345678"],
    [header(arrays=[["a", "|O8", [1]]]), b"12345678"],
    [header(arrays=[["a", "<U1", [1]]]), b"1234"],
    [header(arrays=[["a", "<V4", [1]]]), b"1234"],
    [header(arrays=[["a", "<f3", [1]]]), b"123"],
    [header(arrays=[["a", "<M8", [1]]]), b"12345678"],
    [header(arrays=[["a", ">f4", [1]]]), b"1234"],
    [header(arrays=[["a", "f4,f4", [1]]]), b"12345678"],
    [header(arrays=[["a", "<f4"]]), b"1234"],
    [header(arrays=[[1, "<f4", [1]]]), b"1234"],
    [header(arrays=[["a", "<f4", [1]]] * 2), b"1234", b"1234"],
]


@pytest.mark.parametrize("frames", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_frames_are_refused(frames: list[bytes]) -> None:
    with pytest.raises(BadMessage):
        decode(frames)


@given(st.lists(st.binary(max_size=64), max_size=4))
def test_noise_is_refused(frames: list[bytes]) -> None:
    with pytest.raises(BadMessage):
        decode(frames)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=20))
def test_whatever_a_header_names_is_read_or_refused(listed: Any) -> None:
    for arrays in (listed, [listed], [["a", listed, [1]]], [["a", "<f4", listed]]):
        try:
            decode([json.dumps({"kind": "x", "arrays": arrays}).encode(), b"1234"])
        except BadMessage:
            pass


def steps(count: int = 3, **changed: Any) -> Trajectory:
    arrays = {"observation": np.zeros((count + 1, 2), np.float32), "reward": np.ones(count, np.float32)}
    return Trajectory("w", 1, 0, {**arrays, **changed}, count, {"reward": 3.0, "length": 3}, None, {"crash": 1})


def through(trajectory: Trajectory) -> Trajectory:
    frames: list[Frame] = [bytes(frame) for frame in encode(trajectory_message(trajectory))]
    return read_trajectory(decode(frames))


def test_a_trajectory_comes_as_it_was() -> None:
    sent = steps()
    got = through(sent)
    assert (got.worker, got.number, got.steps, got.episode, got.faults) == ("w", 1, 3, sent.episode, {"crash": 1})
    assert got.transitions()["next_observation"].shape == (3, 2)


def test_an_evaluation_comes_as_it_was() -> None:
    told = {"order": 4, "rewards": [1.0, 2.0], "lengths": [3, 4]}
    assert through(Trajectory("w", 1, 0, {}, 0, None, told)).evaluation == told


@pytest.mark.parametrize(
    "unfit",
    [
        Trajectory("", 1, 0, {}, 0),
        Trajectory("w", 0, 0, {}, 0),
        Trajectory("w", 1, 0, {}, 0),
        steps(reward=np.ones(4, np.float32)),
        steps(observation=np.zeros((3, 2), np.float32)),
        steps(reward=np.array([1, np.nan, 1], np.float32)),
        steps(observation=np.full((4, 2), np.inf, np.float32)),
        Trajectory("w", 1, 0, {}, 0, {"reward": float("nan"), "length": 3}),
        Trajectory("w", 1, 0, {}, 0, None, {"order": 1, "rewards": [], "lengths": []}),
        Trajectory("w", 1, 0, {}, 0, None, {"order": 1, "rewards": ["a"], "lengths": [1]}),
        Trajectory("w", 1, 0, {"a": np.zeros(1)}, 1, None, {"order": 1, "rewards": [1], "lengths": [1]}),
    ],
)
def test_what_nothing_can_be_learned_from_is_refused(unfit: Trajectory) -> None:
    with pytest.raises(BadMessage):
        through(unfit)


@given(st.integers(1, 50))
def test_messages_in_pieces_are_put_together(piece: int) -> None:
    frames = encode(Message("x", {"n": 1}, {"a": np.arange(5)}))
    one = HEAD.pack(len(frames)) + b"".join(LENGTH.pack(len(frame)) for frame in frames) + b"".join(frames)
    stream, inflow, got = one * 3, Inflow(), []
    for at in range(0, len(stream), piece):
        got += list(inflow.feed(stream[at : at + piece]))
    assert [list(message.arrays["a"]) for message in got] == [[0, 1, 2, 3, 4]] * 3


def test_a_stream_that_is_none_is_refused() -> None:
    with pytest.raises(BadMessage):
        list(Inflow().feed(b"\xff" * 100))
