"""A project as a value."""

from __future__ import annotations

import os

import pytest

from lattice.errors import UsageError
from lattice.launching.sync.manifest import Entry, File, Link, Manifest, hasher, refuse_too_much, shown
from lattice.launching.sync.places import moved, moved_settings

DIGEST = hasher(b"x").hexdigest()


def test_it_arrives_as_it_was_whatever_names_are_made_of() -> None:
    odd = os.fsdecode(b"\xff\n\"'\x01")
    manifest = Manifest(odd, {odd: File(DIGEST, 1, 0o755), "empty": File(DIGEST, 0, 0o600), "link": Link(f"../{odd}")})
    again = Manifest.decode(manifest.encode())
    assert again == manifest and again.identity == manifest.identity
    assert manifest.contents == {DIGEST: 1}


def test_any_change_is_another_identity() -> None:
    plain = File(DIGEST, 1, 0o644)
    entries: list[dict[str, Entry]] = [{"a": plain}, {"a": File(DIGEST, 1, 0o755)}, {"b": plain}, {"a": Link(DIGEST)}]
    assert len({Manifest("p", one).identity for one in entries} | {Manifest("q", entries[0]).identity}) == 5
    there, back = (Manifest("p", dict.fromkeys(names, plain)) for names in ("ab", "ba"))
    assert there.identity == back.identity


def test_which_preloaded_modules_may_be_of_it() -> None:
    manifest = Manifest("p", {"src/model/__init__.py": File(DIGEST, 1, 0), "tools.py": File(DIGEST, 1, 0)})
    assert manifest.has_module(["torch", " model.layers"]) and manifest.has_module(["tools"])
    assert not manifest.has_module(["torch", "mode", "py"]) and not manifest.has_module([])


def test_too_much_is_refused_and_the_largest_is_named() -> None:
    sizes = {f"data/raw/{number}.bin": 20_000_000 for number in range(25)} | {"weights": 90_000_000, "a/b/c.py": 10}
    refuse_too_much("/p", sizes, most_bytes=10**9)
    with pytest.raises(UsageError) as told:
        refuse_too_much("/p", sizes)
    assert "/p has 27 files with 590 MB, more than is sent to hosts (50000 files, 500 MB)" in str(told.value)
    assert "The largest: data/raw/ (25 files, 500 MB), weights (1 file, 90 MB), a/b/c.py (1 file, 10 bytes)." in str(
        told.value
    )
    assert "Put what the hosts do not need into .gitignore" in str(told.value)
    with pytest.raises(UsageError, match=r"The largest: data/raw/ \(25 files, 500 MB\), "):
        refuse_too_much("/p", sizes, most_bytes=10**9, most_files=26)


def test_sizes_for_people() -> None:
    assert [shown(size) for size in (0, 999, 1000, 12_345, 999_999, 1.5e9, 2e12)] == [
        "0 bytes", "999 bytes", "1 kB", "12.3 kB", "1000 kB", "1.5 GB", "2000 GB",
    ]  # fmt: skip


def test_paths_of_the_caller_are_those_of_the_host() -> None:
    inside = {"/p": ".", "/p/src": "src", "/p/..": ".."}
    assert [moved(path, inside, "/tmp/x") for path in ("/p", "/p/src", "/p/..", "/else")] == [
        "/tmp/x",
        "/tmp/x/src",
        "/tmp",
        "/else",
    ]
    assert moved("/p/src", inside, "") == "/p/src", "the folder is here"
    settings = {"cwd": "/p", "variables": {"PYTHONPATH": "/p/src:/else", "A": "/p"}, "inside": inside}
    moved_there = moved_settings(settings, "/tmp/x")
    assert moved_there["cwd"] == "/tmp/x" and moved_there["variables"] == {"PYTHONPATH": "/tmp/x/src:/else", "A": "/p"}
