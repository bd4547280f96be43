"""The program of each worker of a launch: it runs one function and leaves the result, or the exception, behind."""

from __future__ import annotations

import atexit
import ctypes
import io
import mmap
import os
import sys
import threading
import traceback
import weakref
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from lattice.errors import UsageError
from lattice.launching import records, remains, task
from lattice.launching.task import Task
from lattice.launching.variables import HOST, PAYLOAD, RECORDS, REMAINS, ROOM

NEEDS_LIBRARIES_TO_END = frozenset({"mpi", "mpi4py", "LD_PRELOAD", "CUDA_INJECTION64_PATH"})
"""backends, modules and variables of what does its work, or writes its report, when libraries are taken apart"""
OURS = str(Path(__file__).resolve().parent)

_backends: list[str] = []
"""those of this worker's process group"""


def main() -> int:
    """
    Run the task of this worker.

    :return: its exit code: 0 if there is a result
    """
    # Taken out of the environment: programs that the function starts, launches among them, are not this worker.
    payload, left, log, limit = (os.environ.pop(name, "") for name in (PAYLOAD, REMAINS, RECORDS, ROOM))
    host = os.environ.pop(HOST, "") or os.uname().nodename
    if not payload or not left:
        print(f"{PAYLOAD} and {REMAINS} are not set: lattice.launch starts this program.", file=sys.stderr)
        return UsageError.exit_code
    rank = int(os.environ.get("LATTICE_RANK") or os.environ.get("RANK") or 0)
    beside = int(os.environ.get("LATTICE_LOCAL_WORLD_SIZE") or 1)
    descriptor = os.open(left, os.O_RDWR | os.O_CLOEXEC)
    try:
        if log:
            records.install(log)
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Lines are shown while the function runs, and are not lost with a worker that is killed.
            sys.stdout.reconfigure(line_buffering=True)
        todo = _open(payload)
        formed = todo.backend is not None
        if todo.backend is not None:
            form_group(todo.backend, todo.timeout)
        remains.leave_result(
            descriptor,
            todo.func(*todo.args, **todo.kwargs),
            rank=rank,
            host=host,
            limit=int(limit) if limit else None,
            beside=(payload, beside),
        )
    except BaseException as error:
        return _fail(descriptor, error, rank, host)
    finally:
        os.close(descriptor)
    if formed:
        _end_group()
    return 0


def form_group(backend: str, timeout: float) -> None:
    """
    Form the process group of all workers.

    :param backend: ``auto``: nccl where there are CUDA devices, else gloo; or what torch takes
    :param timeout: seconds, of its collectives
    :raises UsageError: there is no such backend here
    """
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        raise UsageError(
            f"backend={backend!r} forms a process group of torch, which {sys.executable} cannot import: {error}. "
            "Install torch on this host, or give backend=None."
        ) from error
    if not dist.is_available():
        raise UsageError("torch was built without distributed here: give backend=None, or install another torch.")
    if backend == "auto":
        backend = "nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    names = [part.rpartition(":")[2].strip().lower() for part in backend.split(",")]
    here = [name for name in dist.Backend.backend_list if name != "undefined" and dist.is_backend_available(name)]
    missing = [name for name in names if name not in here]
    if missing:
        raise UsageError(
            f"backend={backend!r}: torch {torch.__version__} has no {', '.join(map(repr, missing))} on this host, but "
            f"{', '.join(here)}. Give backend= one of these, 'auto', or None for no process group."
        )
    _backends.extend(names)
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    if "mpi" not in names:
        _wait_for_all(timedelta(seconds=timeout))


def _wait_for_all(timeout: timedelta) -> None:
    """
    Wait until every rank has formed the group: a function that returns at once must not end a rank to which others
    still connect.

    Rank 0 waits for all to have heard that, too: it may serve the store which tells them.
    """
    import torch.distributed as dist

    store = dist.distributed_c10d._get_default_store()
    for moment, ranks in (("formed", range(dist.get_world_size())), ("heard", range(1))):
        if store.add(f"lattice/{moment}/count", 1) == dist.get_world_size():
            store.set(f"lattice/{moment}", "by all")
        if dist.get_rank() in ranks:
            store.wait([f"lattice/{moment}"], timeout)


def _open(payload: str) -> Task:
    descriptor = os.open(payload, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Private: what this worker writes into its arguments is its own, what it only reads it shares with the others.
        image = mmap.mmap(descriptor, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(descriptor)
    try:
        return task.unpack(memoryview(image))
    except ImportError as error:
        error.add_note(
            f"The function and its arguments need a module that {sys.executable} does not find on this host. "
            "Install it here; if it is of your project, give sync='auto', or have the project's folder here too."
        )
        raise


def _end_group() -> None:
    """Let go of the process group, unless the function did so; the result is safe by now, whatever comes."""
    import torch.distributed as dist

    try:
        if dist.is_initialized():
            dist.destroy_process_group()
    except Exception:
        traceback.print_exc()


def _fail(descriptor: int, error: BaseException, rank: int, host: str) -> int:
    BaseException.with_traceback(error, _without_ours(error.__traceback__))
    code = remains.exit_code(error)
    try:
        remains.leave_exception(descriptor, error, rank=rank, host=host)
    except BaseException:
        traceback.print_exc()
    if isinstance(error, SystemExit):
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        # Even an exit with 0 is a failure: others may wait for this worker, and there is no result.
        return code or 1
    if sys.excepthook is sys.__excepthook__:
        # Prints the same, but knows lines whose file is not on this host too.
        traceback.print_exception(error)
    else:
        sys.excepthook(type(error), error, error.__traceback__)
    return code or 1


def _without_ours(shown: TracebackType | None) -> TracebackType | None:
    """Leave out the frames by which the function was reached."""
    kept = shown
    while kept is not None and kept.tb_frame.f_code.co_filename.startswith(OURS):
        kept = kept.tb_next
    return kept


def leave(code: int) -> NoReturn:
    """
    End this process: threads, exit functions and buffers as Python does it, but without taking libraries apart.

    That takes torch a quarter of a second, in which the caller would wait for a result that is already there.

    :param code: the exit code
    """
    if NEEDS_LIBRARIES_TO_END & {*_backends, *sys.modules, *os.environ}:
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    _let_operators_be()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # nobody listens
    ctypes.PyDLL(None).fflush(None)
    os._exit(code)


def _let_operators_be() -> None:
    """Keep torch from taking back its operators one by one, memory that all workers shared until then."""
    for one in tuple(getattr(weakref.finalize, "_registry", ())):
        found = one.peek()
        if found is not None and getattr(found[1], "__module__", "") == "torch.library":
            one.atexit = False


if __name__ == "__main__":
    leave(main())
