"""From the text of an option to its value; a text that is not accepted raises ValueError, its reader says where."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection

from lattice.core import addresses
from lattice.core.addresses import Endpoint, word
from lattice.core.spec import NodeRange

YEAR = 365 * 86400.0

Streams = tuple[tuple[int | None, int], ...]


def text(value: str) -> str:
    """Take any text."""
    return value


def modules(value: str) -> str:
    """Take names of Python modules, separated by commas; auto and none look like names too."""
    if value and not all(part.isidentifier() for name in value.split(",") for part in name.strip().split(".")):
        raise ValueError
    return value


def one_of(choices: Collection[str]) -> Callable[[str], str]:
    """Make a reader of one of these words."""

    def choice(value: str) -> str:
        if value not in choices:
            raise ValueError
        return value

    return choice


def switch(value: str) -> bool:
    """Read yes or no in the usual spellings."""
    match value.strip().lower():
        case "1" | "true" | "t" | "yes" | "y" | "on":
            return True
        case "0" | "false" | "f" | "no" | "n" | "off" | "":
            return False
    raise ValueError


def whole(minimum: int, maximum: int) -> Callable[[str], int]:
    """Make a reader of a whole number in plain digits within bounds."""

    def number(value: str) -> int:
        digits = value.strip()
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
            raise ValueError
        if not minimum <= int(digits) <= maximum:
            raise ValueError
        return int(digits)

    return number


count = whole(0, 10**9)


def seconds(minimum: float = 0.0, *, integral: bool = False) -> Callable[[str], float]:
    """Make a reader of a duration in seconds, at most a year."""

    def duration(value: str) -> float:
        number = float(value)
        # The comparison is also false for nan.
        if not minimum <= number <= YEAR or (integral and number != int(number)):
            raise ValueError
        return number

    return duration


def quantity(*units: str) -> Callable[[str], str]:
    """Make a reader of an amount as Kubernetes writes it: a number, then one of these units or none."""

    def amount(value: str) -> str:
        number = next((value.removesuffix(unit) for unit in units if unit and value.endswith(unit)), value)
        # The comparison is also false for nan.
        if value and not 0 < float(number) < 10**18:
            raise ValueError
        return value

    return amount


def node_range(value: str) -> NodeRange:
    """Read N or MIN:MAX."""
    minimum, colon, maximum = value.partition(":")
    positive = whole(1, 10**6)
    nodes = NodeRange(positive(minimum), positive(maximum if colon else minimum))
    if nodes.minimum > nodes.maximum:
        raise ValueError
    return nodes


def workers(value: str) -> int | str:
    """Read a number of workers, or what to count."""
    return value if value in ("auto", "cpu", "gpu") else whole(1, 65536)(value)


def node_rank(value: str) -> int | None:
    """Read the rank that a node asks for, None if it does not mind."""
    return None if value == "auto" else whole(0, 10**6)(value)


def run_id(value: str) -> str:
    """Read a run id: it becomes part of keys and of a folder's name."""
    if word(value) in (".", "..") or "/" in value or len(value.encode()) > 200:
        raise ValueError
    return value


def job_id(value: str) -> str:
    """Read the id of a job, as that of a run; empty for none."""
    return run_id(value) if value else ""


def endpoints(value: str) -> tuple[Endpoint, ...]:
    """Read endpoints separated by commas; @FILE, where they are to be found, is given as one host of that name."""
    if value.startswith("@"):
        if value == "@":
            raise ValueError
        return ((word(value), None),)
    return addresses.endpoints(value)


def streams(value: str) -> Streams:
    """Read which streams of which local ranks are meant: bits for all, or RANK:BITS pairs."""
    bits = whole(0, 3)
    if ":" not in value:
        return ((None, bits(value)),) if bits(value) else ()
    pairs = (pair.split(":") for pair in value.split(","))
    return tuple((count(rank), bits(mask)) for rank, mask in pairs)


def ranks(value: str) -> frozenset[int] | None:
    """Read local ranks separated by commas; none at all means every rank."""
    return frozenset(count(rank) for rank in value.split(",")) if value.strip() else None


def signals(value: str) -> tuple[int, ...]:
    """Read names of signals that a process can handle, separated by commas."""
    numbers = []
    for name in filter(None, (part.strip().upper() for part in value.split(","))):
        known = signal.Signals.__members__.get(name if name.startswith("SIG") else f"SIG{name}")
        # The kernel keeps two for itself, and a supervisor lives by SIGCHLD.
        if known is None or known in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
            raise ValueError
        numbers.append(int(known))
    return tuple(dict.fromkeys(numbers))


def one_signal(value: str) -> int:
    """Read the name of one signal; 0 for none."""
    if not value.strip():
        return 0
    (number,) = signals(value)
    return number


def pairs(value: str) -> tuple[tuple[str, str], ...]:
    """Read KEY=VALUE pairs separated by commas, in order."""
    found = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        key, equals, content = (piece.strip() for piece in part.partition("="))
        if not key or not equals or not content:
            raise ValueError
        found.append((key, content))
    return tuple(found)
