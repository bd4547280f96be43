"""Contents on a host, and projects laid out of them."""

from __future__ import annotations

import io
import os
import threading
import time
from pathlib import Path

import pytest

from lattice.launching.sync.layout import Layout
from lattice.launching.sync.manifest import Entry, File, Link, Manifest, hasher
from lattice.launching.sync.store import IN_USE, KEPT, Contents, cache_folder


def digest(content: bytes) -> str:
    return hasher(content).hexdigest()


def put(store: Contents, content: bytes) -> str:
    name = digest(content)
    writer = store.writer(name)
    writer.write(content)
    writer.commit()
    return name


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "identity"]


@pytest.fixture
def store(tmp_path: Path) -> Contents:
    return Contents(tmp_path / "store")


def test_a_content_is_there_when_it_is_complete_and_right(store: Contents, tmp_path: Path) -> None:
    name = digest(b"content")
    writer = store.writer(name)
    writer.write(b"con")
    assert not store.has(name, 7)
    writer.write(b"tent")
    writer.commit()
    assert store.has(name, 7) and not store.has(name, 8)
    target = io.BytesIO()
    assert store.copy(name, 7, target) and target.getvalue() == b"content"
    wrong = store.writer(digest(b"other"))
    wrong.write(b"wrong")
    wrong.commit()
    assert not store.has(digest(b"other"), 5)
    half = store.writer(digest(b"half"))
    half.write(b"ha")
    half.discard()
    assert [path.name for path in files(tmp_path / "store")] == [name]


def test_a_damaged_content_is_removed_when_it_is_used(store: Contents, tmp_path: Path) -> None:
    name = put(store, b"content")
    (path,) = files(tmp_path / "store")
    path.write_bytes(b"damaged")
    assert store.has(name, 7), "it looks right"
    assert not store.copy(name, 7, io.BytesIO())
    assert not store.has(name, 7) and not store.copy(name, 7, io.BytesIO())


def test_many_write_the_same_at_once(tmp_path: Path) -> None:
    contents = [os.urandom(50_000) for _ in range(5)]
    found: list[bool] = []

    def write_all() -> None:
        store = Contents(tmp_path / "store")
        for content in contents:
            put(store, content)
            found.append(store.copy(digest(content), len(content), io.BytesIO()))

    threads = [threading.Thread(target=write_all) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 40
    assert len(files(tmp_path / "store")) == 5
    assert len({Contents(tmp_path / "store").identity for _ in range(3)}) == 1
    assert Contents(tmp_path / "another").identity != Contents(tmp_path / "store").identity


def test_what_is_old_or_too_much_is_removed(store: Contents, tmp_path: Path) -> None:
    now = time.time()
    ages = {"old": KEPT + 10, "used": 2 * IN_USE, "longer ago": 3 * IN_USE, "now": 0.0}
    names = {word: put(store, word.encode()) for word in ages}
    half = store.writer(digest(b"half"))
    half.write(b"ha")
    (tmp_path / "store/contents" / half.digest[:2]).mkdir(exist_ok=True)

    def age() -> None:
        for word, seconds in ages.items():
            path = tmp_path / "store/contents" / names[word][:2] / names[word]
            if path.exists():
                os.utime(path, (now - seconds, now - seconds))

    def left() -> set[str]:
        here = {path.name for path in files(tmp_path / "store")}
        return {word for word, name in names.items() if name in here}

    age()
    store.prune(now)
    assert left() == {"used", "longer ago", "now"}
    assert len(files(tmp_path / "store")) == 4, "and what somebody writes at the moment"
    store.prune(now, most=10)
    assert left() == {"used", "now"}
    store.prune(now, most=0)
    assert left() == {"now"}, "it may be in use"
    store.prune(now + IN_USE + 10)
    assert [path.name for path in files(tmp_path / "store")] == [names["now"]], "half of a content of a dead launch"
    half.discard()


def test_being_used_is_being_kept(store: Contents, tmp_path: Path) -> None:
    name = put(store, b"content")
    (path,) = files(tmp_path / "store")
    os.utime(path, (0, 0))
    assert store.has(name, 7)
    store.prune()
    assert store.has(name, 7)


def test_where_it_is() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/lattice/sync")
    home = Path(os.path.expanduser("~"), ".cache/lattice/sync")  # noqa: PTH111
    assert cache_folder({}) == cache_folder({"XDG_CACHE_HOME": "relative"}) == home


def lay_out(layout: Layout, store: Contents, entries: dict[str, Entry]) -> list[str]:
    manifest = Manifest("p", entries)
    outdated = layout.outdated(manifest)
    assert layout.update(manifest, outdated, store) == []
    assert layout.outdated(manifest) == []
    return outdated


def file(store: Contents, content: bytes, mode: int = 0o644) -> File:
    return File(put(store, content), len(content), mode)


def test_a_layout_is_brought_up_to_date(store: Contents, tmp_path: Path) -> None:
    root = tmp_path / "layout"
    layout = Layout(root)
    first: dict[str, Entry] = {
        "a.py": file(store, b"A"), "run": file(store, b"R", 0o755), "pkg/old.py": file(store, b"O"),
        "pkg/sub/x.py": file(store, b"X"), "link": Link("a.py"), "none": File(digest(b""), 0, 0o400),
    }  # fmt: skip
    assert lay_out(layout, store, first) == sorted(first)
    assert (root / "a.py").read_bytes() == b"A" and (root / "link").read_bytes() == b"A"
    assert os.access(root / "run", os.X_OK) and not (root / "a.py").stat().st_mode & 0o111
    assert (root / "none").read_bytes() == b""
    assert lay_out(layout, store, first) == []
    # Workers change, replace, remove and add; the store has none of it.
    (root / "a.py").write_bytes(b"B")
    (root / "run").chmod(0o644)
    (root / "none").unlink()
    (root / "pkg/mine").write_bytes(b"kept")
    (root / "pkg/sub/__pycache__").mkdir()
    (root / "pkg/sub/__pycache__/x.cpython-311.pyc").touch()
    assert lay_out(layout, store, first) == ["a.py", "none", "run"]
    assert (root / "a.py").read_bytes() == b"A" and os.access(root / "run", os.X_OK)
    # The caller removes, and makes a folder of a file and a file of a folder.
    second: dict[str, Entry] = {"a.py/b": file(store, b"C"), "link": file(store, b"A"), "pkg/mine": file(store, b"M")}
    assert lay_out(layout, store, second) == sorted(second)
    found = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert found == {"a.py/b": b"C", "link": b"A", "pkg/mine": b"M"}
    assert not (root / "link").is_symlink() and not (root / "pkg/sub").exists(), "an empty folder would be a module"


def test_nothing_is_written_through_a_link_that_a_worker_made(store: Contents, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    layout = Layout(tmp_path / "layout")
    lay_out(layout, store, {"x": file(store, b"X")})
    (layout.folder / "data").symlink_to(outside)
    lay_out(layout, store, {"x": file(store, b"X"), "data/y": file(store, b"Y")})
    assert not list(outside.iterdir()) and (layout.folder / "data/y").read_bytes() == b"Y"


def test_contents_that_turn_out_to_be_missing_are_named(store: Contents, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    there, missing = file(store, b"there"), File(digest(b"missing"), 7, 0o644)
    manifest = Manifest("p", {"a": there, "b": missing})
    assert layout.update(manifest, layout.outdated(manifest), store) == [missing.digest]
    put(store, b"missing")
    assert layout.outdated(manifest) == ["b"]
    assert layout.update(manifest, ["b"], store) == []
