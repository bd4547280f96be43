from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from lattice.errors import UsageError
from lattice.options.arguments import field_docs, parameters, read_arguments, rows, signature_of
from lattice.options.help import WIDTH
from lattice.options.parsing import HelpAsked

if TYPE_CHECKING:
    from torch.nn import Module


def train(
    epochs: int, rate: float = 0.1, *, shuffle: bool = True, sizes: list[int] | None = None, mode: Literal["a"] = "a"
) -> None: ...


def anything(first, second=2, flag=False, where=Path("x"), /, *rest: int, **named: float) -> None:  # type: ignore[no-untyped-def]
    ...


def model(module: Module, path: Path | None = None) -> None: ...


def files(names: list[str], count: int = 0) -> None: ...


class Called:
    def __call__(self, number: int) -> None: ...


def called(func: Callable[..., object], words: str) -> tuple[list[object], dict[str, object]]:
    return read_arguments(words.split(), parameters(func))


@pytest.mark.parametrize(
    ("func", "words", "args", "kwargs"),
    [
        (train, "3", [3], {}),
        (train, "3 -0.5", [3, -0.5], {}),
        (train, "3 -.5", [3, -0.5], {}),
        (train, "--epochs 3 --rate=1e-3", [], {"epochs": 3, "rate": 1e-3}),
        (train, "3 --no-shuffle", [3], {"shuffle": False}),
        (train, "3 --no_shuffle --shuffle", [3], {"shuffle": True}),
        (train, "--shuffle 3", [3], {"shuffle": True}),
        (train, "3 --shuffle false", [3], {"shuffle": False}),
        (train, "3 --shuffle=0", [3], {"shuffle": False}),
        (train, "3 --sizes 1 2 --mode a", [3], {"sizes": [1, 2], "mode": "a"}),
        (train, "3 --sizes 1 --sizes 2,3", [3], {"sizes": [2, 3]}),
        (train, "3 --sizes none", [3], {"sizes": None}),
        (train, "3 --rate 1 --rate 2", [3], {"rate": 2.0}),
        (train, "-- 3", [3], {}),
        (anything, "x 5 true y 1 2 --a-b 3 --c 4", ["x", 5, True, Path("y"), 1, 2], {"a_b": 3.0, "c": 4.0}),
        (anything, "x --quick", ["x"], {"quick": True}),
        (files, "a b c", [["a", "b", "c"]], {}),
        (files, "--count 1 -- a -b", [["a", "-b"]], {"count": 1}),
        (Called(), "4", [4], {}),
        (functools.partial(train, 3), "2.5", [2.5], {}),
        (time.sleep, "5", [5], {}),
        (dataclass(type("Made", (), {"__annotations__": {"size": int}})), "5", [5], {}),
    ],
)
def test_words_become_arguments(func: Callable[..., object], words: str, args: list[Any], kwargs: Any) -> None:
    assert called(func, words) == (args, kwargs)


@pytest.mark.parametrize(
    ("func", "words", "says"),
    [
        (train, "", "--epochs is missing; give --epochs INT"),
        (train, "x", "--epochs is 'x'; accepted: a whole number"),
        (train, "3 0.1 7", "there is nothing that '7' could be for"),
        (train, "3 --epochs 4", "--epochs is given twice: by name, and as '3'"),
        (train, "3 --rate", "--rate needs a value: --rate FLOAT"),
        (train, "3 --rate --shuffle", "--rate needs a value before '--shuffle': --rate FLOAT"),
        (train, "3 --rat 4", "unknown option --rat; did you mean --rate?"),
        (train, "3 -x", "unknown option -x"),
        (train, "3 --mode b", "--mode is 'b'; accepted: a"),
        (train, "3 --sizes 1 x", "--sizes is '1 x'; accepted: one or more, each a whole number, or none"),
        (train, "3 --no-rate", "unknown option --no-rate; did you mean --rate?"),
        (anything, "", "first is missing; give it"),
        (anything, "x 1 maybe", "flag is 'maybe'; accepted: yes or no"),
        (anything, "x --a 1x", "--a is '1x'; accepted: a number"),
        (model, "x", "--module is of type Module, which cannot be written on a command line"),
        (model, "", "--module is missing; give it"),
    ],
)
def test_what_is_wrong_is_named(func: Callable[..., object], words: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        called(func, words)
    assert str(caught.value) == says


def test_help_can_be_asked_for_anywhere() -> None:
    for words in ("--help", "x -h", "--rate --help"):
        with pytest.raises(HelpAsked):
            called(train, words)
    assert called(files, "-- --help") == ([["--help"]], {})


def test_parameters_are_explained() -> None:
    text = "".join(rows([*parameters(train), *parameters(anything), *parameters(model)]))
    assert "  --epochs INT\n      a whole number [needed]\n" in text
    assert "  --rate FLOAT\n      a number [default 0.1]\n" in text
    assert "  --shuffle, --no-shuffle\n      yes or no [default yes]\n" in text
    assert "  --sizes INT...|none\n" in text
    assert "  rest...\n" in text and "  --ANY-NAME FLOAT\n" in text
    assert "  --module\n      cannot be written on a command line: Module\n" in text
    assert max(map(len, text.splitlines())) <= WIDTH
    assert signature_of(files) == "(names: list[str], count: int = 0) -> None"


def test_docstrings_under_fields_are_found() -> None:
    from lattice.launching.api import Launcher

    assert field_docs(Launcher)["timeout"].startswith("seconds for the process group")
