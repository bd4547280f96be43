from __future__ import annotations

from pathlib import Path

import pytest

from lattice.process.preloading import Preload, PythonCommand, imports_any, preload_set, read_command

PYTHON = "/venv/bin/python"


def command(cwd: Path, *words: str, **environ: str) -> PythonCommand:
    found = read_command((PYTHON, *words), environ, str(cwd))
    assert isinstance(found, PythonCommand), found
    return found


@pytest.mark.parametrize(
    ("words", "options", "kind", "target"),
    [
        ("-u train.py --lr 1 -m x", "-u", "script", "train.py"),
        ("train.py", "", "script", "train.py"),
        ("-u -X dev -Wignore -W error -OO -B train.py", "-u -X dev -Wignore -W error -OO -B", "script", "train.py"),
        ("-uX dev train.py", "-uX dev", "script", "train.py"),
        ("--check-hash-based-pycs always -u train.py", "--check-hash-based-pycs always -u", "script", "train.py"),
        ("-u -- train.py", "-u", "script", "train.py"),
        ("-u -m pkg.train --lr 1", "-u", "module", "pkg.train"),
        ("-um pkg.train", "-u", "module", "pkg.train"),
        ("-umpkg.train", "-u", "module", "pkg.train"),
        ("-u -c code -m x", "-u", "code", "code"),
    ],
)
def test_a_command_line_is_taken_apart_as_python_does(
    tmp_path: Path, words: str, options: str, kind: str, target: str
) -> None:
    (tmp_path / "train.py").write_text("")
    found = command(tmp_path, *words.split())
    assert (found.options, found.kind, found.target) == (tuple(options.split()), kind, target)
    assert found.argv == (PYTHON, *words.split())
    assert found.folder == str(tmp_path)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("-I train.py", "-I keeps PYTHONPATH out"),
        ("-uE train.py", "-E keeps PYTHONPATH out"),
        ("-S train.py", "-S keeps site out"),
        ("-i train.py", "-i is for people"),
        ("-", "standard input"),
        ("", "standard input"),
        ("-u", "standard input"),
        ("-V", "-V starts no script"),
        ("--version", "--version starts no script"),
        ("-m", "lacks its argument"),
        ("app.pyz", "app.pyz is a zip file"),
    ],
)
def test_what_cannot_start_warm(tmp_path: Path, words: str, reason: str) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "app.pyz").write_bytes(b"#!/usr/bin/env python\nPK\x05\x06" + bytes(18))
    found = read_command((PYTHON, *words.split()), {}, str(tmp_path))
    assert isinstance(found, str) and reason in found


def test_where_python_looks_first(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").write_text("")
    (tmp_path / "sub" / "__main__.py").write_text("")
    (tmp_path / "linked.py").symlink_to(tmp_path / "sub" / "train.py")
    assert command(tmp_path, "sub/train.py").folder == str(tmp_path / "sub")
    assert command(tmp_path, "linked.py").folder == str(tmp_path / "sub")
    assert command(tmp_path, "sub").folder == str(tmp_path / "sub")
    assert command(tmp_path, "-m", "sub").folder == str(tmp_path)
    assert command(tmp_path, "-P", "sub/train.py").folder == ""
    assert command(tmp_path, "sub/train.py", PYTHONSAFEPATH="1").folder == ""


def chosen(tmp_path: Path, text: str, choice: str = "auto", framework: str = "generic") -> Preload:
    (tmp_path / "train.py").write_text(text)
    return preload_set(choice, framework, command(tmp_path, "train.py"), str(tmp_path))


def test_auto_takes_what_the_script_imports_at_its_top_level(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "package").mkdir()
    text = """
from __future__ import annotations
import json, os.path as path
import beside, package.inner
from xml.dom import minidom
from . import relative
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import never
else:
    import otherwise
try:
    import fast
except ImportError:
    import slow
finally:
    import always
if path.exists("x"):
    import maybe
with open("x"):
    import within
def f():
    import not_yet
class C:
    import inside
if __name__ == "__main__":
    import main_only
"""
    assert chosen(tmp_path, text).modules == (
        "json", "os.path", "xml.dom", "typing", "otherwise", "fast", "slow", "always", "maybe", "within", "main_only",
    )  # fmt: skip


def test_auto_stops_where_the_script_begins_to_set_variables(tmp_path: Path) -> None:
    text = "import os, json\nos.environ['HF_HOME'] = '/x'\nimport transformers\n"
    assert chosen(tmp_path, text).modules == ("os", "json")


@pytest.mark.parametrize(
    "setting",
    [
        "os.environ['OMP_NUM_THREADS'] = '4'",
        "os.environ.setdefault('OMP_NUM_THREADS', '4')",
        "os.environ.update({'A': '1', 'OMP_NUM_THREADS': '4'})",
        "os.environ.update(OMP_NUM_THREADS='4')",
        "os.putenv('OMP_NUM_THREADS', '4')",
        "if True:\n    os.environ['OMP_NUM_THREADS'] = '4'",
    ],
)
def test_a_variable_that_torch_would_have_read_means_no_preload(tmp_path: Path, setting: str) -> None:
    found = chosen(tmp_path, f"import os\n{setting}\nimport torch.nn as nn\n", "", "pytorch")
    assert found.modules == ()
    assert "train.py sets OMP_NUM_THREADS before it imports torch.nn" in found.note


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nimport os\nos.environ['OMP_NUM_THREADS'] = '4'",
        "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\nimport torch",
        "import os\ndef f():\n    os.environ['OMP_NUM_THREADS'] = '4'\nimport torch",
        "print(",
    ],
)
def test_the_frameworks_own_set(tmp_path: Path, text: str) -> None:
    assert chosen(tmp_path, text, "", "pytorch") == Preload(("torch", "torch.distributed"))
    assert chosen(tmp_path, text, "", "jax") == Preload(())
    assert chosen(tmp_path, text, "none", "pytorch") == Preload(())
    assert chosen(tmp_path, text, "numpy, json,", "pytorch").modules == ("torch", "torch.distributed", "numpy", "json")


def test_auto_says_why_it_sees_nothing(tmp_path: Path) -> None:
    found = chosen(tmp_path, "print(", "auto", "pytorch")
    assert found.modules == ("torch", "torch.distributed") and "train.py" in found.note


def test_modules_and_code(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__main__.py").write_text("import json, pkg.model, train")
    (tmp_path / "train.py").write_text("import csv")
    for words, modules in ((("-m", "pkg"), ("json",)), (("-m", "train"), ("csv",)), (("-c", "import this"), ("this",))):
        assert preload_set("auto", "generic", command(tmp_path, *words), str(tmp_path)).modules == modules


def test_whether_waiting_for_a_zygote_costs_nothing(tmp_path: Path) -> None:
    for text, expected in (
        ("import torch.nn", True),
        ("from torch import nn", True),
        ("import json", False),
        ("(", False),
    ):
        (tmp_path / "train.py").write_text(text)
        assert imports_any(("torch",), command(tmp_path, "train.py"), str(tmp_path)) is expected
