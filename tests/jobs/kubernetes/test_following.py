"""Lines of logs that are asked for again from the second of the last one on, each given once."""

from __future__ import annotations

from unittest.mock import Mock

from lattice.jobs.kubernetes.client import Client, KubernetesFailed, Stream
from lattice.jobs.kubernetes.following import Follower, Lines, of_rank


def test_each_line_once() -> None:
    lines = Lines()
    log = [b"2026-01-01T00:00:01.1Z one", b"2026-01-01T00:00:01.2Z two", b"2026-01-01T00:00:01.2Z two", b"no time"]
    assert [lines.new(line) for line in log] == [b"one", b"two", b"two", b"no time"]
    assert lines.since == "2026-01-01T00:00:01.2Z"
    lines.begin()
    again = [*log[:3], b"2026-01-01T00:00:01.2Z three", b"2026-01-01T00:00:02Z "]
    assert [lines.new(line) for line in again] == [None, None, None, b"three", b""]


def test_a_workers_own_lines() -> None:
    assert of_rank(b"[rank 1 try-1] \xff two\n", 1) == b"\xff two\n"
    assert of_rank(b"[rank 12 try-1] two\n", 1) is None
    assert of_rank(b"lattice: hello\n", 1) is None
    assert of_rank(b"lattice: hello\n", None) == b"lattice: hello\n"


def test_a_pod_that_is_not_there_any_more_is_missed() -> None:
    where = ("team", "try-0", "node")
    stream = Mock(Stream, chunks=Mock(return_value=[b"2026-01-01T00:00:01Z one\n"]))
    for answer, lines, missed in (
        (KubernetesFailed("not found", 404), [], True),
        (KubernetesFailed("waiting to start", 400), [], False),
        (stream, [b"one\n"], False),
    ):
        follower = Follower(Mock(Client, log=Mock(side_effect=[answer])), where, lambda: True)
        assert (list(follower.read(follow=False)), follower.missed) == (lines, missed)
