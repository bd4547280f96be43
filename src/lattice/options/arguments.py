"""The words of a command line become the arguments of a function, as its signature wants them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Literal, Optional, Union

from lattice.errors import UsageError
from lattice.options.annotations import SWITCH, Kind, Unreadable, kind_of, shown
from lattice.options.help import wrapped
from lattice.options.parsing import HelpAsked, guess, is_value

BY_PLACE = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
OFTEN = {"Path": Path, "Any": Any, "Literal": Literal, "Optional": Optional, "Sequence": Sequence, "Union": Union}
"""names that modules often import for type checkers only"""
COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class UnknownWord(UsageError):
    """A word for which there is no parameter."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function, as a command line sees it."""

    name: str
    form: Any
    """as :class:`inspect.Parameter` calls it"""
    type: str
    """for people"""
    kind: Kind | None
    """None if no words can be its value"""
    default: object = inspect.Parameter.empty
    help: str = ""

    @property
    def required(self) -> bool:
        """Whether the function cannot be called without it."""
        return self.default is inspect.Parameter.empty and self.form not in COLLECTING

    @property
    def flag(self) -> str:
        """How it is called by name."""
        return "--" + self.name.replace("_", "-")

    @property
    def title(self) -> str:
        """How messages call it."""
        return self.flag if self.form in BY_NAME else self.name

    def value(self, words: Sequence[str]) -> object:
        """Read its value, or one of them if it collects several."""
        if self.kind is None:
            raise UsageError(f"{self.title} is of type {self.type}, which cannot be written on a command line")
        try:
            return self.kind.read(words)
        except ValueError:
            given = " ".join(words)
            raise UsageError(f"{self.title} is {given!r}; accepted: {self.kind.accepts}") from None


def parameters(func: Callable[..., object], *, commas: bool = False) -> tuple[Parameter, ...]:
    """
    Describe what a function takes.

    :param func: anything that can be called
    :param commas: whether commas may part the texts of a list
    """
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):  # some of those that are written in C
        return (Parameter("args", inspect.Parameter.VAR_POSITIONAL, "", kind_of(int | float | str)),)
    names = _globals(func)
    return tuple(_parameter(one, names, commas) for one in signature.parameters.values())


def signature_of(func: Callable[..., object]) -> str:
    """Write the signature of a function as it is written in its source."""
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):
        return "(...)"
    plain = [one.replace(annotation=_unquoted(one.annotation)) for one in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=_unquoted(signature.return_annotation)))


