"""Rules of .gitignore files do what git does with them, and some things are never sent."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from lattice.launching.sync.listing import _by_walking
from lattice.launching.sync.rules import Listed, choose, ignored, parse
from tests.launching.sync.far import write

PIECES = (
    "a", "b", "ab", "*", "**", "?", "a*", "*b", "[ab]", "[!a]", "a?", r"\*", "c.txt", "*.txt", " a", "a ", "#a", r"\#a",
    "!a", "[a-b]*", "[^b]", "[[:alpha:]]", "[[:digit:]x]", r"a\ ", r"\!a", "[]a]", r"[\]b]",
)  # fmt: skip
"""forms that git documents; of others, such as a**/b, it makes something else than it says"""
NAMES = ("a", "b", "ab", "c.txt", "#a", "!a", " a", "a ", "*", "b.txt", "aab", "]")
SEEDS = 150


def some_rule(chance: random.Random) -> str:
    text = "/".join(chance.choice(PIECES) for _ in range(chance.choice((1, 1, 1, 2, 2, 3))))
    return "!" * (chance.random() < 0.3) + "/" * (chance.random() < 0.25) + text + "/" * (chance.random() < 0.25)


def some_tree(chance: random.Random, root: Path) -> None:
    folders = [root]
    for _ in range(chance.randint(1, 6)):
        folder = chance.choice(folders) / chance.choice(NAMES)
        if not folder.exists():
            folder.mkdir()
            folders.append(folder)
    for _ in range(chance.randint(3, 14)):
        file = chance.choice(folders) / chance.choice(NAMES)
        if not file.exists():
            file.touch()
    for folder in chance.sample(folders, min(len(folders), chance.choice((1, 1, 2, 3)))):
        lines = "\n".join(some_rule(chance) for _ in range(chance.randint(1, 4))) + chance.choice(("", "\n", "\r\n"))
        (folder / ".gitignore").write_text(lines, newline="")


def test_random_rules_ignore_what_git_ignores(tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/bin:/bin:/usr/local/bin"}
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "git")], env=variables, check=True)
    for seed in range(SEEDS):
        root = tmp_path / str(seed)
        root.mkdir()
        some_tree(random.Random(seed), root)
        words = ["git", "--git-dir", str(tmp_path / "git"), "--work-tree", str(root), "ls-files", "-zo"]
        said = subprocess.run([*words, "--exclude-standard"], cwd=root, env=variables, capture_output=True, check=True)
        expected = set(filter(None, said.stdout.decode().split("\0")))
        found = {one.path for one in _by_walking(str(root), "", ())}
        texts = {str(path.relative_to(root)): path.read_text() for path in root.rglob(".gitignore")}
        assert found == expected, (seed, texts)


@pytest.mark.parametrize(
    ("line", "path", "expected"),
    [
        ("*.log", "deep/x.log", True),
        ("/build", "deep/build", False),
        ("doc/*.txt", "doc/deep/x.txt", False),
        ("doc/**/x.txt", "doc/a/b/x.txt", True),
        ("**/logs", "a/b/logs", True),
        ("out/**", "out", False),
        ("out/**", "out/x", True),
        ("only/", "only", False),
        ("# *", "# x", False),
        ("trailing   ", "trailing", True),
        ("kept\\ ", "kept ", True),
        ("[[:nonsense:]]", "a", False),
        ("[open", "[open", False),
        ("back\\", "back\\", False),
        ("new\nline", "new\nline", False),
    ],
)
def test_documented_forms(line: str, path: str, expected: bool) -> None:
    assert ignored([("", parse(line))], path, folder=False) is expected


def test_what_is_never_sent_and_what_only_if_git_tracks_it() -> None:
    untracked = [
        "train.py", "data/x", "lib/.git/config", "a/__pycache__/b.pyc", ".venv/bin/python", "mine/pyvenv.cfg",
        "mine/lib/x.py", ".env", "conf/.env.local", ".env.example", "certs/server.pem", ".ssh/config", "pyvenv.cfg",
        "node_modules/x/y.js",
    ]  # fmt: skip
    sent, secret = choose(Listed(path, False) for path in untracked)
    assert sent == [".env.example", "data/x", "pyvenv.cfg", "train.py"]
    assert secret == [".env", ".ssh/config", "certs/server.pem", "conf/.env.local"]
    sent, secret = choose(Listed(path, True) for path in untracked)
    assert not secret
    assert set(untracked) - set(sent) == {"lib/.git/config", "a/__pycache__/b.pyc"}


def test_an_ignored_folder_is_not_even_looked_into(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "data/\n!data/kept\n", "data/kept": "", "data/.gitignore": "!kept\n", "x": ""})
    (tmp_path / "data").chmod(0)
    try:
        assert [one.path for one in _by_walking(str(tmp_path), "", ())] == [".gitignore", "x"]
    finally:
        (tmp_path / "data").chmod(0o755)
