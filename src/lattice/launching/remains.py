"""
What a worker leaves in a file of memory: a result, or why there is none.

A mark at its beginning is written last, so half a result is never taken for one.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import traceback
from collections.abc import Iterator
from typing import Any

from lattice.core.dataclass import dataclass
from lattice.errors import LatticeError, NotPickled, ResultNotReturned, TooLarge, WorkerFailedError
from lattice.launching import parcel
from lattice.launching.raised import bare, note, parts, stand_in
from lattice.launching.room import refuse_beyond, room

MARK = struct.Struct("<8scxxxxxxxQ")
"""magic, kind, size of the image"""
MAGIC = b"LATTLEFT"
RESULT, RAISED = b"r", b"e"
OFFSET = 64
"""where the image begins"""
NOT_FOR_CALLERS = (SystemExit, KeyboardInterrupt, GeneratorExit)
"""what would end the caller's program, or look as if somebody had interrupted it there"""


@dataclass(frozen=True, slots=True)
class Story:
    """All that is known of an exception, the object itself aside."""

    rank: int
    host: str
    pid: int
    name: str
    bases: tuple[str, ...]
    text: str
    traceback: str
    pickled: bytes | None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Nothing:
    """The worker did not come to leave anything."""


@dataclass(frozen=True, slots=True)
class Result:
    """The function returned."""

    image: memoryview

    def value(self, rank: int, host: str) -> Any:
        """
        Give what the function returned: arrays in it are views of the image.

        :param rank: of the worker, for errors
        :param host: of the worker, for errors
        """
        try:
            return parcel.load(self.image)
        except Exception as error:
            raise ResultNotReturned(
                f"rank {rank} on {host} returned something that cannot be read here: {type(error).__name__}: {error}. "
                "What it is made of must be importable here too."
            ) from error


@dataclass(frozen=True, slots=True)
class Raised:
    """The function, or what came before it, raised an exception."""

    story: Story

    def exception(self, host: str | None = None) -> BaseException:
        """
        Give the exception itself, with a note that tells the rank, the host and the traceback there.

        :param host: how the caller calls it, if not as it calls itself
        """
        story = self.story
        host = host or story.host
        error = _worker_failed(story, host) if story.pickled is None and _ends_callers(story) else _original(story)
        if isinstance(error, NOT_FOR_CALLERS):
            error = _worker_failed(story, host)
        note(error, f"\nrank {story.rank} on {host} (pid {story.pid}) raised it:\n\n{story.traceback.rstrip()}")
        return error


def leave_result(
    descriptor: int, value: object, *, rank: int, host: str, limit: int | None = None, beside: tuple[str, int] = ("", 1)
) -> None:
    """
    Leave what the function returned.

    :param descriptor: of an empty file of memory
    :param value: the result
    :param rank: of this worker, for errors
    :param host: of this worker, for errors
    :param limit: the most bytes that the launcher takes, if it does not see the memory of this host
    :param beside: a file that all workers of this host have open, and how many there are
    :raises ResultNotReturned: it cannot be pickled, or takes too much memory
    """
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    try:
        parts = parcel.dump(value, "it", limit=_bound(limit))
        with _turn(*beside, parts.size):
            refuse_beyond(_bound(limit), parts.size, "it")
            _leave(descriptor, RESULT, parts)
    except (NotPickled, TooLarge, OSError, MemoryError) as error:
        reason = str(error) or "there is not enough memory"
        advice = "" if isinstance(error, TooLarge) else ". Return something else, such as a state_dict or a path."
        # Where in the pickling it happened helps nobody.
        raise ResultNotReturned(
            f"rank {rank} on {host} returned a value of type {kind} that cannot be sent back: {reason}{advice}"
        ) from None