class _Unquoted(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _unquoted(annotation: object) -> object:
    return _Unquoted(annotation) if isinstance(annotation, str) else annotation


def read_arguments(words: Sequence[str], known: Sequence[Parameter]) -> tuple[list[object], dict[str, object]]:
    """
    Read a command line.

    :param words: ``--name value``, ``--flag``, ``--no-flag``, and words that are taken in the order of parameters, as
        in a call; after ``--`` all are of the latter sort
    :param known: what there is to give
    :return: what to call the function with, by place and by name
    :raises UsageError: names the parameter that is wrong, missing, unknown or given twice
    :raises HelpAsked: one of the words asks for help
    """
    named, rest = _split(words, known)
    args: list[object] = []
    for one in (one for one in known if one.form in BY_PLACE):
        if one.form is inspect.Parameter.VAR_POSITIONAL:
            args += [one.value([word]) for word in rest]
            rest = []
        elif rest:
            if one.name in named:
                raise UsageError(f"{one.title} is given twice: by name, and as {rest[0]!r}")
            taken = len(rest) if one.kind is not None and one.kind.many else 1
            args.append(one.value(rest[:taken]))
            rest = rest[taken:]
    if rest:
        raise UnknownWord(f"there is nothing that {rest[0]!r} could be for")
    placed = [one.name for one in known if one.form in BY_PLACE][: len(args)]
    for one in known:
        if one.required and one.name not in named and one.name not in placed:
            how = f"give {one.flag} {one.kind.metavar}" if one.form in BY_NAME and one.kind else "give it"
            raise UsageError(f"{one.title} is missing; {how}")
    return args, {
        name: given if given is True or given is False else one.value(given) for name, (one, given) in named.items()
    }


def _split(
    words: Sequence[str], known: Sequence[Parameter]
) -> tuple[dict[str, tuple[Parameter, list[str] | bool]], list[str]]:
    """Part what is given by name from what is given by place."""
    by_name = {one.name: one for one in known if one.form in BY_NAME}
    others = next((one for one in known if one.form is inspect.Parameter.VAR_KEYWORD), None)
    named: dict[str, tuple[Parameter, list[str] | bool]] = {}
    placed: list[str] = []
    rest = list(words)
    if {"-h", "--help"} & set(rest[: rest.index("--") if "--" in rest else None]):
        raise HelpAsked
    while rest:
        word = rest.pop(0)
        if word == "--":
            return named, placed + rest
        if is_value(word):
            placed.append(word)
            continue
        spelling, equals, value = word.partition("=")
        name = spelling[2:].replace("-", "_") if spelling.startswith("--") else ""
        negated = by_name.get(name.removeprefix("no_")) if name.startswith("no_") else None
        one = by_name.get(name)
        if one is None and negated is not None and negated.kind is not None and negated.kind.switch and not equals:
            named[negated.name] = negated, False
            continue
        if one is None and others is not None and name.isidentifier():
            one = replace(others, name=name, form=inspect.Parameter.KEYWORD_ONLY)
        if one is None:
            flags = [other.flag for other in by_name.values()]
            raise UnknownWord(f"unknown option {spelling}{guess('--' + name.replace('_', '-'), flags)}")
        named[name] = one, [value] if equals else _following(rest, one, alone=name not in by_name)
    return named, placed


def _following(rest: list[str], one: Parameter, *, alone: bool) -> list[str] | bool:
    """Take the words that follow the name of a parameter, if they are its value."""
    kind = one.kind
    taken: list[str] = []
    while rest and is_value(rest[0]) and (not taken or (kind is not None and kind.many)):
        if kind is not None and kind.switch and not _reads(kind, rest[0]):
            break
        taken.append(rest.pop(0))
    if taken:
        return taken
    if alone or (kind is not None and kind.switch):
        return True
    metavar = kind.metavar if kind is not None else one.type
    raise UsageError(f"{one.flag} needs a value{f' before {rest[0]!r}' if rest else ''}: {one.flag} {metavar}")


def _reads(kind: Kind, word: str) -> bool:
    try:
        kind.read([word])
    except ValueError:
        return False
    return True


def rows(known: Sequence[Parameter]) -> Iterator[str]:
    """Explain parameters, as the help does."""
    for one in known:
        yield f"  {_spelling(one)}\n" + wrapped(_explained(one), 6)


def written(value: object) -> str:
    """Write a default as it would be given."""
    if isinstance(value, list | tuple):
        return " ".join(map(written, value))
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _spelling(one: Parameter) -> str:
    metavar = one.kind.metavar if one.kind is not None else ""
    match one.form:
        case inspect.Parameter.VAR_POSITIONAL:
            return f"{one.name}..."
        case inspect.Parameter.VAR_KEYWORD:
            return f"--ANY-NAME {metavar}"
        case inspect.Parameter.POSITIONAL_ONLY:
            return one.name
    if one.kind is not None and one.kind.switch:
        off = f", --no-{one.flag[2:]}" if one.default is not False else ""
        return one.flag + off + (f", {one.flag} {metavar}" if metavar != SWITCH else "")
    return f"{one.flag} {metavar}".rstrip()


def _explained(one: Parameter) -> str:
    if one.kind is None:
        return f"cannot be written on a command line: {one.type}"
    aside = "" if one.form in COLLECTING else "needed" if one.required else f"default {written(one.default)}"
    if one.default is False or one.default == () or one.default == "":
        aside = ""  # goes without saying
    return (one.help or one.kind.accepts) + (f" [{aside}]" if aside else "")


def field_docs(cls: type) -> dict[str, str]:
    """Find the docstrings under the fields of a class."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    docs = {}
    for before, after in zip(tree.body, tree.body[1:], strict=False):
        match before, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
    return docs


def _parameter(one: inspect.Parameter, names: dict[str, Any], commas: bool) -> Parameter:
    annotation: object = one.annotation
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, {**OFTEN, **names})
        except Exception:
            pass  # imported for type checkers only, perhaps
    if annotation is inspect.Parameter.empty:
        annotation = _type_of(one.default)
    try:
        kind = kind_of(annotation, commas=commas)
    except Unreadable:
        kind = None
    return Parameter(one.name, one.kind, shown(annotation), kind, one.default)


def _type_of(default: object) -> object:
    """Guess what is wanted in the place of a default."""
    if isinstance(default, list) and default:
        return list[type(default[0])]  # type: ignore[misc]
    if isinstance(default, Path):
        return Path  # which makes objects of another class
    return type(default) if isinstance(default, bool | int | float | list | Enum) else str


def _globals(func: object) -> dict[str, Any]:
    func = inspect.unwrap(func) if callable(func) else func
    while isinstance(func, partial):
        func = func.func
    if isinstance(func, type):
        func = func.__init__  # type: ignore[misc]
    func = getattr(func, "__func__", func)
    if not hasattr(func, "__globals__"):
        func = getattr(type(func), "__call__", None)  # noqa: B004
    return dict(getattr(func, "__globals__", {}))
