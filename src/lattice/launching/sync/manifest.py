"""What is in a project folder, as a value, and whether it is too much."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping

from lattice.core.dataclass import dataclass
from lattice.errors import UsageError

DIGEST_SIZE = 32
MOST_BYTES = 500_000_000
MOST_FILES = 50_000
NAMED = 5
"""how many of the largest parts an error names"""
MAIN_SHARE = 0.8
"""of a folder: what has as much of it is named in its place"""


@dataclass(frozen=True, slots=True)
class File:
    """A file: contents are known by their digest."""

    digest: str
    size: int
    mode: int
    """permissions"""


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: str


Entry = File | Link


@dataclass(frozen=True, slots=True)
class Manifest:
    """A project: its folder's name, and by relative path all that is in it."""

    name: str
    entries: Mapping[str, Entry]

    @property
    def contents(self) -> dict[str, int]:
        """The size of each content, by digest; empty files have none."""
        files = (entry for entry in self.entries.values() if isinstance(entry, File))
        return {file.digest: file.size for file in files if file.size}

    @property
    def identity(self) -> str:
        """What no other project, and no other state of this one, has."""
        return hasher(self.encode()).hexdigest()

    def encode(self) -> bytes:
        """Write it for the way."""
        entries = {path: _plain(self.entries[path]) for path in sorted(self.entries)}
        return json.dumps([self.name, entries], separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Read it."""
        name, entries = json.loads(data)
        return cls(name, {path: Link(told) if isinstance(told, str) else File(*told) for path, told in entries.items()})

    def has_module(self, names: Iterable[str]) -> bool:
        """Tell whether a module of one of these names may be of this project."""
        tops = {name.strip().partition(".")[0] for name in names}
        parts = (part for path in self.entries for part in path.split("/"))
        return any(part.partition(".")[0] in tops for part in parts)


def hasher(data: bytes = b"") -> hashlib.blake2b:
    """Begin the digest of a content."""
    return hashlib.blake2b(data, digest_size=DIGEST_SIZE)


def refuse_too_much(
    root: str, sizes: Mapping[str, int], most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES
) -> None:
    """
    Take no more than is sensible to send.

    :param root: of the project, for the error
    :param sizes: of all its files, by relative path
    :raises UsageError: it is too much; names what is largest
    """
    total = sum(sizes.values())
    if total <= most_bytes and len(sizes) <= most_files:
        return
    weights = sizes if total > most_bytes else dict.fromkeys(sizes, 1)
    largest = ", ".join(
        f"{part} ({count} file{'s' * (count != 1)}, {shown(size)})" for part, count, size in _largest(sizes, weights)
    )
    raise UsageError(
        f"{root} has {len(sizes)} files with {shown(total)}, more than is sent to hosts "
        f"({most_files} files, {shown(most_bytes)}). The largest: {largest}. Put what the hosts do not need into "
        ".gitignore or .latticeignore, or name a smaller folder."
    )


def shown(size: float) -> str:
    """Write a number of bytes for people."""
    units = ["GB", "MB", "kB", "bytes"]
    unit = units.pop()
    while size >= 1000 and units:
        size, unit = size / 1000, units.pop()
    return f"{size:.0f} {unit}" if size >= 100 else f"{size:.3g} {unit}"


def _largest(sizes: Mapping[str, int], weights: Mapping[str, int]) -> list[tuple[str, int, int]]:
    found = []
    for part, weight in _parts(weights, "").most_common(NAMED):
        named = _main_part(weights, part, weight)
        inside = tuple(path for path in sizes if path == named or (named.endswith("/") and path.startswith(named)))
        found.append((named, len(inside), sum(sizes[path] for path in inside)))
    return found


def _main_part(weights: Mapping[str, int], part: str, weight: int) -> str:
    """Go down from a folder to what is nearly all of it."""
    while part.endswith("/"):
        ((inner, share),) = _parts(weights, part).most_common(1)
        if share < MAIN_SHARE * weight:
            break
        part, weight = inner, share
    return part


def _parts(weights: Mapping[str, int], folder: str) -> Counter[str]:
    """Add up what is directly in a folder; folders in it have a slash at their end."""
    parts: Counter[str] = Counter()
    for path, weight in weights.items():
        if path.startswith(folder):
            first, slash, _ = path[len(folder) :].partition("/")
            parts[folder + first + slash] += weight
    return parts


def _plain(entry: Entry) -> object:
    return entry.target if isinstance(entry, Link) else (entry.digest, entry.size, entry.mode)