def leave_exception(descriptor: int, error: BaseException, *, rank: int, host: str) -> None:
    """
    Leave an exception.

    :param descriptor: of a file of memory; what is in it is replaced
    :param error: with the traceback that shall be shown
    :param rank: of this worker
    :param host: of this worker
    """
    cls = type(error)
    try:
        text = str(error)
    except Exception as failure:
        text = f"<str() of it failed: {failure!r}>"
    story = Story(
        rank=rank,
        host=host,
        pid=os.getpid(),
        name=f"{cls.__module__}.{cls.__qualname__}",
        bases=tuple(base.__name__ for base in cls.__mro__ if base.__module__ == "builtins"),
        text=text,
        traceback="".join(traceback.format_exception(error)),
        pickled=_pickled(error),
        exit_code=exit_code(error),
    )
    _leave(descriptor, RAISED, parcel.dump_plain(story))


def exit_code(error: BaseException) -> int | None:
    """Tell the exit code with which Python would end because of an exception, if it is one that means to end it."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    if not isinstance(error, SystemExit):
        return None
    return error.code & 0xFF if isinstance(error.code, int) else int(error.code is not None)


def read(source: int | memoryview) -> Result | Raised | Nothing:
    """
    Read what a worker left.

    :param source: a descriptor of the file, which may be closed after this, or its content
    """
    if isinstance(source, int):
        size = os.fstat(source).st_size
        if size < OFFSET:
            return Nothing()
        # Private: who writes into a result changes neither the file nor another reading of it.
        source = memoryview(mmap.mmap(source, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE))
    if source.nbytes < OFFSET:
        return Nothing()
    magic, kind, size = MARK.unpack_from(source)
    if magic != MAGIC:
        return Nothing()
    image = source[OFFSET : OFFSET + size]
    return Result(image) if kind == RESULT else Raised(parcel.load(image))


def _bound(limit: int | None) -> int:
    return room() if limit is None else min(room(), limit)


@contextlib.contextmanager
def _turn(path: str, workers: int, size: int) -> Iterator[None]:
    """Let workers whose results may be too much together take their turns, so that each sees what is still free."""
    if not path or size * workers <= room():
        yield
        return
    import fcntl

    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _leave(descriptor: int, kind: bytes, parts: parcel.Parcel) -> None:
    os.ftruncate(descriptor, 0)
    parts.write(descriptor, OFFSET)
    os.pwrite(descriptor, MARK.pack(MAGIC, kind, parts.size), 0)


def _pickled(error: BaseException) -> bytes | None:
    """Pickle an exception: whole, or else alone, or else with what cannot be pickled replaced by how it looks."""
    for simpler in (_as_it_is, _alone, _simplified):
        try:
            image = parcel.dump(simpler(error)).join()
            if type(parcel.load(memoryview(image))) is type(error):
                return image
        except Exception:
            continue
    return None


def _as_it_is(error: BaseException) -> BaseException:
    return error


def _alone(error: BaseException) -> BaseException:
    arguments, _ = parts(error)
    copy = bare(type(error), arguments)
    copy.__dict__.update(vars(error))
    return copy


def _simplified(error: BaseException) -> BaseException:
    if isinstance(error, BaseExceptionGroup):
        return error.derive([_simplified(one) for one in error.exceptions])
    arguments, _ = parts(error)
    copy = bare(type(error), tuple(map(_portable, arguments)))
    copy.__dict__.update({name: _portable(value) for name, value in vars(error).items()})
    return copy


def _portable(value: object) -> object:
    try:
        parcel.load(memoryview(parcel.dump(value).join()))
    except Exception:
        return repr(value)
    return value


def _original(story: Story) -> BaseException:
    if story.pickled is not None:
        try:
            loaded = parcel.load(memoryview(story.pickled))
            if isinstance(loaded, BaseException):
                return loaded
        except Exception:
            pass  # its class is not here: the stand-in has all that can be shown
    return stand_in(story.name, story.bases, story.text)


def _ends_callers(story: Story) -> bool:
    return any(cls.__name__ in story.bases for cls in NOT_FOR_CALLERS)


def _worker_failed(story: Story, host: str) -> LatticeError:
    if "SystemExit" in story.bases:
        shown = story.text if story.text else "0"
        reason = f"called sys.exit({shown}) and so returned nothing. Return from the function instead"
    else:
        reason = f"ended by {story.name.removeprefix('builtins.')}" + (f": {story.text}" if story.text else "")
    return WorkerFailedError(reason, rank=story.rank, host=host, pid=story.pid, exit_code=story.exit_code)
