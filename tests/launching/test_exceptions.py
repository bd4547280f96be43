"""What a worker raises is raised by the caller: its type, its attributes, its causes, and the traceback of there."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from lattice.errors import AgentFailedError, ResultNotReturned, WorkerFailedError
from lattice.launching import parcel
from lattice.launching.raised import StandIn
from lattice.launching.remains import Nothing
from lattice.launching.task import Task
from tests.launching.functions import (
    HARD,
    Demanding,
    Ending,
    Frozen,
    Late,
    Noteless,
    Plain,
    Slotted,
    Unruly,
    deep,
    die,
    each_its_own,
    exit_with,
    failing_with_note,
    frozen,
    group,
    leave_at_once,
    locked,
    noteless,
    raise_,
    unpicklable,
    unruly,
    wrong_path,
)
from tests.launching.workers import Ended, one, run, run_script


def failed(func: Any, *args: Any) -> tuple[Ended, BaseException]:
    ended = one(func, *args)
    assert ended.code == 1, ended
    return ended, ended.exception()


def test_an_exception_arrives_as_it_was_raised() -> None:
    ended, error = failed(deep, 2)
    assert type(error) is Demanding
    assert (error.first, error.second, error.args) == (2, "z", ("2, z",))
    note = "\n".join(error.__notes__)
    assert f"rank 0 on {os.uname().nodename} (pid " in note
    assert note.count("deep(number - 1)") == 2
    assert 'raise Demanding(2, second="z")' in note
    # As Python would print it: neither there nor here is a frame of ours.
    printed = ended.stderr.decode()
    for text in (printed, note):
        assert "lattice/launching" not in text
        assert "runpy" not in text
    assert printed.startswith("Traceback (most recent call last):\n")
    assert printed in note + "\n"


@pytest.fixture(scope="module")
def raised() -> dict[Any, BaseException]:
    """All of them at once: a worker each."""
    return dict(
        zip(HARD, (ended.exception() for ended in run(Task(each_its_own, backend=None), len(HARD))), strict=True)
    )


@pytest.mark.parametrize("func", HARD)
def test_exceptions_that_are_hard_to_send(func: Any, raised: dict[Any, BaseException]) -> None:
    error = raised[func]
    if func is wrong_path:
        assert type(error) is Plain
        assert error.args == ("outer", 5)
        assert type(error.__cause__) is KeyError
        assert error.__cause__.args == ("key",)
    elif func is group:
        assert isinstance(error, ExceptionGroup)
        demanding, plain, deeper = error.exceptions
        assert type(demanding) is Demanding
        assert demanding.second == "x"
        assert type(plain) is Plain
        assert isinstance(deeper, ExceptionGroup)
        late = deeper.exceptions[0]
        assert type(late) is Late
        assert (late.errno, late.filename) == (28, "/tmp")
    elif func is unruly:
        assert type(error) is Unruly
        assert str(error) == "cannot travel"
        assert "lock" in error.lock  # type: ignore[operator]
    elif func is locked:
        assert type(error) is Plain
        assert error.args[0] == "with a lock"
        assert "_thread.lock" in error.args[1]
    elif func is frozen:
        assert type(error) is Frozen
        assert (error.code, error.words) == (7, ("a",))
        assert type(error.__cause__) is Slotted
        assert error.__cause__.code == 4
        assert "raise Frozen(code=7" in error.__notes__[-1]
    elif func is noteless:
        assert type(error) is Noteless
        assert str(error) == "as it is"
        assert 'raise Noteless("as it is")' in error.__notes__[-1]
    elif func is failing_with_note:
        assert error.__notes__[0] == "my note"
    else:
        assert type(error) is UnicodeDecodeError
        assert (error.start, error.end, error.object) == (0, 1, b"\xff")


def test_a_class_that_only_the_worker_knows_gets_a_faithful_stand_in(tmp_path: Any) -> None:
    (tmp_path / "only_there.py").write_text(
        "class Odd(LookupError):\n    pass\ndef fail():\n    raise Odd('strange')\n"
    )
    run_script(
        tmp_path,
        f"""
from tests.launching.workers import one
def train():
    import sys
    sys.path.append({str(tmp_path)!r})
    import only_there
    only_there.fail()
import sys
sys.path.remove({str(tmp_path)!r})
def returns():
    try:
        train()
    except Exception as error:
        return [type(error)]
try:
    one(returns).value()
except Exception as error:
    assert type(error).__name__ == "ResultNotReturned", error
    assert "rank 0 on here returned something that cannot be read here: ModuleNotFoundError" in str(error), error
error = one(train).exception()
assert type(error).__name__ == "Odd" and type(error).__module__ == "only_there", type(error)
assert isinstance(error, LookupError) and str(error) == "strange"
assert "raise Odd('strange')" in error.__notes__[-1]
""",
    )
    assert StandIn.text == ""


@pytest.mark.parametrize(("code", "exits", "shown"), [(3, 3, "sys.exit(3)"), (0, 1, "sys.exit(0)"), ("bye", 1, "bye")])
def test_sys_exit_is_a_failure_of_the_worker_and_not_the_end_of_the_caller(code: Any, exits: int, shown: str) -> None:
    ended = one(exit_with, code)
    assert ended.code == exits
    error = ended.exception()
    assert isinstance(error, WorkerFailedError)
    assert shown in str(error)
    assert "Traceback" not in ended.stderr.decode()
    assert "sys.exit(code)" in error.__notes__[-1]


def test_an_interrupt_in_a_worker_is_not_one_of_the_caller() -> None:
    ended = one(raise_, KeyboardInterrupt())
    assert ended.code == 130
    error = ended.exception()
    assert isinstance(error, WorkerFailedError)
    assert "ended by KeyboardInterrupt" in str(error)


def test_other_base_exceptions_are_raised_as_they_are() -> None:
    _, error = failed(raise_, Ending("over"))
    assert type(error) is Ending


def test_who_dies_leaves_nothing() -> None:
    ended = one(leave_at_once)
    assert (ended.code, ended.left) == (0, Nothing())
    assert "left no result" in str(WorkerFailedError(rank=1, host="a", exit_code=0))
    ended = one(die)
    assert ended.stdout == b"last words\n"
    assert (ended.code, ended.left) == (-signal.SIGSEGV, Nothing())


def test_errors_of_ours_travel_too() -> None:
    worker = WorkerFailedError(rank=3, host="a", pid=7, signal="SIGKILL", stderr="last words\n", out_of_memory=True)
    agent = AgentFailedError("no agent on b: it cannot be reached.", host="b", stderr="refused")
    for error in (worker, agent):
        back = parcel.load(memoryview(parcel.dump(error).join()))
        assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))
    assert str(worker).startswith("rank 3 on a (pid 7) was killed, likely out of memory")
    assert str(worker).endswith("last words")


def test_a_result_that_cannot_be_pickled_is_named() -> None:
    ended, error = failed(unpicklable)
    assert isinstance(error, ResultNotReturned)
    assert "rank 0" in str(error)
    assert "_thread.lock" in str(error)
    assert b"cannot be sent back" in ended.stderr
    assert b"Traceback" not in ended.stderr, "nothing of the function's"
