from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lattice.core import addresses
from lattice.core.spec import NodeRange
from lattice.options import values
from lattice.options.option import Option
from lattice.options.table import OPTIONS

ACCEPTED: list[tuple[Callable[[str], object], str, object]] = [
    (values.node_range, "3", NodeRange(3, 3)),
    (values.node_range, "2:8", NodeRange(2, 8)),
    (values.workers, "8", 8),
    (values.workers, "gpu", "gpu"),
    (values.node_rank, "auto", None),
    (values.node_rank, "0", 0),
    (values.endpoints, "", ()),
    (values.endpoints, "etcd-server", (("etcd-server", None),)),
    (values.endpoints, "a:1, b,[::1]:2379", (("a", 1), ("b", None), ("::1", 2379))),
    (values.endpoints, "[fe80::1]", (("fe80::1", None),)),
    (values.endpoints, "::1", (("::1", None),)),
    (values.endpoints, "localhost:0", (("localhost", 0),)),
    (values.streams, "0", ()),
    (values.streams, "3", ((None, 3),)),
    (values.streams, "0:1,12:3,100:0", ((0, 1), (12, 3), (100, 0))),
    (values.ranks, "", None),
    (values.ranks, "0,1,12", frozenset({0, 1, 12})),
    (values.signals, "SIGTERM,usr1", (15, 10)),
    (values.pairs, "a=1, b = 2=3,", (("a", "1"), ("b", "2=3"))),
    (addresses.host, "[::1]", "::1"),
    (values.switch, "YES", True),
    (values.seconds(), "0.5", 0.5),
    (values.seconds(1, integral=True), "5", 5.0),
    (values.run_id, "job-7:a.b", "job-7:a.b"),
]

REFUSED: list[tuple[Callable[[str], object], list[str]]] = [
    (values.node_range, ["", "0", "0:2", "3:2", "1:", ":2", "1:2:3", "-1", "1.5", "two", "²", "1 2"]),
    (values.workers, ["", "0", "-1", "GPU", "tpu", "1.0"]),
    (values.node_rank, ["", "-1", "a"]),
    (
        values.endpoints,
        [",", "a,,b", "a:", "a:x", ":2379", "a:70000", "[::1", "[::1]2379", "http://a:1", "[a]:1", "a b:1"],
    ),
    (values.streams, ["", "4", "-1", "0:4", "a:1", "0:1,", "1,2", "0:1:2"]),
    (values.ranks, ["a", "0,", "-1", "0;1"]),
    (values.signals, ["SIGKILL", "STOP", "SIGCHLD", "15", "SIGFOO"]),
    (values.pairs, ["a", "=1", "a=", "a=1,b"]),
    (addresses.host, ["a b", "a/b", "http://a"]),
    (values.switch, ["2", "maybe"]),
    (values.seconds(), ["", "-1", "nan", "inf", "1e30", "ten"]),
    (values.seconds(1, integral=True), ["0", "0.5", "1.5"]),
    (values.run_id, ["", ".", "..", "a/b", "a b", "a\nb", "a\0b", "x" * 201]),
    (values.whole(1, 65535), ["0", "65536", "0x10", "1_0", "tcp://10.0.0.1:2379"]),
]


@pytest.mark.parametrize(("parse", "text", "value"), ACCEPTED)
def test_a_text_that_is_accepted_has_its_value(parse: Callable[[str], object], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(("parse", "text"), [(parse, text) for parse, texts in REFUSED for text in texts])
def test_a_text_that_is_not_accepted_is_a_value_error(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


@given(st.text(max_size=30), st.sampled_from(OPTIONS))
def test_no_text_raises_anything_but_a_value_error(text: str, option: Option[object]) -> None:
    try:
        option.parse(text)
    except ValueError:
        pass


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_node_ranges_round_trip(one: int, other: int) -> None:
    nodes = NodeRange(min(one, other), max(one, other))
    assert values.node_range(str(nodes)) == nodes
