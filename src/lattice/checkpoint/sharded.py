"""State with torch tensors, whole or sharded, in the format of ``torch.distributed.checkpoint``."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, cast

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemBase, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from torch.distributed.checkpoint.stateful import Stateful

from lattice.checkpoint.memory import Arena, Stream, View
from lattice.errors import UsageError

KEYS = "number_keys.json"
"""which dicts have numbers as keys: torch's format makes text of them"""
SLACK = 1 << 20
PER_TENSOR = 4096
"""bytes that the format takes beside the data of a tensor"""


class _Memory(FileSystemBase):
    """The few calls of a file system that torch makes, on memory."""

    def __init__(self, arena: Arena | None, read: Callable[[str], memoryview] | None) -> None:
        self._arena = arena
        self._read = read

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        name = PurePosixPath(path).name
        if mode == "wb" and self._arena is not None:
            yield Stream(self._arena, name)
        elif mode == "rb" and self._read is not None:
            yield View(self._read(name))
        else:
            raise ValueError(mode)

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str:
        return f"{path}/{suffix}"

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        assert self._arena is not None
        self._arena.rename(PurePosixPath(path).name, PurePosixPath(new_path).name)

    def init_path(self, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
        return path

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        pass

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return False

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        pass


class _Writer(FileSystemWriter):
    def __init__(self, arena: Arena, folder: str) -> None:
        super().__init__(folder, sync_files=False)
        self.fs = cast(Any, _Memory(arena, None))


class _Reader(FileSystemReader):
    def __init__(self, read: Callable[[str], memoryview], folder: str) -> None:
        super().__init__(folder)
        self.fs = cast(Any, _Memory(None, read))


@contextmanager
def _alone_on_purpose() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield


def is_sharded(value: Any) -> bool:
    """Tell whether there is a part of a tensor that other ranks have other parts of."""
    return any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in _tensors(value))


def has_tensors(state: Any) -> bool:
    """Tell whether there is anything of torch's in a state."""
    return isinstance(state, Mapping) and (
        any(isinstance(item, torch.nn.Module | torch.optim.Optimizer) for item in state.values())
        or next(_tensors(state), None) is not None
    )


def save(state: Mapping[str, Any], arena: Arena, folder: str, *, together: bool, writes_keys: bool = True) -> None:
    """
    Write this rank's part of a state.

    :param together: with all ranks of the default process group, which call this at the same time
    :param writes_keys: whether this rank writes what is the same for all
    :raises UsageError: a key is neither text nor a number
    """
    if not all(isinstance(key, str) for key in state):
        raise UsageError("a state with tensors must be a dict whose keys are text.")
    told = {key: _told(item) for key, item in state.items()}
    sizes = [_local(tensor).nbytes for tensor in _tensors(told)]
    arena.reserve(sum(sizes) + PER_TENSOR * len(sizes) + SLACK)
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)  # there are digests; it takes three times as long otherwise
    try:
        with _alone_on_purpose():
            dcp.save(told, storage_writer=_Writer(arena, folder), no_dist=not together)
    finally:
        torch.serialization.set_crc32_options(before)
    numbered = list(_numbered(told, ()))
    if numbered and writes_keys:
        arena.begin(KEYS)
        arena.write(json.dumps(numbered).encode())


def load(
    default: Mapping[str, Any],
    names: Collection[str],
    read: Callable[[str], memoryview],
    folder: str,
    *,
    together: bool,
) -> Any:
    """
    Read a state, for any number of ranks.

    What is sharded is read into the shards of ``default``. All else is read as a whole, so that nothing of ``default``
    has changed if that fails; modules and optimizers then load it, and tensors go to the device that they were on.

    :param names: the files that there are
    :param read: gives what is in a file
    :param together: with all ranks of the default process group
    """
    reader = _Reader(read, folder)
    sharded = {key: _told(item) for key, item in default.items() if is_sharded(_told(item))}
    whole: dict[str, Any] = {}
    metadata = reader.read_metadata()
    paths = metadata.planner_data or {}
    here = {str(path[0]) for path in paths.values()} & {*default} - {*sharded}
    if here:
        # Without the others: everybody reads all of it.
        planner = _EmptyStateDictLoadPlanner(keys=here)  # type: ignore[no-untyped-call]
        with _alone_on_purpose():
            _load_state_dict(whole, _Reader(read, folder), planner=planner, no_dist=True)
    if sharded:
        with _alone_on_purpose():
            dcp.load(sharded, storage_reader=reader, no_dist=not together)
    for path in json.loads(bytes(read(KEYS))) if KEYS in names else ():
        _number(whole, path)
    found = dict(default)
    for key, value in {**whole, **sharded}.items():
        if isinstance(default[key], Stateful):
            default[key].load_state_dict(value)
        else:
            found[key] = _placed(value, default[key])
    return found


def _told(item: Any) -> Any:
    return item.state_dict() if isinstance(item, Stateful) else item


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _numbered(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Find the dicts with numbers as keys, the innermost first."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str | int):
                raise UsageError(f"the state has a dict with the key {key!r} at {'.'.join(path)}: not text, no number.")
            yield from _numbered(item, (*path, str(key)))
        if any(isinstance(key, int) for key in value):
            yield path


def _number(value: Any, path: list[str]) -> None:
    """Make numbers of the keys of a dict again, where they look like some."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, dict):
        items = [(int(key) if key.lstrip("-").isdigit() else key, item) for key, item in value.items()]
        value.clear()
        value.update(items)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Give this rank's part."""
    return cast(torch.Tensor, tensor.to_local()) if hasattr(tensor, "to_local") else tensor


def _placed(value: Any, like: Any) -> Any:
    """Put tensors onto the devices of those that they replace."""
    if isinstance(value, torch.Tensor):
        return value.to(like.device) if isinstance(like, torch.Tensor) else value
    if isinstance(value, dict) and isinstance(like, Mapping):
        return {key: _placed(item, like.get(key)) for key, item in value.items()}
    if isinstance(value, list | tuple) and isinstance(like, list | tuple) and len(value) == len(like):
        return type(value)(_placed(item, old) for item, old in zip(value, like, strict=True))
    return value
