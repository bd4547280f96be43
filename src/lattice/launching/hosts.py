"""Which hosts take part and with how many workers: what the user wrote, or what SLURM allocated, as a list."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping, Sequence

from lattice.core.dataclass import dataclass
from lattice.errors import UsageError
from lattice.launching import slurm
from lattice.launching.slurm import Allocation

LOOPBACK = ("localhost", "127.0.0.1", "::1")
COUNTED_THERE = ("auto", "cpu", "gpu")
_HOST = re.compile(r"[^\s@/\[\]\x00-\x1f\x7f]+")


class WrongArgument(UsageError, ValueError):
    """An argument of a launch that cannot be meant."""


class NoAllocation(UsageError, RuntimeError):
    """SLURM was asked for by name, and this process runs in no allocation."""


@dataclass(frozen=True, slots=True)
class HostSpec:
    """One node of a launch. The same host named twice is two of these."""

    given: str
    """The host as the user wrote it: ``user@host:port``, ``localhost``, a name from the SSH configuration."""
    workers: int | str
    """How many, or ``auto``, ``cpu`` or ``gpu`` to be counted on the host itself."""
    index: int
    """Its place in the list, from 0."""
    transport: str
    """``local``, ``ssh`` or ``srun``."""


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of ``user@host:port``."""

    user: str | None
    host: str
    port: int | None


def resolve(
    hostnames: str | Iterable[str],
    workers_per_host: int | str | Sequence[int | str],
    environ: Mapping[str, str],
    own_name: str | None = None,
) -> tuple[HostSpec, ...]:
    """
    Decide the nodes of a launch.

    :param hostnames: names, ``auto`` for the SLURM allocation if there is one, else this machine, or ``slurm``
    :param workers_per_host: a number, one per host, ``auto``, ``cpu``, ``gpu``, or ``slurm``
    :param environ: where SLURM's variables are read
    :param own_name: the name of this machine; asked for if None
    :return: one entry per node, in the order given
    :raises WrongArgument: an argument that cannot be meant; also a ValueError
    :raises NoAllocation: ``slurm`` outside of an allocation; also a RuntimeError
    """
    allocation = slurm.allocation(environ)
    names = _names(hostnames, allocation)
    workers = _workers(workers_per_host, names, allocation, automatic=isinstance(hostnames, str))
    own = socket.gethostname() if own_name is None else own_name
    return tuple(
        HostSpec(name, count, index, _transport(name, allocation, own))
        for index, (name, count) in enumerate(zip(names, workers, strict=True))
    )


def parse_address(given: str, argument: str = "hostnames") -> Address:
    """
    Take ``user@host:port`` apart; an IPv6 address with a port stands in brackets.

    :param given: what the user wrote
    :param argument: what to call it in an error
    :raises WrongArgument: it has no such form
    """
    user, at, rest = given.rpartition("@")
    port: str | None = None
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise WrongArgument(f"{argument}: {given!r} has an odd bracket. Write [ADDRESS]:PORT.")
        port = tail[1:] if tail else None
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    else:
        host = rest  # a bare IPv6 address is all colons and no port
    if not _HOST.fullmatch(host) or host.startswith("-"):
        raise WrongArgument(f"{argument}: {given!r} names no host. Write HOST, USER@HOST or USER@HOST:PORT.")
    if at and (not user or user.startswith("-") or re.search(r"[\s\x00-\x1f\x7f]", user)):
        raise WrongArgument(f"{argument}: {given!r} has no user before the @. Write HOST or USER@HOST.")
    if port is not None and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise WrongArgument(f"{argument}: the port of {given!r} is no number from 1 to 65535.")
    return Address(user if at else None, host, int(port) if port is not None else None)


def _names(hostnames: str | Iterable[str], allocation: Allocation | None) -> tuple[str, ...]:
    if isinstance(hostnames, str):
        if hostnames not in ("auto", "slurm"):
            raise WrongArgument(
                f"hostnames is {hostnames!r}: give a list, such as [{hostnames!r}], or 'auto' or 'slurm'."
            )
        if allocation is not None:
            return allocation.hosts
        if hostnames == "slurm":
            raise NoAllocation(
                "hostnames is 'slurm', but this process runs in no SLURM allocation (SLURM_JOB_ID or SLURM_JOB_NODELIST"
                " is not set). Start it with sbatch, salloc or srun, or name the hosts: hostnames=['node1', 'node2']."
            )
        return ("localhost",)
    try:
        names = tuple(hostnames)
    except TypeError:
        raise WrongArgument(f"hostnames is {hostnames!r}: give a list of names, 'auto' or 'slurm'.") from None
    if not names:
        raise WrongArgument("hostnames is empty: name at least one host, or give 'auto'.")
    for place, name in enumerate(names):
        if not isinstance(name, str):
            raise WrongArgument(f"hostnames[{place}] is {name!r}: a host is named by a string.")
        parse_address(name, f"hostnames[{place}]")
    return names


def _workers(
    asked: int | str | Sequence[int | str], names: tuple[str, ...], allocation: Allocation | None, automatic: bool
) -> tuple[int | str, ...]:
    if isinstance(asked, int | str):
        if asked == "slurm" or (asked == "auto" and allocation is not None and automatic):
            return _allocated(names, allocation)
        return (
            _number(asked, "workers_per_host", "a number, a list of numbers, 'auto', 'cpu', 'gpu' or 'slurm'"),
        ) * len(names)
    try:
        counts = tuple(asked)
    except TypeError:
        raise WrongArgument(f"workers_per_host is {asked!r}: give a number, a list of numbers, or 'auto'.") from None
    if len(counts) != len(names):
        raise WrongArgument(
            f"workers_per_host has {len(counts)} entries for {len(names)} hosts ({', '.join(names)}): give one each."
        )
    return tuple(
        _number(count, f"workers_per_host[{place}]", "a number, 'auto', 'cpu' or 'gpu'")
        for place, count in enumerate(counts)
    )


def _number(asked: object, argument: str, allowed: str) -> int | str:
    if isinstance(asked, str) and asked in COUNTED_THERE:
        return asked
    if isinstance(asked, bool) or not isinstance(asked, int):
        raise WrongArgument(f"{argument} is {asked!r}: give {allowed}.")
    if asked < 1:
        raise WrongArgument(
            f"{argument} is {asked}: a host has at least 1 worker. Leave out hosts that shall have none."
        )
    return asked


def _allocated(names: tuple[str, ...], allocation: Allocation | None) -> tuple[int | str, ...]:
    if allocation is None:
        raise NoAllocation(
            "workers_per_host is 'slurm', but this process runs in no SLURM allocation (SLURM_JOB_ID or"
            " SLURM_JOB_NODELIST is not set). Start it with sbatch, salloc or srun, or give a number or 'auto'."
        )
    by_host = dict(zip(allocation.hosts, allocation.workers, strict=True))
    strangers = [name for name in names if name not in by_host]
    if strangers:
        raise WrongArgument(
            f"workers_per_host is 'slurm', but {', '.join(strangers)} is not in SLURM job {allocation.job}"
            f" ({', '.join(allocation.hosts)}). Leave it out of hostnames, or give a number."
        )
    return tuple(by_host[name] for name in names)


def _transport(name: str, allocation: Allocation | None, own: str) -> str:
    if allocation is not None and name in allocation.hosts:
        # SLURM says by its own name which node this is; a host name may be longer, or an alias.
        return "local" if name == allocation.here else "srun"
    address = parse_address(name)
    if address.user is None and address.port is None and address.host in (*LOOPBACK, own, own.partition(".")[0]):
        return "local"
    return "ssh"
