"""From a fork of the zygote to a process that Python cannot tell from one that it started itself."""

# ruff: noqa: I001, PTH123, UP031
# Runs on Python 3.8 and later, see sitecustomize.py.

from __future__ import annotations

import os
import sys
import time

import _ctypes

PR_SET_PDEATHSIG = 1
SIGKILL = 9
RTLD_NOW_IF_LOADED = 2 | 4
MOST_REPEATED = 1 << 20
BLAS_NAMES = ("openblas_%s", "openblas_%s64_", "scipy_openblas_%s", "scipy_openblas_%s64_")
LONGEST_KNOCKING = 5.0
ENTERED, GROUPED = 0, 1
"""fields of the worker's line of the board, as in lattice.core.board"""
BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")

prctl = _ctypes.dlsym(_ctypes.dlopen(None, 2), "prctl")  # type: ignore[arg-type]
blas: list[tuple[int, int]] = []


def call(address: int, *arguments: int) -> int:
    """Call a C function."""
    return _ctypes.call_cdeclfunction(address, arguments)  # type: ignore[no-any-return]


def attach(agent: int, go: int) -> None:
    """
    Become a child of the agent that dies with it, in a session of its own.

    :param agent: who must be the parent
    :param go: readable once that is so; end-of-file means that the zygote died
    """
    if not os.read(go, 1):
        os._exit(1)
    os.close(go)
    os.setsid()
    call(prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    # Checked after the death signal is set: an agent that died before would never trigger it.
    if os.getppid() != agent:
        os._exit(1)


def take_streams(has_stdin: bool, descriptors: list[int]) -> list[bytes]:
    """
    Put the worker's descriptors in their places.

    :param has_stdin: whether a standard input was given
    :param descriptors: a standard input or not, output and error
    :return: what modules said while they were imported
    """
    said = [os.pread(number, MOST_REPEATED, 0) for number in (1, 2)]
    stdin = descriptors[0] if has_stdin else os.open(os.devnull, os.O_RDONLY)
    for target, source in enumerate((stdin, *descriptors[-2:])):
        os.dup2(source, target)
    for descriptor in {stdin, *descriptors}:
        os.close(descriptor)
    return said


def repeat(said: list[bytes]) -> None:
    """Say what modules said while they were imported: they would have said it to every worker."""
    for number, text in zip((1, 2), said):  # noqa: B905 - strict= is younger than 3.8
        left = memoryview(text)
        try:
            while left:
                left = left[os.write(number, left) :]
        except OSError:
            pass  # nobody listens


def renew_streams() -> None:
    """Make the standard streams anew, in place: modules that were imported before may hold on to them."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, "__%s__" % name)
        buffer = getattr(stream, "buffer", None)
        if buffer is None:
            continue
        encoding, errors = stream.encoding, stream.errors
        line_buffering, write_through = stream.line_buffering, stream.write_through
        is_raw = not hasattr(buffer, "raw")
        raw = type(buffer if is_raw else buffer.raw)(number, "wb" if number else "rb", closefd=False)
        raw.name = "<%s>" % name
        if not is_raw:
            buffer = type(buffer)(raw, raw._blksize)
        line_buffering = not write_through and (line_buffering or raw.isatty())
        stream.__init__(raw if is_raw else buffer, encoding, errors, "\n", line_buffering, write_through)


def renew_finders() -> None:
    """Have folders listed anew: they may have changed since, and too quickly for their time to tell."""
    for finder in sys.path_importer_cache.values():
        if finder is not None and hasattr(finder, "invalidate_caches"):
            finder.invalidate_caches()


def renew_chance() -> None:
    """Seed what a fresh process seeds from the operating system; the module random has seen to itself."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and hasattr(numpy, "seed"):
        numpy.seed()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "default_generator"):
        torch.default_generator.seed()
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)


def find_blas() -> None:
    """Find the OpenBLAS libraries that were loaded with one thread."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(None, 5)[-1].rstrip("\n") for line in maps if "openblas" in line}
    for path in paths:
        for pattern in BLAS_NAMES:
            try:
                library = _ctypes.dlopen(path, RTLD_NOW_IF_LOADED)
                found = (
                    _ctypes.dlsym(library, pattern % "set_num_threads"),
                    _ctypes.dlsym(library, pattern % "get_num_procs"),
                )
            except OSError:
                continue
            blas.append(found)
            break


def renew_blas() -> None:
    """Give OpenBLAS the threads that it would have started by itself."""
    wanted = 0
    for name in BLAS_VARIABLES:
        value = os.environ.get(name, "").split(",")[0].strip()
        if not wanted and value.isdigit():
            wanted = int(value)
    for set_threads, count_processors in blas:
        threads = min(wanted or 1 << 30, call(count_processors))
        if threads > 1:
            call(set_threads, threads)


def note(field: int) -> None:
    """Write the moment into this worker's line of the board, if there is one."""
    path, _, offset = os.environ.get("LATTICE_BOARD", "").partition("@")
    moment = bytearray(8)  # struct would be one more module that the script can see
    memoryview(moment).cast("d")[0] = time.monotonic()
    try:
        board = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(board, moment, int(offset) + 8 * field)
        finally:
            os.close(board)
    except (OSError, ValueError):
        pass  # it only tells how long a restart took


def note_group() -> None:
    """Have the moment noted at which torch's default process group is up, once, out of the script's sight."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    update = getattr(module, "_update_default_pg", None)
    if not callable(update):
        return  # another torch: then nobody will know

    def updated(group: object) -> None:
        update(group)
        if group is not None:
            module._update_default_pg = update  # type: ignore[union-attr]
            note(GROUPED)

    module._update_default_pg = updated  # type: ignore[union-attr]


def hurry_group() -> None:
    """
    Have torch meet its master as soon as that listens.

    Forked workers come within milliseconds of each other, and torch, refused once, tries again after half a second.
    So the question that it asks just before is answered when the master is there.
    """
    module = sys.modules.get("torch.distributed.rendezvous")
    question = getattr(module, "_torchelastic_use_agent_store", None)
    if not callable(question) or os.environ.get("RANK", "0") == "0":
        return

    def answer() -> object:
        module._torchelastic_use_agent_store = question  # type: ignore[union-attr]
        wait_for_master()
        return question()

    module._torchelastic_use_agent_store = answer  # type: ignore[union-attr]


def wait_for_master() -> None:
    """Knock at the master's port, less and less often, until it opens; torch can tell better what else is wrong."""
    import socket

    pause, last = 0.001, time.monotonic() + LONGEST_KNOCKING
    try:
        master = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        while time.monotonic() < last:
            try:
                return socket.create_connection(master, 1.0).close()
            except ConnectionRefusedError:
                time.sleep(pause)
                pause = min(1.5 * pause, 0.25)
    except (KeyError, ValueError, OSError):
        pass
