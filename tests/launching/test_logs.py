"""Logs: every line to the handlers that want it, with any bytes, and ``logging`` records of workers as they were."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import pytest

from lattice.launching.handlers import (
    Files,
    Origin,
    add_filter_to_handler,
    default_handlers,
    file_handler,
    log_folder,
    stream_handler,
)
from lattice.launching.logs import Logs
from tests.launching.functions import log_a_little, log_in_its_own_way
from tests.launching.workers import one

FIRST, SECOND, AGENT = Origin("node1", 0), Origin("node1", 1), Origin("node1", None)
OTHER = Origin("node2", 0, agent=1)


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def defaults(tmp_path: Path) -> Any:
    logs = Logs(default_handlers({"LATTICE_LOG_DIR": str(tmp_path / "logs")}))
    yield logs
    logs.close(handlers=True)


def files(tmp_path: Path) -> dict[str, bytes]:
    return {path.name.split("-", 2)[2]: path.read_bytes() for path in (tmp_path / "logs").iterdir()}


def test_the_first_worker_is_printed_and_all_are_filed_with_any_bytes(
    defaults: Logs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strange = bytes(range(256)).replace(b"\n", b"")
    defaults.feed(FIRST, "stdout", b"one\ntw")
    defaults.feed(FIRST, "stderr", b"bad \xff\n")
    defaults.feed(FIRST, "stdout", b"o\nlast")
    defaults.feed(SECOND, "stdout", strange + b"\n")
    defaults.feed(AGENT, "stderr", b"agent\n")
    defaults.feed(OTHER, "stdout", b"other\n")
    defaults.end(FIRST)
    assert capsys.readouterr().out.splitlines() == [
        "[node1:0] one",
        "[node1:0] bad \\xff",
        "[node1:0] two",
        "[node1] agent",
        "[node1:0] last",
    ]
    assert [(line.stream, line.text) for line in defaults.tail(FIRST)] == [
        ("stdout", "one"),
        ("stderr", "bad \\xff"),
        ("stdout", "two"),
        ("stdout", "last"),
    ]
    assert files(tmp_path) == {
        "node1[0].log": b"one\nbad \xff\ntwo\nlast\n",
        "node1[1].log": strange + b"\n",
        "node1.log": b"agent\n",
        "node2[0].log": b"other\n",
    }


def test_a_host_with_two_agents_has_files_of_both(defaults: Logs, tmp_path: Path) -> None:
    defaults.feed(Origin("a/b", 0, agent=0), "stdout", b"one\n")
    defaults.feed(Origin("a/b", 0, agent=1), "stdout", b"two\n")
    assert files(tmp_path) == {"a_b[0].log": b"one\n", "a_b#1[0].log": b"two\n"}


def test_the_folder_may_be_named_in_two_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert log_folder({}) == f"{tmp_path}/lattice_logs"
    assert log_folder({"TORCHRUNX_LOG_DIR": "there"}) == f"{tmp_path}/there"
    assert log_folder({"TORCHRUNX_LOG_DIR": "/there", "LATTICE_LOG_DIR": "/here"}) == "/here"


def test_handlers_of_users_get_records_of_whom_they_asked_for(tmp_path: Path, capsys: Any) -> None:
    text = io.StringIO()
    kept, errors = Kept(), Kept()
    add_filter_to_handler(errors, "node1", 1, logging.ERROR)
    handlers = [
        stream_handler("node1", 0, text),
        file_handler("node2", 0, tmp_path / "deep" / "file.log"),
        stream_handler("node1", None),
        kept,
        errors,
    ]
    logs = Logs(handlers)
    for origin in (FIRST, SECOND, AGENT, OTHER):
        logs.feed(origin, "stdout", b"out \xff %s of " + str(origin).encode() + b"\n")
        logs.feed(origin, "stderr", b"err\n")
    logs.close(handlers=True)
    assert [line.split(":", 3)[3] for line in text.getvalue().splitlines()] == [
        "INFO:node1[0]: out \\xff %s of node1[0]",
        "ERROR:node1[0]: err",
    ]
    assert (tmp_path / "deep" / "file.log").read_text().endswith("ERROR:node2[0]: err\n")
    assert "ERROR:node1: err\n" in capsys.readouterr().out
    assert len(kept.records) == 8
    assert [(one.getMessage(), one.hostname, one.local_rank) for one in errors.records] == [("err", "node1", 1)]


def test_a_handler_that_fails_fails_alone(capsys: Any) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("no")

    kept = Kept()
    logs = Logs([Broken(), kept])
    logs.feed(FIRST, "stdout", b"one\ntwo\n")
    logs.close(handlers=True)
    assert [one.getMessage() for one in kept.records] == ["one", "two"]
    assert capsys.readouterr().err.count("fails: OSError('no')") == 1


def test_nothing_is_lost_of_many_lines_and_very_long_ones(defaults: Logs, tmp_path: Path) -> None:
    kept = Kept()
    logs = Logs([kept])
    many = b"".join(b"%d\n" % number for number in range(20_000)) + b"x" * (3 << 20)
    for start in range(0, len(many), 65_521):
        for each in (defaults, logs):
            each.feed(SECOND, "stdout", many[start : start + 65_521])
    defaults.end(SECOND)
    logs.close(handlers=True)
    assert files(tmp_path)["node1[1].log"].replace(b"\n", b"") == many.replace(b"\n", b"")
    assert [one.getMessage() for one in kept.records[:20_000]] == [str(number) for number in range(20_000)]
    assert sum(len(one.getMessage()) for one in kept.records[20_000:]) == 3 << 20


def test_records_of_a_worker_arrive_with_all_they_knew() -> None:
    ended = one(log_a_little)
    assert ended.value() is None
    assert ended.stderr == b""
    kept = Kept()
    logs = Logs([kept])
    logs.feed(FIRST, "records", ended.records + b"no json\n")
    logs.close(handlers=True)
    info, failure, broken = kept.records
    assert (info.levelname, info.name, info.getMessage()) == ("INFO", "mine", "loss 0.5 \udcff")
    assert (info.hostname, info.local_rank, info.step) == ("node1", 0, "{3}")
    assert info.funcName == "log_a_little"
    assert failure.levelname == "ERROR"
    assert "ZeroDivisionError" in logging.Formatter().format(failure)
    assert broken.getMessage() == "no json"


def test_a_worker_may_configure_logging_itself_and_nothing_comes_twice() -> None:
    ended = one(log_in_its_own_way)
    assert ended.value() is None
    assert ended.stderr == b"own DEBUG fine\nown INFO module\n"
    assert ended.records == b""


def test_files_that_cannot_be_written_are_said_once_and_not_named(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").touch()
    files = Files(str(tmp_path / "file" / "logs"))
    for rank in (0, 1):
        files.lines(Origin("node", rank), b"line\n")
    assert capsys.readouterr().err.count("LOGS ARE NOT WRITTEN") == 1
    assert files.pattern == ""
    files.close()
