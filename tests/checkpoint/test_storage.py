"""One contract for every storage."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lattice.checkpoint.storage import Storage, open_storage, place
from lattice.errors import UsageError
from tests.checkpoint.conftest import BUCKET
from tests.moto_server import MotoServer


@pytest.fixture(params=["folder", "s3", "fsspec"])
def storage(
    request: pytest.FixtureRequest, s3: MotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Storage]:
    if request.param == "folder":
        yield open_storage(str(tmp_path / "a" / "b"))
    elif request.param == "s3":
        for name, value in s3.variables.items():
            monkeypatch.setenv(name, value)
        made = open_storage(f"s3://{BUCKET}/{tmp_path.name}")
        yield made
        made._client.close()  # type: ignore[attr-defined]
    else:
        pytest.importorskip("fsspec", reason="fsspec is not installed")
        yield open_storage(f"memory://{tmp_path.name}")


def text(storage: Storage, name: str) -> str:
    return bytes(storage.read(name)).decode()


def test_files_come_and_go(storage: Storage) -> None:
    assert storage.names("") == [] and storage.names("x") == []
    storage.write("x/one", memoryview(b"1"))
    storage.write("x/two", memoryview(b""))
    storage.write("x/one", memoryview(b"11"))
    assert (text(storage, "x/one"), text(storage, "x/two")) == ("11", "")
    assert sorted(storage.names("x")) == ["one", "two"] and storage.names("") == ["x"]
    storage.remove("x/two")
    assert storage.names("x") == ["one"]
    storage.remove("x")
    storage.remove("x")
    assert storage.names("") == []
    with pytest.raises(FileNotFoundError):
        storage.read("x/one")


def test_a_large_file(storage: Storage) -> None:
    data = bytes(range(256)) * (80 << 10)  # more than one part of an upload to S3
    storage.write("x/large", memoryview(data))
    assert storage.read("x/large") == data


def test_what_is_there_is_not_created(storage: Storage) -> None:
    assert storage.create("log/1", b"first")
    assert not storage.create("log/1", b"second")
    assert text(storage, "log/1") == "first" and storage.names("log") == ["1"]


# Not fsspec: its own file systems look first and write then.
@pytest.mark.parametrize("storage", ["folder", "s3"], indirect=True)
def test_of_many_who_create_one_can(storage: Storage) -> None:
    for number in range(5):
        begin = threading.Barrier(4)
        won: list[bytes] = []

        def race(mine: bytes, number: int = number, begin: threading.Barrier = begin, won: list[bytes] = won) -> None:
            begin.wait()
            if storage.create(f"log/{number}", mine):
                won.append(mine)

        threads = [threading.Thread(target=race, args=(b"%d" % each,)) for each in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1 and storage.read(f"log/{number}") == won[0]


def test_what_is_half_written_is_not_there(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / ".new-0123-one").write_text("half")
    assert storage.names("x") == []
    (tmp_path / "x" / "one").mkdir()  # so that the last step fails
    (tmp_path / "x" / "one" / "file").touch()
    with pytest.raises(OSError):
        storage.write("x/one", memoryview(b"data"))
    assert [path.name for path in (tmp_path / "x").iterdir() if path.name.startswith(".new")] == [".new-0123-one"]


def test_errors_say_what_and_where(s3: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    there = open_storage("s3://no-such-bucket/x")
    with pytest.raises(OSError, match="s3://no-such-bucket/x/log: NoSuchBucket"):
        there.names("log")
    there._client.close()  # type: ignore[attr-defined]


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place("saved") == place(Path("saved")) == str(tmp_path / "saved")
    assert place("s3://bucket/a/") == "s3://bucket/a"
    for wrong, words in (("", "need a place"), ("s3:///x", "needs a bucket"), ("nonsense://x", "nonsense")):
        with pytest.raises(UsageError, match=words):
            open_storage(place(wrong))
