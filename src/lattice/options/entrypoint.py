"""From the words of an entry point to a command that can be executed, or to one line that says why not."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lattice.core.spec import Command
from lattice.errors import UsageError

PYTHON = re.compile(r"(python|pypy)[0-9.]*")
PYTHON_FILES = (".py", ".pyc", ".pyz")


def search_path(environ: Mapping[str, str]) -> str:
    """Give the folders in which programs are looked for."""
    return environ.get("PATH", os.defpath)


def module_command(words: Sequence[str], interpreter: str) -> Command:
    """
    Run a module of Python, as ``python -m`` does.

    :param words: the module and its arguments
    :param interpreter: the Python to run it with
    """
    if words[0].endswith(".py") or "/" in words[0]:
        raise UsageError(
            f"{words[0]!r} is a file, not a module: leave out -m (LATTICE_MODULE), or write package.module"
        )
    return Command((interpreter, "-u", "-m", *words), shlex.join(("-m", *words)), python=True)


def has_module(name: str) -> bool:
    """Tell whether this interpreter would find a module, or the package that it is in, from the working directory."""
    from importlib.util import find_spec

    sys.path.insert(0, str(Path.cwd()))
    try:
        return find_spec(name.partition(".")[0]) is not None
    except ValueError:  # it is loaded, and was not found in any of the usual ways
        return True
    finally:
        del sys.path[0]


def plain_command(words: Sequence[str], path: str) -> Command:
    """
    Run a program as it is.

    :param words: the program and its arguments
    :param path: folders to look for it, as in PATH
    """
    return Command((_program(words[0], path), *words[1:]), shlex.join(words))


def command(words: Sequence[str], environ: Mapping[str, str], interpreter: str, *, scripts_first: bool) -> Command:
    """
    Find out what an entry point is, and how to run it.

    :param words: the entry point and its arguments
    :param environ: its PATH is where programs are looked for
    :param interpreter: the Python that runs scripts
    :param scripts_first: whether a file goes before a program of the same name, and a text is taken for Python
    """
    name, path = words[0], search_path(environ)
    if not name:
        raise UsageError("the entry point is an empty word; give a script or a program")
    if name.endswith(PYTHON_FILES) or _is_python(name, path, scripts_first=scripts_first):
        _check_script(name)
        return Command((interpreter, "-u", *words), shlex.join(words), python=True)
    if PYTHON.fullmatch(name.rpartition("/")[2]):
        program = _python(name, path, interpreter)
        return Command((program, *_unbuffered(words[1:])), shlex.join(words), python=True)
    return plain_command(words, path)


def _is_python(name: str, path: str, *, scripts_first: bool) -> bool:
    """Tell whether a name without a suffix is a file (or a folder with ``__main__.py``) for Python."""
    file = Path(name)
    if "/" not in name and not scripts_first and _search(name, path):
        return False
    if file.is_dir():
        return (file / "__main__.py").is_file()
    if not file.is_file() or (os.access(file, os.X_OK) and not scripts_first):
        return False
    try:
        with file.open("rb") as opened:
            start = opened.read(1024)
    except OSError:
        return False
    first = start.split(b"\n", 1)[0]
    if first.startswith(b"#!"):
        return b"python" in first
    return scripts_first and b"\0" not in start


def _python(name: str, path: str, interpreter: str) -> str:
    # A virtual environment that is used without being activated has no python on PATH, yet this one is meant.
    if name in ("python", "python3") and not _search(name, path):
        return interpreter
    return _program(name, path)


def _unbuffered(arguments: Sequence[str]) -> tuple[str, ...]:
    """Add -u to the options of an interpreter, so that no line is lost in a buffer; check that its script exists."""
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word.startswith("--"):
            rest = rest[1:] if word == "--check-hash-based-pycs" else rest
            continue
        for position, letter in enumerate(word[1:], 1):
            if letter in "cm":
                return ("-u", *arguments)
            if letter == "u":
                return tuple(arguments)
            if letter in "WX":
                rest = rest if word[position + 1 :] else rest[1:]
                break
    if rest and rest[0] != "-":
        _check_script(rest[0])
    return ("-u", *arguments)


def _check_script(name: str) -> None:
    file = Path(name)
    if not file.exists():
        raise UsageError(f"entry point {name!r} not found, looked for {file.absolute()}")
    if file.is_dir() and not (file / "__main__.py").is_file():
        raise UsageError(_directory(name))
    if not os.access(file, os.R_OK):
        raise UsageError(f"entry point {name!r} cannot be read: permission denied for {file.absolute()}")


def _program(name: str, path: str) -> str:
    file = Path(name)
    if "/" not in name:
        if found := _search(name, path):
            return found
        if file.is_dir():
            raise UsageError(_directory(name))
        if file.is_file():
            hint = f"there is {file.absolute()}: start it with ./{name}, or with python {name}"
        else:
            hint = f"there is no {file.absolute()} either"
        raise UsageError(f"entry point {name!r} not found in PATH ({path}); {hint}")
    if not file.exists():
        raise UsageError(f"entry point {name!r} not found, looked for {file.absolute()}")
    if file.is_dir():
        raise UsageError(_directory(name))
    if not os.access(file, os.X_OK):
        raise UsageError(f"entry point {name!r} is not executable; chmod +x it, or start it with its interpreter")
    return name


def _directory(name: str) -> str:
    return f"entry point {name!r} is a directory without a __main__.py; give a script or a program"


def _search(name: str, path: str) -> str:
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder or os.curdir, name)  # noqa: PTH118 - a Path would drop the ./ that exec needs
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):  # noqa: PTH113
            return candidate
    return ""
