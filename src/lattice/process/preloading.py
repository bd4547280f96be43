"""Decides, without running anything of the user's, whether a command can start warm and what to import for it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FRAMEWORK_SETS: Mapping[str, tuple[str, ...]] = {
    # torch brings numpy along, if it is there. The others start threads while they are imported.
    "pytorch": ("torch", "torch.distributed"),
    "horovod": (),
    "tensorflow": (),
    "jax": (),
    "mpi": (),
    "generic": (),
}
FLAGS = "bBdEiIJOPqRsSuvx"
"""options of Python without a value, those aside that print something and leave"""
NO_WAY_IN = {
    "E": "-E keeps PYTHONPATH out",
    "I": "-I keeps PYTHONPATH out",
    "S": "-S keeps site out",
    "i": "-i is for people",
}
READ_BY_LIBRARIES = (
    "ATEN_", "BLIS_", "DNNL_", "GOMP_", "GOTO_", "KINETO_", "KMP_", "LD_", "MALLOC_", "MKL_", "NPY_", "NUMEXPR_",
    "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHON", "PYTORCH_", "TORCH", "VECLIB_",
)  # fmt: skip
"""how the names of variables begin that count only if they are set before torch and what it loads are imported"""


@dataclass(frozen=True, slots=True)
class PythonCommand:
    """A command line of Python, taken apart."""

    argv: tuple[str, ...]
    interpreter: str
    options: tuple[str, ...]
    """options of the interpreter, without -m and -c"""
    kind: str
    """script, module or code"""
    target: str
    """the script's path, the module's name or the code"""
    folder: str
    """where Python will look for modules first, and where the user's own are; empty for nowhere"""


@dataclass(frozen=True, slots=True)
class Preload:
    """What to import before workers are forked."""

    modules: tuple[str, ...]
    note: str = ""
    """what the user should know about it"""


def read_command(argv: Sequence[str], environ: Mapping[str, str], cwd: str) -> PythonCommand | str:
    """
    Take a command line of Python apart.

    :param argv: the interpreter and its arguments
    :param environ: the workers' environment
    :param cwd: the workers' directory
    :return: the command, or why it cannot start warm
    """
    words = list(argv[1:])
    options: list[str] = []
    safe_path = bool(environ.get("PYTHONSAFEPATH"))
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        word = words.pop(0)
        if word.startswith("--"):
            if word != "--check-hash-based-pycs" or not words:
                return f"{word} starts no script"
            options += [word, words.pop(0)]
            continue
        for position, letter in enumerate(word[1:], 1):
            rest = word[position + 1 :]
            if letter in NO_WAY_IN:
                return NO_WAY_IN[letter]
            if letter in "cm":
                if position > 1:
                    options.append(word[:position])
                target = rest or (words[0] if words else "")
                if not target:
                    return f"-{letter} lacks its argument"
                kind = "module" if letter == "m" else "code"
                return PythonCommand(tuple(argv), argv[0], tuple(options), kind, target, "" if safe_path else cwd)
            if letter in "WX":
                options.append(word)
                if not rest and words:
                    options.append(words.pop(0))
                break
            if letter not in FLAGS:
                return f"-{letter} starts no script"
            safe_path = safe_path or letter == "P"
        else:
            options.append(word)
    if words and words[0] == "--":
        words.pop(0)
    if not words or words[0] == "-":
        return "the program is read from standard input"
    script = Path(cwd, words[0])
    if script.is_file() and _is_zip(script):
        return f"{words[0]} is a zip file"
    folder = script if script.is_dir() else script.resolve().parent
    return PythonCommand(
        tuple(argv), argv[0], tuple(options), "script", words[0], "" if safe_path else str(folder.resolve())
    )


