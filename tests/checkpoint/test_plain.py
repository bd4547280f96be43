from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lattice.checkpoint import plain
from lattice.checkpoint.memory import PAGE, Arena, Kept
from lattice.errors import UsageError


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena(1)
    yield made
    made.close()


def through(state: Any) -> Any:
    """Save a state, and load it from what another process would see."""
    arena = Arena(1)
    try:
        plain.save(state, arena)
        kept = Kept(os.dup(arena.descriptor), arena.seal())
        try:
            return plain.load(lambda name: kept.files[name])
        finally:
            kept.close()
    finally:
        arena.close()


leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.binary(max_size=5)
)
states = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers() | st.booleans(), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(states)
def test_any_plain_state_comes_back_as_it_was(state: Any) -> None:
    found = through(state)
    assert found == state and repr(found) == repr(state)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6.0).reshape(2, 3),
        np.arange(6, dtype=np.int32)[::2],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.zeros((0, 3)),
        np.array(3.5),
        np.array([True, False]),
        np.array([1 + 2j]),
        np.array(["ab", "c"]),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.arange(3, dtype=">i4"),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
    ],
)
def test_arrays_of_every_kind(value: np.ndarray[Any, Any]) -> None:
    found = through({"x": value})["x"]
    assert found.dtype == value.dtype and found.shape == value.shape
    assert np.array_equal(found, value) and found.flags.writeable


def test_a_scalar_stays_one() -> None:
    found = through([np.float32(1.5), np.int64(2)])
    assert found == [1.5, 2] and [type(each) for each in found] == [np.float32, np.int64]
    assert np.isnan(through(float("nan"))) and through(float("-inf")) == float("-inf")


def test_what_cannot_be_saved_is_named(arena: Arena) -> None:
    for state, where in (({"a": [1, object()]}, "a.1"), ({"f": np.array([object()])}, "f"), (object(), "the top")):
        with pytest.raises(UsageError, match=f"at {where}, which cannot be saved"):
            plain.save(state, arena)


def test_arrays_lie_in_a_file_of_a_known_format(arena: Arena) -> None:
    plain.save({"weights": np.arange(3, dtype=np.float32), "blob": b"abc"}, arena)
    offset, length = arena.seal()
    kept = Kept(os.dup(arena.descriptor), (offset, length))
    raw = bytes(kept.files["state.safetensors"])
    kept.close()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    assert header["weights"] == {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}
    assert header["blob"] == {"dtype": "U8", "shape": [3], "data_offsets": [12, 15]}
    assert np.frombuffer(raw[8 + size :][:12], np.float32).tolist() == [0, 1, 2]


def test_memory_grows_when_more_is_written_than_was_thought(arena: Arena) -> None:
    arena.begin("one")
    for _ in range(3):
        arena.write(b"x" * PAGE)
    arena.begin("two")
    arena.write(b"y")
    kept = Kept(os.dup(arena.descriptor), arena.seal())
    assert {name: len(data) for name, data in kept.files.items()} == {"one": 3 * PAGE, "two": 1}
    assert bytes(kept.files["two"]) == b"y"
    kept.close()
    arena.clear()
    arena.begin("again")
    arena.write(b"z")
    kept = Kept(os.dup(arena.descriptor), arena.seal())
    assert list(kept.files) == ["again"]
    kept.close()
