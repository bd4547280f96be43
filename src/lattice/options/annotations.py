"""From a type annotation to a reader of words: what a parameter accepts on a command line, and what becomes of it."""

from __future__ import annotations

import os
from collections import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from lattice.options import values

LISTS = (list, abc.Sequence, abc.Iterable, abc.Collection)


SWITCH = "yes|no"


class Unreadable(TypeError):
    """There is no way to write a value of this type on a command line."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How words become a value of a type."""

    read: Callable[[Sequence[str]], object]
    """from words to a value; a ValueError means that they are not accepted"""
    accepts: str
    """for messages"""
    metavar: str
    """for usage lines"""
    order: int = 0
    """among the members of a union the lowest is tried first: any word is a text, and one word is a list"""
    many: bool = False
    """whether it takes more than one word"""
    switch: bool = False
    """whether its name alone means yes, and its name after ``no-`` no"""


def kind_of(annotation: object, *, commas: bool = False) -> Kind:
    """
    Find out how to read a type.

    :param annotation: an evaluated annotation
    :param commas: whether commas may part the texts of a list; numbers they always may
    :raises Unreadable: no words can be a value of it
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind_of(inner[0], commas=commas)
    if origin is Literal:
        return _choice({"none" if value is None else str(value): value for value in inner})
    if origin in (Union, UnionType):
        return _union(inner, commas)
    if annotation is tuple or (origin is tuple and inner[1:] == (...,)):
        return _list(inner[0] if inner else str, tuple, commas)
    if origin is tuple and inner:
        return _tuple([kind_of(one) for one in inner])
    if (origin or annotation) in LISTS:
        return _list(inner[0] if inner else str, list, commas)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _choice({one.name: one for one in annotation})
    for types, kind in PLAIN:
        if (origin or annotation) in types:
            return kind
    raise Unreadable(shown(annotation))


def shown(annotation: object) -> str:
    """Write a type as people do."""
    if isinstance(annotation, str):
        return annotation
    return annotation.__qualname__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


def _one(read: Callable[[str], object]) -> Callable[[Sequence[str]], object]:
    def reader(words: Sequence[str]) -> object:
        (word,) = words  # a ValueError if there are more
        return read(word)

    return reader


def _nothing(word: str) -> None:
    if word not in ("none", "None"):
        raise ValueError


PLAIN: tuple[tuple[tuple[object, ...], Kind], ...] = (
    ((None, NoneType), Kind(_one(_nothing), "none", "none")),
    ((bool,), Kind(_one(values.switch), "yes or no", SWITCH, switch=True)),
    ((int,), Kind(_one(int), "a whole number", "INT")),
    ((float,), Kind(_one(float), "a number", "FLOAT")),
    ((Path, os.PathLike), Kind(_one(Path), "a path", "PATH", order=1)),
    ((str, Any, object), Kind(_one(values.text), "any text", "TEXT", order=1)),
)


def _choice(choices: Mapping[str, object]) -> Kind:
    def read(word: str) -> object:
        if word not in choices:
            raise ValueError
        return choices[word]

    *most, last = choices
    return Kind(_one(read), f"{', '.join(most)} or {last}" if most else last, "|".join(choices))


def _union(members: Sequence[object], commas: bool) -> Kind:
    kinds = []
    for member in members:
        try:
            kinds.append(kind_of(member, commas=commas))
        except Unreadable:
            continue  # the others may do
    if not kinds:
        raise Unreadable(" | ".join(map(shown, members)))
    in_turn = sorted(kinds, key=lambda kind: kind.order)
    told = [kind for kind in kinds if not (kind == kind_of(str) and kind_of(Path) in kinds)]  # a path is a text

    def read(words: Sequence[str]) -> object:
        for kind in in_turn:
            try:
                return kind.read(words)
            except ValueError:
                continue
        raise ValueError

    return Kind(
        read,
        ", or ".join(dict.fromkeys(kind.accepts for kind in told)),
        "|".join(dict.fromkeys(kind.metavar for kind in told)),
        in_turn[-1].order,
        many=any(kind.many for kind in kinds),
        switch=any(kind.switch for kind in kinds),
    )


def _list(item: object, made: Callable[[Sequence[object]], object], commas: bool) -> Kind:
    kind = kind_of(item)
    if kind.many:
        raise Unreadable(f"list[{shown(item)}]")
    parted = commas or not kind.order

    def read(words: Sequence[str]) -> object:
        if list(words) == [""]:
            return made(())
        parts = [part.strip() for word in words for part in word.split(",")] if parted else words
        if parted and "" in parts:
            raise ValueError
        return made([kind.read([part]) for part in parts])

    return Kind(read, f"one or more, each {kind.accepts}", f"{kind.metavar}...", 2, many=True)


def _tuple(kinds: Sequence[Kind]) -> Kind:
    if any(kind.many for kind in kinds):
        raise Unreadable("a tuple of lists")

    def read(words: Sequence[str]) -> object:
        parts = words[0].split(",") if len(words) == 1 else words
        return tuple(kind.read([part]) for kind, part in zip(kinds, parts, strict=True))

    accepts = f"{len(kinds)} words: {', '.join(kind.accepts for kind in kinds)}"
    return Kind(read, accepts, " ".join(kind.metavar for kind in kinds), 2, many=True)
