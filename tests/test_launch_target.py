from __future__ import annotations

import inspect
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from traceback import format_exception

import pytest

from lattice.errors import UsageError
from lattice.launch_target import NotImported, find, parse_target

TRAIN = """
import sibling
LR = 0.5

def main(epochs: int) -> int:
    return epochs * sibling.FACTOR

async def later(): ...

class Trainer:
    def __init__(self, factor: int = 3) -> None:
        self.factor = factor
    def fit(self, count: int) -> int:
        return self.factor * count
    @staticmethod
    def still(count: int) -> int:
        return count
    @classmethod
    def made(cls, count: int) -> str:
        return cls.__name__ * count

class Needy:
    def __init__(self, size): ...
    def fit(self): ...
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to be in, from which whatever is imported is forgotten again."""
    (tmp_path / "own_train.py").write_text(TRAIN)
    (tmp_path / "sibling.py").write_text("FACTOR = 2\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_module_of_the_working_directory() -> None:
    assert find(parse_target("own_train:main"))(4) == 8
    assert sys.path[0] == str(Path.cwd())


def test_a_file_finds_its_siblings_from_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere := folder / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    assert find(parse_target("../own_train.py:main"))(4) == 8
    assert sys.path[0] == str(folder)


def test_the_folder_of_the_command_is_not_searched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (programs := folder / "bin").mkdir()
    monkeypatch.setattr(sys, "argv", [str(programs / "lattice")])
    sys.path.insert(0, str(programs))
    find(parse_target("own_train:main"))
    assert str(programs) not in sys.path


def test_methods() -> None:
    fit = find(parse_target("own_train:Trainer.fit"))
    assert fit(5) == 15
    assert list(inspect.signature(fit).parameters) == ["count"]
    assert pickle.loads(pickle.dumps(fit))(5) == 15, "it travels"
    assert find(parse_target("own_train:Trainer.still"))(5) == 5
    assert find(parse_target("own_train:Trainer.made"))(1) == "Trainer"
    assert find(parse_target("own_train:Trainer"))(4).factor == 4


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("own_train", "'own_train' names no function: write MODULE:FUNCTION"),
        (":main", "names no function"),
        ("own_train:", "names no function"),
        ("own_train:a-b", "names no function"),
        ("own-train:main", "'own-train' is no name of a module"),
        (".own_train:main", "is no name of a module"),
        ("nowhere.py:main", "there is no file 'nowhere.py' in "),
        ("./own_train:main", "there is no file './own_train'; did you mean ./own_train.py:main?"),
        ("dotted.name.py:main", "without further dots"),
        ("own_trian:main", "No module named 'own_trian'; did you mean own_train?"),
        ("own_train.more:main", "'own_train' is not a package"),
        ("own_train:mian", "own_train has no 'mian'; did you mean main?"),
        ("own_train:zzz", "own_train has no 'zzz'; it has Needy, Trainer, later, main"),
        ("own_train:Trainer.fti", "own_train:Trainer has no 'fti'; did you mean fit?"),
        ("own_train:LR", "own_train:LR is a value of type float"),
        ("own_train:later", "own_train:later is asynchronous"),
        ("own_train:Needy.fit", "Needy cannot be made without size"),
        ("json.py:main", "the name json belongs to "),
    ],
)
def test_what_cannot_be_found_is_named(given: str, says: str, folder: Path) -> None:
    (folder / "dotted.name.py").touch()
    (folder / "json.py").touch()
    with pytest.raises(UsageError) as caught:
        find(parse_target(given))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shows", "says"),
    [
        ("import not_there_at_all", "line 1, in <module>\n    import not_there_at_all\n", "see above"),
        ("def f(:", "SyntaxError", "see above"),
        ("x = 1\n1 / 0", "line 2, in <module>", "see above"),
        ("import sys; sys.exit(3)", "SystemExit: 3", "if __name__ == '__main__':"),
        ("from . import other", "ImportError", "as in PACKAGE.broken:main"),
    ],
)
def test_a_module_that_fails_shows_its_own_traceback(text: str, shows: str, says: str, folder: Path) -> None:
    (folder / "broken.py").write_text(text)
    with pytest.raises(NotImported, match=r"broken\.py could not be imported") as caught:
        find(parse_target("broken.py:main"))
    assert says in str(caught.value)
    shown = "".join(format_exception(caught.value.cause))
    assert shows in shown
    assert "launch_target" not in shown and "importlib" not in shown
