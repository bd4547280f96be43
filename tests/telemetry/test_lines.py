from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lattice.telemetry.lines import LONGEST_LINE, Lines


def fed(*chunks: bytes, prefix: bytes = b"[0] ") -> bytes:
    lines = Lines(prefix)
    shown = [lines.feed(chunk) for chunk in chunks]
    shown.append(lines.flush())
    assert all(text.count(b"\n") == count for text, count in shown)
    return b"".join(text for text, _ in shown)


def test_whole_lines_get_a_prefix() -> None:
    assert fed(b"one\ntwo\n\nfour\n") == b"[0] one\n[0] two\n[0] \n[0] four\n"


def test_a_partial_line_waits_for_its_end_and_the_last_one_needs_none() -> None:
    lines = Lines(b"> ")
    assert lines.feed(b"lo") == (b"", 0)
    assert lines.feed(b"ss\nne") == (b"> loss\n", 1)
    assert lines.feed(b"xt") == (b"", 0)
    assert lines.flush() == (b"> next\n", 1)
    assert lines.flush() == (b"", 0)


def test_invalid_utf8_passes_untouched() -> None:
    assert fed(b"\xff\xfe\x00\n") == b"[0] \xff\xfe\x00\n"


def test_a_line_that_never_ends_is_shown_in_pieces() -> None:
    assert fed(*[b"x" * 50_000] * 4).replace(b"[0] ", b"").replace(b"\n", b"") == b"x" * 200_000


def test_windows_line_ends_are_line_ends() -> None:
    assert fed(b"a\r", b"\nb\r\n") == b"[0] a\n[0] b\n"


def test_a_progress_bar_is_shown_as_the_terminal_would_leave_it() -> None:
    bar = b"".join(b"\r%3d%%|" % percent for percent in range(101))
    assert fed(b"start\n" + bar + b"\ndone\n") == b"[0] start\n[0] 100%|\n[0] done\n"


def test_a_progress_bar_can_be_shown_on_its_way() -> None:
    lines = Lines(b"")
    assert not lines.has_progress
    lines.feed(b"\r 1%")
    lines.feed(b"\r 2%")
    assert lines.has_progress
    assert lines.progress() == (b" 2%\n", 1)
    assert lines.progress() == (b"", 0), "nothing new"
    lines.feed(b"\r 3%\n")
    assert not lines.has_progress


def test_a_progress_bar_that_never_ends_does_not_grow() -> None:
    lines = Lines(b"")
    shown = [lines.feed(b"\r%d of many" % step) for step in range(3 * LONGEST_LINE // 10)]
    assert not any(count for _, count in shown)
    assert lines.flush()[1] == 1


@given(st.lists(st.binary(max_size=20)), st.integers(1, 7))
def test_how_the_bytes_are_cut_makes_no_difference(parts: list[bytes], size: int) -> None:
    whole = b"".join(parts)
    pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
    assert fed(*pieces) == fed(whole)


@given(st.binary(max_size=200).filter(lambda text: b"\r" not in text))
def test_nothing_is_lost(text: bytes) -> None:
    assert fed(text, prefix=b"") == (text if text.endswith(b"\n") or not text else text + b"\n")
