"""``lattice launch``: run a function of a module or a file on many hosts, from the shell."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from lattice.errors import LatticeError, UsageError, WorkerFailedError
from lattice.launch_target import FORM, NotImported, Target, find, parse_target
from lattice.launching.api import Launcher
from lattice.launching.blame import WHERE
from lattice.launching.result import LaunchResult
from lattice.launching.settings import only_in_python
from lattice.launching.surroundings import become_main
from lattice.options.arguments import Parameter, UnknownWord, field_docs, parameters, read_arguments, rows, signature_of
from lattice.options.parsing import HelpAsked

HELP = """\
usage: lattice launch MODULE:FUNCTION [options] [-- ARGS...]
       lattice launch FILE.py:FUNCTION [options] [-- ARGS...]

Runs a function in workers on one or many hosts and prints what it returns, a
line per rank. The module is looked for in the working directory first, as with
python -m; modules beside a file are found too. MODULE:CLASS.METHOD works.

What follows -- are the function's arguments, by place or as --name value, and
become what its annotations say. lattice launch MODULE:FUNCTION -- --help shows
them. Dashes and underscores in names are the same; lists are written as
--hostnames a b or a,b.

examples:
  # a worker for each GPU, or CPU, of this machine; def main(epochs: int): ...
  lattice launch train:main -- --epochs 10

  # eight workers on each of two hosts, through ssh
  lattice launch src/train.py:main --hostnames node1 user@node2 \\
      --workers-per-host 8 -- 10 --lr 0.1 --no-shuffle

  # is everything there? no process group, one worker per host
  lattice launch platform:node --hostnames a,b --workers-per-host 1 \\
      --backend none

exit code: 0; 1 if the function raised something or a host was lost; 2 if there
is something wrong with the command; that of a worker that ended by itself, 128
and the signal's number if one killed it; 130 after Ctrl-C, 143 after SIGTERM.

options:
"""
LONGEST = 2000
"""characters of a result that are printed"""
TOLD = re.compile(r"\n(?P<who>rank \d+ on .* \(pid \d+\)) raised it:\n\n(?P<traceback>(?s:.*))")
"""the note on an exception of a worker"""
_kept: list[object] = []


def _own(target: str = "", /, *, json: bool = False, output: Path | None = None) -> None:
    """Stand for what this command takes besides the fields of Launcher."""


OWN_HELP = {
    "json": "print a JSON object for each rank, with rank, host, local_rank and result, and all else to stderr; what "
    "JSON does not know is given as its repr",
    "output": "file that the results are pickled to, as a lattice.LaunchResult",
}


def options() -> tuple[Parameter, ...]:
    """Describe the options: those of :class:`Launcher` that can be written on a command line, and a few more."""
    docs, hidden = {**OWN_HELP, **field_docs(Launcher)}, only_in_python(Launcher)
    target, *own = parameters(_own)
    known = (target, *parameters(Launcher, commas=True), *own)
    return tuple(replace(one, help=docs.get(one.name, "")) for one in known if one.name not in hidden)


def launch_command(words: Sequence[str]) -> int:
    """
    Run a function.

    :param words: target and options, and after ``--`` the function's own arguments
    :return: the exit code
    :raises LatticeError: whatever went wrong, also in the function
    """
    at = list(words).index("--") if "--" in words else len(words)
    known = options()
    try:
        places, settings = read_arguments(words[:at], known)
    except HelpAsked:
        print(HELP + "".join(rows(known[1:])), end="", flush=True)
        return 0
    except UnknownWord as error:
        raise UsageError(f"{error} (lattice launch --help lists all; the function's own go after --)") from None
    if not places:
        raise UsageError(f"no function was given: {FORM}, before the options")
    as_json, output = settings.pop("json", False), settings.pop("output", None)
    # Not Path's own question, which fails where it may not look.
    if isinstance(output, Path) and (os.path.isdir(output) or not os.access(output.absolute().parent, os.W_OK)):  # noqa: PTH112
        raise UsageError(f"--output is {str(output)!r}: no file can be written there")
    target, launcher = parse_target(str(places[0])), Launcher(**settings)  # type: ignore[arg-type]
    stdout = sys.stdout
    with contextlib.redirect_stdout(Remembering(sys.stderr if as_json else stdout)) as console:
        func = _find(target, words[at + 1 :])
        try:
            args, kwargs = read_arguments(words[at + 1 :], parameters(func))
        except HelpAsked:
            print(_help_of(func, target), end="", flush=True, file=stdout)
            return 0
        except UsageError as error:
            unknown = isinstance(error, UnknownWord)
            see = f" (lattice launch {target.given} -- --help shows its parameters)" if unknown else ""
            raise UsageError(f"{target.given}: {error}{see}") from None
        result = _run(launcher, func, args, kwargs, console)
    for line in lines(result, as_json=bool(as_json)):
        print(line.encode(stdout.encoding, "backslashreplace").decode(stdout.encoding))
    stdout.flush()
    if isinstance(output, Path):
        _keep(result, output)
    return 0


class FunctionRaised(LatticeError):
    """The function raised something in a worker."""


class Remembering:
    """A stream that knows the last of what was written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: deque[str] = deque(maxlen=1000)

    def write(self, text: str) -> int:
        """Write, and remember it."""
        self._last.append(text[-(1 << 16) :])
        return self._stream.write(text)

    def shows(self, text: str) -> bool:
        """Tell whether all lines of a text are to be seen where errors are written, too."""
        try:
            together = os.path.sameopenfile(self._stream.fileno(), sys.stderr.fileno())
        except (OSError, ValueError):
            return False
        last = "".join(self._last)
        return together and all(line in last for line in text.splitlines())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def lines(result: LaunchResult[Any], *, as_json: bool) -> Iterator[str]:
    """Write the results, a line for each rank; without JSON there is none for a None."""
    for rank, ((host, local_rank), value) in enumerate(zip(result.places(), result, strict=True)):
        if as_json:
            head = json.dumps({"rank": rank, "host": host, "local_rank": local_rank})
            yield f'{head[:-1]}, "result": {_as_json(value)}}}'
        elif value is not None:
            shown = " ".join(_repr(value).split("\n"))
            more = f"... ({len(shown)} characters; --json or --output gives all)" if len(shown) > LONGEST else ""
            yield f"{host}[{local_rank}] rank {rank}: {shown[:LONGEST]}{more}"


