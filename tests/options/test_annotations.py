from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union

import pytest

from lattice.options.annotations import Unreadable, kind_of


class Color(Enum):
    RED = "r"
    BLUE = "b"


@pytest.mark.parametrize(
    ("annotation", "words", "value"),
    [
        (int, "-3", -3),
        (float, "1e-4", 1e-4),
        (str, "none", "none"),
        (Any, "x", "x"),
        (Path, "a/b", Path("a/b")),
        (os.PathLike[str], "a", Path("a")),
        (bool, "yes", True),
        (bool, "0", False),
        (Annotated[int, "of something"], "4", 4),
        (Literal["a", 2, None], "2", 2),
        (Literal["a", 2, None], "none", None),
        (Color, "BLUE", Color.BLUE),
        (Optional[int], "None", None),  # noqa: UP045
        (int | None, "none", None),
        (int | None, "5", 5),
        (Union[str, int], "5", 5),  # noqa: UP007
        (str | Path | None, "x", "x"),
        (list[int], "1 2", [1, 2]),
        (list[int], "1,2 3", [1, 2, 3]),
        (list, "a b", ["a", "b"]),
        (list[str], "a,b c", ["a,b", "c"]),
        (Sequence[float], "1", [1.0]),
        (tuple[str, ...], "a b", ("a", "b")),
        (tuple[int, str], "1 b", (1, "b")),
        (tuple[int, int], "3,4", (3, 4)),
        (list[Color], "RED BLUE", [Color.RED, Color.BLUE]),
        (int | list[int] | Literal["auto"], "2", 2),
        (int | list[int] | Literal["auto"], "2 4", [2, 4]),
        (int | list[int] | Literal["auto"], "2,4", [2, 4]),
        (int | list[int] | Literal["auto"], "auto", "auto"),
        (Literal["auto"] | bool, "auto", "auto"),
        (logging.Handler | int, "7", 7),
    ],
)
def test_words_become_what_the_annotation_says(annotation: object, words: str, value: object) -> None:
    read = kind_of(annotation).read(words.split())
    assert read == value and type(read) is type(value)


def test_commas_part_texts_only_where_it_is_said() -> None:
    hosts = kind_of(list[str] | Literal["auto"], commas=True)
    assert hosts.read(["a,b", "c"]) == ["a", "b", "c"]
    assert hosts.read(["auto"]) == "auto"
    assert hosts.read([""]) == []
    with pytest.raises(ValueError):
        hosts.read(["a,,b"])


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "1.5"),
        (int, "1 2"),
        (float, "x"),
        (bool, "maybe"),
        (Literal["a", "b"], "c"),
        (Color, "b"),
        (int | None, ""),
        (list[int], "1 x"),
        (list[int], "1,,2"),
        (tuple[int, int], "1 2 3"),
        (Literal["auto"] | bool, "maybe"),
    ],
)
def test_other_words_are_refused(annotation: object, words: str) -> None:
    with pytest.raises(ValueError):
        kind_of(annotation).read(words.split() or [""])


@pytest.mark.parametrize("annotation", [logging.Handler, dict[str, int], list[list[int]], "Unknown", bytes])
def test_what_cannot_be_written(annotation: object) -> None:
    with pytest.raises(Unreadable):
        kind_of(annotation)


def test_how_they_are_told_of() -> None:
    kind = kind_of(int | list[int] | Literal["auto", "cpu"])
    assert (kind.metavar, kind.many, kind.switch) == ("INT|INT...|auto|cpu", True, False)
    assert kind.accepts == "a whole number, or one or more, each a whole number, or auto or cpu"
    assert kind_of(str | Path | None).metavar == "PATH|none"
    assert kind_of(bool).switch and kind_of(Literal["auto"] | bool).switch