def preload_set(choice: str, framework: str, command: PythonCommand, cwd: str) -> Preload:
    """
    Choose the modules to import before workers are forked.

    :param choice: empty for the framework's own; ``none``; ``auto`` to add what the entry script imports; or names
    :param framework: name of the workers' framework
    :param command: what they execute
    :param cwd: their directory
    """
    names = FRAMEWORK_SETS.get(framework, ())
    if choice == "none":
        return Preload(())
    if choice and choice != "auto":
        wanted = [name.strip() for name in choice.split(",")]
        return Preload(tuple(dict.fromkeys((*names, *filter(None, wanted)))))
    try:
        tree = _parse(command, cwd)
    except (OSError, SyntaxError, ValueError) as error:
        # Python will say it better, to every worker.
        return Preload(names, f"cannot see what {command.target} imports: {error}" if choice else "")
    tops = {name.partition(".")[0] for name in names}
    found: list[str] = []
    settings: list[str] = []
    for event, name in _walk(tree.body):
        if event == "sets":
            settings.append(name)
        elif name.partition(".")[0] in tops:
            early = [setting for setting in settings if setting.startswith(READ_BY_LIBRARIES)]
            if early:
                return Preload((), f"{command.target} sets {early[0]} before it imports {name}: no warm starts")
            found.append(name)
        elif not settings and not _is_own(name, command, cwd):
            found.append(name)
    return Preload(tuple(dict.fromkeys((*names, *found)))) if choice == "auto" else Preload(names)


def imports_any(modules: Sequence[str], command: PythonCommand, cwd: str) -> bool:
    """
    Tell whether the entry script itself imports one of these at its top level: then waiting for a zygote costs nothing.

    :param modules: what the zygote imports
    :param command: what the workers execute
    :param cwd: their directory
    """
    try:
        body = _parse(command, cwd).body
    except (OSError, SyntaxError, ValueError):
        return False
    tops = {name.partition(".")[0] for name in modules}
    return any(event == "imports" and name.partition(".")[0] in tops for event, name in _walk(body))


def _is_zip(script: Path) -> bool:
    if script.suffix in (".py", ".pyc"):
        return False
    from zipfile import is_zipfile  # rarely needed, and it takes its time

    return is_zipfile(script)


def _parse(command: PythonCommand, cwd: str) -> ast.Module:
    if command.kind == "code":
        return ast.parse(command.target)
    file = _module_file(command.target, cwd) if command.kind == "module" else Path(cwd, command.target)
    if file.is_dir():
        file /= "__main__.py"
    return ast.parse(file.read_bytes())


def _module_file(name: str, cwd: str) -> Path:
    for folder in (cwd, *sys.path):
        base = Path(folder, *name.split("."))
        for candidate in (base / "__main__.py", base.with_name(f"{base.name}.py")):
            if candidate.is_file():
                return candidate
    raise FileNotFoundError(f"module {name} is not in a file")


def _walk(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Give imports and settings of environment variables in the order in which they happen at import time."""
    for node in body:
        match node:
            case ast.Import(names=names):
                yield from (("imports", alias.name) for alias in names)
            case ast.ImportFrom(module=str(module), level=0) if module != "__future__":
                yield "imports", module
            case ast.If(test=test) if "TYPE_CHECKING" in ast.dump(test):
                yield from _walk(node.orelse)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case _:
                yield from (("sets", name) for name in _settings(node))
                for field in ("body", "handlers", "orelse", "finalbody"):
                    for part in getattr(node, field, ()):
                        yield from _walk(part.body if isinstance(part, ast.ExceptHandler) else [part])


def _settings(node: ast.stmt) -> Iterator[str]:
    """Name the environment variables that a simple statement sets, as far as one can see."""
    match node:
        case ast.Assign(targets=[ast.Subscript(value=where, slice=key)]) if _is_environ(where):
            yield _constant(key)
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=where, attr="setdefault" | "__setitem__"), args=[key, *_])
        ):
            if _is_environ(where):
                yield _constant(key)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=where, attr="update"), args=args, keywords=keywords)):
            if _is_environ(where):
                yield from (keyword.arg or "?" for keyword in keywords)
                for arg in args:
                    yield from map(_constant, arg.keys if isinstance(arg, ast.Dict) else [arg])
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="putenv"), args=[key, *_])):
            yield _constant(key)


def _is_environ(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "environ") or (
        isinstance(node, ast.Name) and node.id == "environ"
    )


def _constant(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "?"


def _is_own(name: str, command: PythonCommand, cwd: str) -> bool:
    top = name.partition(".")[0]
    if command.kind == "module" and top == command.target.partition(".")[0]:
        return True
    folder = Path(command.folder or cwd)
    return (folder / f"{top}.py").exists() or (folder / top).is_dir()
