"""Ends in the way that its first argument names."""

import atexit
import faulthandler
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable


def fail(depth: int = 3) -> None:
    if depth:
        fail(depth - 1)
    else:
        raise ValueError("on purpose: ä")


def chained() -> None:
    try:
        fail(0)
    except ValueError as error:
        raise RuntimeError("because of it") from error


def in_thread() -> None:
    thread = threading.Thread(target=fail, name="one")
    thread.start()
    thread.join()


def exit_in_thread() -> None:
    thread = threading.Thread(target=sys.exit, args=(5,))
    thread.start()
    thread.join()


def late_thread() -> None:
    def work() -> None:
        time.sleep(0.2)
        print("a thread is waited for")

    threading.Thread(target=work).start()


def hook() -> None:
    sys.excepthook = lambda kind, value, trace: print("my hook", kind, value, type(trace))
    fail()


def at_exit() -> None:
    atexit.register(print, "last")
    atexit.register(print, "first")


def failing_at_exit() -> None:
    atexit.register(fail)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)


def handled() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
    terminate()


def segfault() -> None:
    faulthandler.enable()
    faulthandler._sigsegv()  # type: ignore[attr-defined]


def broken_pipe() -> None:
    read, write = os.pipe()
    os.close(read)
    os.dup2(write, 1)
    print("nobody listens")


def warn() -> None:
    warnings.warn("careful", stacklevel=1)
    warnings.warn("deep", stacklevel=9)


def unflushed() -> None:
    sys.stdout = open(os.dup(1), "w")  # noqa: PTH123, SIM115
    sys.stdout.write("flushed at the end")


def fork_and_wait() -> None:
    if os.fork() == 0:
        print("child")
        sys.exit(4)
    print("parent", os.waitstatus_to_exitcode(os.wait()[1]))


def replaced() -> None:
    os.execvp(
        sys.executable, [sys.executable, "-c", "import os, sys; print(sys.path[0], 'RANK' in os.environ); sys.exit(6)"]
    )


ENDINGS: dict[str, Callable[[], object]] = {
    "return": lambda: None,
    "none": lambda: sys.exit(None),
    "zero": lambda: sys.exit(0),
    "three": lambda: sys.exit(3),
    "large": lambda: sys.exit(300),
    "negative": lambda: sys.exit(-1),
    "text": lambda: sys.exit("some text"),
    "tuple": lambda: sys.exit((1, 2)),  # type: ignore[arg-type]
    "true": lambda: sys.exit(True),
    "raise exit": lambda: exec("raise SystemExit(7)"),
    "quit": lambda: exit(8),
    "os._exit": lambda: os._exit(11),
    "abort": os.abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exception": fail,
    "chained": chained,
    "recursion": lambda: fail(100000),
    "in thread": in_thread,
    "exit in thread": exit_in_thread,
    "late thread": late_thread,
    "hook": hook,
    "at exit": at_exit,
    "failing at exit": failing_at_exit,
    "interrupt": interrupt,
    "keyboard": lambda: exec("raise KeyboardInterrupt"),
    "terminate": terminate,
    "handled": handled,
    "segfault": segfault,
    "broken pipe": broken_pipe,
    "warn": warn,
    "unflushed": unflushed,
    "fork": fork_and_wait,
    "exec": replaced,
    "syntax": lambda: exec("a b"),
    "base exception": lambda: exec("class Odd(BaseException): pass\nraise Odd('x')"),
    "group": lambda: exec("raise ExceptionGroup('g', [ValueError(1), TypeError(2)])"),
}
if __name__ == "__main__":
    print("begins")
    ENDINGS[os.environ.get("RANK") or sys.argv[1]]()