def _find(target: Target, words: Sequence[str]) -> Callable[..., Any]:
    _kept.append(become_main(str(target.file or ""), {}))
    sys.argv = [str(target.file or target.module), *words]
    try:
        return find(target)
    except NotImported as error:
        traceback.print_exception(error.cause)
        raise


def _run(
    launcher: Launcher,
    func: Callable[..., Any],
    args: Sequence[object],
    kwargs: dict[str, object],
    console: Remembering,
) -> LaunchResult[Any]:
    try:
        with _ended_by_signals(), _telling_where_logs_are():
            return launcher.run(func, *args, **kwargs)
    except WorkerFailedError as error:
        error.exit_code = error.worker_exit_code or (128 + signal.Signals[error.signal] if error.signal else 1)
        raise
    except LatticeError:
        raise
    except BaseException as error:  # whatever the function raised, with a note that tells who and where
        told = next(filter(None, map(TOLD.fullmatch, getattr(error, "__notes__", ()))), None)
        if told is not None:
            console.flush()
            above = console.shows(told["traceback"])
            if not above:
                print(told["traceback"], file=sys.stderr)
            text = f"{type(error).__qualname__}: {error}".partition("\n")[0]
            raise FunctionRaised(f"{told['who']} raised {text}{' (its traceback is above)' * above}") from None
        if isinstance(error, TimeoutError):
            raise LatticeError(str(error)) from None
        raise


@contextlib.contextmanager
def _telling_where_logs_are() -> Iterator[None]:
    """Print what an exception that is shown in a line of its own would keep to itself."""
    try:
        yield
    except BaseException as error:
        for note in getattr(error, "__notes__", ()):
            if note.startswith(WHERE):
                print(f"lattice: {note}", file=sys.stderr)
        raise


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Leave in good order when told to: all workers are gone before this process is."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    old = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    taken = [number for number, handler in old.items() if handler == signal.SIG_DFL]
    try:
        for number in taken:
            signal.signal(number, leave)
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _help_of(func: Callable[..., Any], target: Target) -> str:
    known = parameters(func)
    text = inspect.getdoc(getattr(func, "__wrapped__", func)) or ""
    about = "\n".join(["", text.rstrip(), ""]) if text else ""
    return "\n".join(
        [
            f"usage: lattice launch {target.given} [options] -- [arguments]\n",
            f"{target.names[-1]}{signature_of(func)}",
            about,
            "arguments, by place or by name:\n" + "".join(rows(known)) if known else "It takes no arguments.\n",
        ]
    )


def _keep(result: LaunchResult[Any], path: Path) -> None:
    import cloudpickle  # type: ignore[import-untyped, unused-ignore]

    whole = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        whole.write_bytes(cloudpickle.dumps(result))
        whole.replace(path)
    except Exception as error:
        whole.unlink(missing_ok=True)
        raise LatticeError(f"the results cannot be written to {path}: {error}") from error


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, default=_repr, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # odd keys, nan, or itself within
        return json.dumps(_repr(value))


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__qualname__} whose repr raised {type(error).__name__}>"
