from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lattice.core.causes import (
    headline,
    is_bind_failure,
    is_connection_error,
    last_traceback,
    missing_rank,
    recorded_error,
)

GLOO = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:53399: Connection reset "
    "by peer. This is typically caused by a remote worker hanging or bugs in the application."
)
IN_USE = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: "
    "29901, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
)


def stderr_of(program: str, tmp_path: Path) -> str:
    script = tmp_path / "train.py"
    script.write_text(program)
    return subprocess.run([sys.executable, script], check=False, capture_output=True, text=True).stderr


def traceback_of(error: str) -> str:
    return f'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    train()\n{error}\n'


@pytest.mark.parametrize(
    ("program", "last"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("try:\n  {}['a']\nexcept KeyError:\n  raise ValueError('b')", "ValueError: b"),
        ("try:\n  {}['a']\nexcept KeyError as e:\n  raise ValueError('b') from e", "ValueError: b"),
        ("raise ValueError('first\\n\\nthird')", "ValueError: first"),
        ("e = ValueError('x'); e.add_note('a note'); raise e", "ValueError: x"),
        ("def f(:\n  pass", "SyntaxError: invalid syntax"),
        ("if True:\npass", "IndentationError: expected an indented block after 'if' statement on line 1"),
        ("exec('1 +')", "SyntaxError: invalid syntax"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
        ("class E(Exception): pass\nraise E", "E"),
    ],
)
def test_what_python_prints_is_found_as_a_whole(program: str, last: str, tmp_path: Path) -> None:
    whole = stderr_of(program, tmp_path).strip("\n")
    found = last_traceback(f"noise\n  indented noise\n\n{whole}\n")
    assert found == whole
    assert headline(found) == last


def test_exception_groups_are_found_from_their_beginning(tmp_path: Path) -> None:
    program = """
def one():
    raise ValueError("one")
def two():
    raise ExceptionGroup("inner", [TypeError("two")])
errors = []
for function in (one, two):
    try:
        function()
    except Exception as error:
        errors.append(error)
raise ExceptionGroup("outer", errors)
"""
    whole = stderr_of(program, tmp_path).strip("\n")
    assert last_traceback(f"noise\n{whole}\n") == whole
    assert "outer" in whole and "TypeError: two" in whole


def test_the_last_of_several_counts_and_what_follows_is_cut_off() -> None:
    noise = "[W1115 20:41:08.7 ProcessGroupGloo.cpp:67] Warning: something\nframe #0: c10::Error\n"
    found = last_traceback(
        traceback_of("ValueError: handled") + "going on\n" + traceback_of("TypeError: fatal") + noise
    )
    assert found == traceback_of("TypeError: fatal").strip()


def test_an_exception_ignored_on_the_way_out_is_not_the_cause(tmp_path: Path) -> None:
    program = "class A:\n  def __del__(self): raise TypeError('ignored')\na = A()\nraise ValueError('cause')"
    text = stderr_of(program, tmp_path)
    assert "ignored" in text
    assert headline(last_traceback(text)) == "ValueError: cause"


def test_colours_and_torchs_rank_prefixes_are_removed() -> None:
    plain = traceback_of("\x1b[1;35mValueError\x1b[0m: \x1b[35mcoloured\x1b[0m\nsecond line").strip()
    prefixed = "".join(f"[rank13]: {line}\n" for line in plain.splitlines())
    found = last_traceback(f"before\n{prefixed}[rank13]:[W1115 20:40:49.7 TCPStore.cpp:138] other\nafter\n")
    assert found == traceback_of("ValueError: coloured\nsecond line").strip()


def test_a_traceback_inside_a_message_stays_there() -> None:
    text = traceback_of(
        "ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
        '  File "loader.py", line 3, in fetch\n    return data[index]\nValueError: bad sample'
    )
    assert last_traceback(text) == text.strip()
    assert headline(text) == "ValueError: Caught ValueError in DataLoader worker process 0."


@pytest.mark.parametrize("text", ["", "\n\n", "Segmentation fault (core dumped)", "SyntaxError: not really"])
def test_no_traceback(text: str) -> None:
    assert last_traceback(text) == headline(last_traceback(text)) == ""


def test_an_error_file_as_torch_writes_it(tmp_path: Path) -> None:
    program = """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("boom\\nsecond line")
main()
"""
    script = tmp_path / "train.py"
    script.write_text(program)
    file = tmp_path / "error.json"
    environ = {"PATH": "/usr/bin:/bin", "TORCHELASTIC_ERROR_FILE": str(file)}
    subprocess.run([sys.executable, script], check=False, env=environ, stderr=subprocess.DEVNULL)
    error = recorded_error(file.read_text())
    assert error is not None
    assert error.message == "ValueError: boom\nsecond line"
    assert error.callstack.startswith("Traceback (most recent call last):")
    assert headline(error.callstack) == "ValueError: boom"
    assert error.timestamp.isdecimal()


def test_other_error_files() -> None:
    plain = recorded_error('{"message": "plain text"}')
    assert plain is not None and (plain.message, plain.callstack) == ("plain text", "")
    for text in ("", "{", "[]", "3", '{"message": {}}', '{"message": null}', '{"other": 1}'):
        assert recorded_error(text) is None


@pytest.mark.parametrize(
    "error",
    [
        GLOO,
        "RuntimeError: [gloo/transport/tcp/pair.cc:544] Connection closed by peer [127.0.0.1]:1",
        "RuntimeError: [gloo/transport/tcp/buffer.cc:78] Timed out waiting 8000ms for recv operation to complete",
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
        "torch.distributed.DistNetworkError: Broken pipe",
        "torch.distributed.DistNetworkError: The client socket has timed out after 2000ms while trying to connect",
        "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 1800000 ms\n Original exception: \n[x] Read",
        "torch.distributed.DistBackendError: NCCL error, remote process exited or there was a network error",
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "RuntimeError: Socket Timeout",
    ],
)
def test_errors_that_a_lost_peer_causes(error: str) -> None:
    assert is_connection_error(traceback_of(error))
    assert is_connection_error("".join(f"[rank0]: {line}\n" for line in traceback_of(error).splitlines()))
    assert is_connection_error(f"terminate called after throwing an instance of 'std::exception'\n  what():  {error}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Killed",
        traceback_of("ValueError: loss is nan"),
        "WARNING: Connection reset by peer, trying again\n" + traceback_of("ValueError: loss is nan"),
        traceback_of("ValueError: cause")
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + traceback_of(GLOO),
        traceback_of(IN_USE),
        'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    "Connection closed"\nKeyError: 1',
    ],
)
def test_errors_that_a_worker_has_made_itself(text: str) -> None:
    assert not is_connection_error(text)


