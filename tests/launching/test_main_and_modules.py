"""Functions and classes of wherever: ``__main__``, closures, modules beside the script, modules a host lacks."""

from __future__ import annotations

from pathlib import Path

from tests.launching.workers import run_script

BEGINNING = """
import contextlib, functools, os, sys
from dataclasses import dataclass
from enum import Enum
from tests.launching.workers import one, run
from lattice.launching.task import Task
"""


def test_all_that_main_defines_travels_and_comes_home_as_what_it_was(tmp_path: Path) -> None:
    run_script(
        tmp_path,
        BEGINNING
        + """
FACTOR = 3

class Base:
    factor = 1
    def times(self):
        global FACTOR
        return self.factor * FACTOR

@dataclass
class Net(Base):
    weight: int
    def double(self, by=2):
        return Net(self.weight * by)
    def grand(self):
        return super().times() + self.weight

class Color(Enum):
    RED = 1

class Mine(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")
        self.second = second

def train(net):
    return Net(net.weight + FACTOR), Color.RED, [Base]

def fails():
    raise Mine(1, second=Net(2))

def outer(number):
    def inner():
        return number + FACTOR
    return inner

def task_of_many(net):
    return [f() for f in (functools.partial(train, net), net.double, outer(1), lambda: Color.RED)]

methods = dict(vars(Net)), dict(vars(Base))
(trained, color, (base,)), doubled, closed, red = one(task_of_many, Net(5)).value()
assert type(trained) is Net and trained == Net(8), trained
assert type(doubled) is Net and doubled == Net(10)
assert closed == 4 and red is Color.RED is color and base is Base
FACTOR = 7
assert trained.grand() == 7 + 8                # methods are still those of this script, with its globals
for cls, before in zip((Net, Base), methods):
    assert {name: vars(cls)[name] for name in before} == before
for func in (functools.partial(train, Net(1)), Net(2).double, outer(1), lambda: 1):
    assert one(func).left.__class__.__name__ == "Result"
assert one(functools.partial(Net(2).double, by=4)).value() == Net(8)
try:
    raise one(fails).exception()
except Mine as error:
    assert type(error.second) is Net and error.args == ("1 and Net(weight=2)",), error.args
""",
    )


def test_main_looks_like_the_caller_s(tmp_path: Path) -> None:
    run_script(
        tmp_path,
        BEGINNING
        + """
class Net:
    pass

class Unnamed:
    pass

class Around(contextlib.ContextDecorator):
    def __enter__(self): pass
    def __exit__(self, *error): pass

@Around()                                                   # a function of another module, under our name
def decorated(other):
    return train(other)

class Callable:
    def __call__(self, other):
        return train(other)

def train(other):
    import pickle, sys
    import __main__
    assert __main__.Net is Net and __main__.train is train
    assert __main__.__file__ == caller, __main__.__file__
    again = pickle.loads(pickle.dumps((Net(), other)))      # as torch.save does
    return [type(one).__name__ for one in again], sys.argv, sorted(k for k in os.environ if "LATTICE_LAUNCH" in k)

if __name__ == "__main__":
    caller = __file__
    sys.argv.append("--lr=1")
    for func in (train, functools.partial(decorated), Callable(), Callable().__call__):
        names, argv, variables = one(func, Unnamed()).value()
        assert names == ["Net", "Unnamed"] and argv == sys.argv and not variables, (names, argv, variables)
""",
    )


def test_modules_beside_the_script_are_found_from_another_folder(tmp_path: Path) -> None:
    (tmp_path / "sibling.py").write_text("import inner.deep\nclass Kind: pass\ndef make(): return Kind()\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "deep.py").write_text("VALUE = 5\n")
    (tmp_path / "lazy.py").write_text("VALUE = 6\n")
    run_script(
        tmp_path,
        BEGINNING
        + """
import sibling

def lazily():
    import lazy
    return lazy.VALUE, lazy.__file__

assert type(one(sibling.make).value()) is sibling.Kind
assert one(lazily).value()[0] == 6
""",
    )


def test_modules_that_a_host_does_not_have_come_along(tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    folder = tmp_path / "away"
    (folder / "sibling.py").write_text(
        "import threading\nfrom package.part import VALUE\nLOCK = threading.Lock()\nCALLS = []\n"
        "class Kind: pass\n"
        "def make():\n    CALLS.append(1)\n    import sibling\n    return Kind(), sibling.CALLS, VALUE\n"
        "def fail():\n    raise ValueError('here')\n"
    )
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "part.py").write_text("VALUE = 7\n")
    out = run_script(
        folder,
        BEGINNING
        + """
import sibling
# The folder is gone when workers start: as on a host that does not share it.
from lattice.launching import task
def packed(todo, sources=True, pack=task.pack):
    parcel = pack(todo, sources=sources)
    os.rename(os.path.dirname(__file__), os.path.dirname(__file__) + "-gone")
    return parcel
import tests.launching.workers as workers
workers.pack = packed
back = lambda: os.rename(os.path.dirname(__file__) + "-gone", os.path.dirname(__file__))
kind, calls, value = one(sibling.make).value()
assert type(kind) is sibling.Kind and calls == [1] and value == 7
back()
failed = one(sibling.fail)
assert b"raise ValueError('here')" in failed.stderr, failed.stderr     # lines of source, although there is no file
back()
def own_failure():
    raise ValueError("of the script")
failed = one(own_failure)
assert b'raise ValueError("of the script")' in failed.stderr, failed.stderr
back()
without = run(Task(sibling.make, (), {}, None), sources=False)[0].exception()
assert type(without) is ModuleNotFoundError and "sibling" in str(without)
print("\\n".join(without.__notes__))
""",
    )
    assert "does not find on this host" in out
