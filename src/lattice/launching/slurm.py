"""What SLURM says about the allocation that this process runs in: its variables, and one question."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from lattice.core.dataclass import dataclass
from lattice.errors import UsageError

_RANGES = re.compile(r"\[([^\[\]]*)\]")
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?")
_PORTS = re.compile(r"^SrunPortRange\s*=\s*(\d+)-(\d+)$", re.MULTILINE)
ASKING = 5.0
"""seconds for an answer; the cluster is busy then, and most have no such range"""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The nodes of a job."""

    job: str
    """Its number."""
    hosts: tuple[str, ...]
    """SLURM's names of the nodes."""
    workers: tuple[int, ...]
    """For each of them how many workers it is meant to have."""
    here: str | None
    """The node that this process runs on; None on a login node."""


def allocation(environ: Mapping[str, str]) -> Allocation | None:
    """
    Read the allocation that this process runs in.

    :param environ: the variables
    :return: None outside of one
    :raises UsageError: a variable of SLURM that cannot be understood
    """
    job = environ.get("SLURM_JOB_ID")
    nodes = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if not job or not nodes:
        return None
    hosts = expand(nodes)
    return Allocation(job, hosts, _workers(environ, len(hosts)), environ.get("SLURMD_NODENAME") or None)


def port_range() -> range | None:
    """Ask on which ports of this machine nodes can reach it; None for all of them."""
    import subprocess  # slow to import, and only needed here

    try:
        said = subprocess.run(
            ["scontrol", "show", "config"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=ASKING, check=False,
        ).stdout.decode(errors="replace")  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_ports(said)


def parse_ports(configuration: str) -> range | None:
    """Find the range in what ``scontrol show config`` prints; 0-0 is none."""
    match = _PORTS.search(configuration)
    return range(int(match[1]), int(match[2]) + 1) if match and int(match[2]) else None


def expand(nodes: str) -> tuple[str, ...]:
    """
    Write out a list of nodes, as ``scontrol show hostnames`` does.

    :param nodes: such as ``node[01-03,7],login``
    """
    return tuple(name for entry in _entries(nodes) for name in _expand_one(entry, nodes))


def repeated(counts: str) -> tuple[int, ...]:
    """
    Write out counts per node.

    :param counts: such as ``2(x3),1``
    """
    found: list[int] = []
    for entry in counts.split(","):
        match = _COUNT.fullmatch(entry)
        if match is None:
            raise UsageError(f"SLURM's counts per node {counts!r} make no sense: expected such as 2(x3),1.")
        found += [int(match[1])] * int(match[2] or 1)
    return tuple(found)


def _workers(environ: Mapping[str, str], hosts: int) -> tuple[int, ...]:
    # --ntasks-per-node=1 is how people start one launcher per node, and says nothing about workers if there are GPUs.
    tasks = _per_node(environ.get("SLURM_TASKS_PER_NODE"), hosts)
    asked = "SLURM_NTASKS" in environ or "SLURM_NTASKS_PER_NODE" in environ
    gpus = _gpus(environ)
    if tasks and asked and max(tasks) > 1:
        return tasks
    if gpus:
        return (gpus,) * hosts
    if tasks and asked:
        return tasks
    return _per_node(environ.get("SLURM_JOB_CPUS_PER_NODE"), hosts) or tasks or (1,) * hosts


def _per_node(counts: str | None, hosts: int) -> tuple[int, ...]:
    found = repeated(counts) if counts else ()
    return found if len(found) == hosts else ()


def _gpus(environ: Mapping[str, str]) -> int:
    per_node = environ.get("SLURM_GPUS_PER_NODE")  # 4, a100:4, or a100:2,v100:2
    if per_node:
        numbers = [entry.rpartition(":")[2] for entry in per_node.split(",")]
        if all(number.isdecimal() for number in numbers):
            return sum(int(number) for number in numbers)
    here = environ.get("SLURM_GPUS_ON_NODE", "")
    if here.isdecimal():
        return int(here)
    return len([name for name in environ.get("SLURM_JOB_GPUS", "").split(",") if name])


def _entries(nodes: str) -> Iterator[str]:
    # Commas within brackets do not part entries.
    for entry in re.split(r",(?![^\[]*\])", nodes):
        if entry:
            yield entry


def _expand_one(entry: str, whole: str) -> Iterator[str]:
    pieces = _RANGES.split(entry)  # text, ranges, text, ranges, text
    choices: list[list[str]] = [_numbers(piece, whole) if place % 2 else [piece] for place, piece in enumerate(pieces)]
    if any("[" in piece or "]" in piece for piece in pieces[::2]):
        raise UsageError(f"SLURM's list of nodes {whole!r} makes no sense: its brackets do not match.")
    for parts in itertools.product(*choices):
        yield "".join(parts)


def _numbers(ranges: str, whole: str) -> list[str]:
    found: list[str] = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise UsageError(f"SLURM's list of nodes {whole!r} makes no sense at {part!r}.")
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found