def test_a_port_that_is_taken_is_told_from_other_ports() -> None:
    assert is_bind_failure(traceback_of(IN_USE), 29901)
    assert not is_bind_failure(traceback_of(IN_USE), 2990)
    assert not is_bind_failure(traceback_of(IN_USE), 9901)
    assert not is_bind_failure(traceback_of("OSError: [Errno 98] Address already in use"), 29901)
    assert not is_bind_failure("listening on port 29901\nOSError: [Errno 98] Address already in use", 29901)
    assert is_bind_failure(
        "The server socket has failed to bind to [::]:29901 (errno: 98 - Address already in use).", 29901
    )


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (traceback_of("KeyError: 'RANK'"), True),
        (traceback_of("KeyError: 'LOCAL_RANK'"), True),
        (traceback_of("KeyError: 'MASTER_ADDR'"), True),
        (traceback_of("ValueError: x rendezvous: environment variable WORLD_SIZE expected, but not set"), True),
        ("train.sh: line 3: RANK: unbound variable", True),
        (traceback_of("KeyError: 'rank'"), False),
        (traceback_of("KeyError: 'RANK'") + "going on\n" + traceback_of("ValueError: x"), False),
        ("", False),
    ],
)
def test_a_worker_that_misses_the_variables_of_a_framework(text: str, missing: bool) -> None:
    assert missing_rank(text) is missing
