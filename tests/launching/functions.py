"""What workers are made to run: a module of its own that imports next to nothing, as each of them imports it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Any


class Plain(Exception):
    pass


class Demanding(Exception):
    def __init__(self, first: int, *, second: str) -> None:
        super().__init__(f"{first}, {second}")
        self.first, self.second = first, second


class Late(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(28, "no space", path)


class Unruly(ValueError):
    """Cannot be pickled at all."""

    def __reduce__(self) -> str:
        raise TypeError("not me")

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class Ending(BaseException):
    pass


@dataclass(frozen=True)
class Frozen(Exception):
    code: int
    words: tuple[str, ...] = ()


class Slotted(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Noteless(Exception):
    def add_note(self, note: str, /) -> None:
        raise TypeError("no notes")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


def frozen() -> None:
    try:
        raise Slotted(4)
    except Slotted as error:
        raise Frozen(code=7, words=("a",)) from error


def noteless() -> None:
    raise Noteless("as it is")


def raise_(error: BaseException) -> None:
    raise error


def wrong_path() -> None:
    try:
        {}["key"]  # type: ignore[index]
    except KeyError as error:
        raise Plain("outer", 5) from error


def group() -> None:
    cause = Demanding(1, second="x")
    raise ExceptionGroup("several", [cause, Plain("y"), ExceptionGroup("deeper", [Late("/tmp")])])


def unruly() -> None:
    raise Unruly("cannot travel")


def locked() -> None:
    raise Plain("with a lock", threading.Lock())


def failing_with_note() -> None:
    error = Plain("noted")
    error.add_note("my note")
    raise error


def decoding() -> None:
    b"\xff".decode()


def deep(number: int) -> None:
    if number:
        deep(number - 1)
    else:
        raise Demanding(2, second="z")


HARD = [wrong_path, group, unruly, locked, failing_with_note, decoding, frozen, noteless]


def each_its_own() -> None:
    HARD[int(os.environ["RANK"])]()


def exit_with(code: Any) -> None:
    sys.exit(code)


def leave_at_once() -> None:
    os._exit(0)


def die() -> None:
    print("last words")
    os.kill(os.getpid(), signal.SIGSEGV)


def unpicklable() -> Any:
    return threading.Lock()


def change(array: Any, tensor: Any) -> Any:
    array[0] = 99
    tensor[0] = 99
    return array, tensor * 2


def sum_of_ranks() -> Any:
    import torch
    import torch.distributed as dist

    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    return total, dist.get_backend(), dist.get_world_size()


def own_group() -> bool:
    import torch.distributed as dist

    before = dist.is_initialized()
    dist.destroy_process_group()
    return before


def has_torch() -> bool:
    return "torch" in sys.modules


def log_a_little() -> None:
    import logging

    logger = logging.getLogger("mine")
    logger.info("loss %s %s", 0.5, "\udcff", extra={"step": {3}})
    logger.debug("not seen")
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        logger.exception("failed")


def log_in_its_own_way() -> None:
    import logging

    logging.basicConfig(level=logging.DEBUG, format="own %(levelname)s %(message)s")
    logging.getLogger("mine").debug("fine")
    logging.info("module")


def busy_at_the_end() -> int:
    """Leave work for the end of the process: a thread, an exit function, and text in a buffer of the C library."""
    import atexit
    import ctypes
    import time

    def late() -> None:
        time.sleep(0.2)
        print("thread", flush=True)

    threading.Thread(target=late).start()
    atexit.register(print, "exit function")
    ctypes.CDLL(None).printf(b"C library\n")
    return 5


def finalizers() -> None:
    """Leave something to be done at the end for objects that are still there."""
    import weakref

    def operator() -> None:
        print("operator")

    operator.__module__ = "torch.library"
    weakref.finalize(threading, operator)
    weakref.finalize(threading, print, "finalizer")
