"""The last lines of a launch, for whoever asks: bounded, in order, and honest about what is missing."""

from __future__ import annotations

import threading

from lattice.launching.handlers import Origin
from lattice.launching.kept import Kept, LogLine, LogLines

ONE, TWO, AGENT = Origin("a", 0), Origin("b", 1, agent=1), Origin("a", None)
RECORD = b'{"name": "mine", "levelno": 20, "levelname": "INFO", "msg": "told"}\n'


def everything(origin: Origin) -> bool:
    return True


def add(kept: Kept, origin: Origin, stream: str, whole: bytes) -> None:
    kept.add(origin, stream, whole, whole.count(b"\n"))


def read(kept: Kept, origin: Origin | None = None) -> tuple[list[str], int]:
    lines = LogLines(kept, lambda one: origin in (None, one), follow=False)
    return [line.text for line in lines], lines.dropped


def test_lines_are_tuples_that_say_whose_they_are() -> None:
    kept = Kept()
    add(kept, ONE, "stdout", b"x \xff\ny\n")
    add(kept, TWO, "stderr", b"z\n")
    add(kept, AGENT, "records", RECORD + b"no json\n")
    assert list(LogLines(kept, everything, follow=False)) == [
        ("a", 0, "stdout", "x \\xff"),
        LogLine("a", 0, "stdout", "y"),
        ("b", 1, "stderr", "z"),
        ("a", None, "logging", "INFO mine: told"),
        ("a", None, "logging", "no json"),
    ]
    assert read(kept, TWO) == (["z"], 0)


def test_what_is_let_go_is_counted_for_whom_it_concerns() -> None:
    kept = Kept(limit=2000)
    for number in range(100):
        add(kept, ONE if number % 2 else TWO, "stdout", b"%d\nand\n" % number)
    texts, dropped = read(kept)
    assert len(texts) + dropped == 200 and 0 < len(texts) <= 20
    assert texts[-2:] == ["99", "and"]
    texts, dropped = read(kept, ONE)
    assert len(texts) + dropped == 100


def test_of_more_than_fits_at_once_the_end_is_kept() -> None:
    kept = Kept(limit=1000)
    add(kept, ONE, "stdout", b"".join(b"%d\n" % number for number in range(10_000)))
    texts, dropped = read(kept)
    assert texts[-1] == "9999" and len(texts) + dropped == 10_000
    assert texts[0] == str(dropped)
    add(kept, ONE, "stdout", b"x" * 5000 + b"\n")
    assert read(kept) == (texts, dropped), "one that never fits is the next to be counted"
    add(kept, ONE, "stdout", b"y" * 900 + b"\n")
    assert read(kept) == (["y" * 900], 10_001)


def test_whoever_follows_gets_all_until_the_end() -> None:
    kept = Kept()
    found: list[str] = []
    lines = LogLines(kept, everything, follow=True)
    thread = threading.Thread(target=lambda: found.extend(line.text for line in lines))
    thread.start()
    for number in range(1000):
        add(kept, ONE, "stdout", b"%d\n" % number)
    kept.end()
    thread.join()
    assert found == [str(number) for number in range(1000)] and lines.dropped == 0


def test_whoever_follows_too_slowly_knows_what_was_missed() -> None:
    kept = Kept(limit=1000)
    lines = LogLines(kept, everything, follow=True)
    add(kept, ONE, "stdout", b"first\n")
    assert next(lines).text == "first"
    for number in range(100):
        add(kept, ONE, "stdout", b"%d\n" % number)
    add(kept, TWO, "stdout", b"x" * 900 + b"\n")
    kept.end()
    assert [line.hostname for line in lines] == ["b"]
    assert lines.dropped == 100
