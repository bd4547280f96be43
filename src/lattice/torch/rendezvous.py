"""
How a worker finds its store: ``lattice.torch.store()``, and ``init_method="lattice://"``.

torch calls :func:`register` at the end of ``import torch`` (an entry point in its group ``torch.backends``), so a
script needs no import of ours to say ``lattice://``. With TORCH_DEVICE_BACKEND_AUTOLOAD=0, or where Lattice is on the
path but not installed, ``import lattice.torch`` after torch does the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from torch.distributed import Store

    from lattice.torch.gateway import Access

DEFAULT_TIMEOUT = timedelta(seconds=300)
DETAILS = ("cacert", "cert", "key", "user", "password", "server_name")

_formed = count()
_stores: dict[tuple[str, str], Store] = {}
_registered = False


def register() -> None:
    """Make ``init_method="lattice://"`` known to torch.distributed, and see to a worker's end; again is fine."""
    global _registered
    import torch.distributed as dist

    from lattice.torch import ending

    if _registered or not dist.is_available():
        return
    dist.register_rendezvous_handler("lattice", handler)  # type: ignore[no-untyped-call]
    ending.register()
    _registered = True


def handler(url: str, timeout: timedelta = DEFAULT_TIMEOUT, **_: Any) -> Iterator[tuple[Store, int, int]]:
    """
    Answer torch's ``rendezvous("lattice://")``.

    :param url: may give ``rank`` and ``world_size``; by default they are the worker's own
    :param timeout: of the store
    """
    given = {name: values[-1] for name, values in parse_qs(urlsplit(url).query).items()}
    rank = int(given.get("rank") or _needed("LATTICE_RANK", "RANK"))
    world = int(given.get("world_size") or _needed("LATTICE_WORLD_SIZE", "WORLD_SIZE"))
    # All ranks form a group together, so they count alike: a group formed again must not read what the last one left.
    yield store(timeout, name=f"group{next(_formed)}"), rank, world
    raise RuntimeError("lattice:// forms a group once: a change of members starts the workers anew")


def store(timeout: timedelta = DEFAULT_TIMEOUT, *, name: str = "shared") -> Store:
    """
    Open the store of this worker's round.

    It is on the run's etcd, where it outlives any worker. For a run without etcd, and outside of Lattice, it is torch's
    own TCP store at MASTER_ADDR and MASTER_PORT, which rank 0 hosts.

    :param timeout: how long calls wait, zero for ever
    :param name: stores of one name, in whichever worker, are the same one. A second group that is formed in the same
        process needs another name, as it must not read what the first one left; ``lattice://`` sees to that by itself.
    """
    import torch.distributed as dist

    if "LATTICE_STORE_ENDPOINTS" not in os.environ:
        return dist.PrefixStore(name, _store_of_rank_0(timeout))

    from lattice.core.records import Keys
    from lattice.torch.etcd_store import EtcdStore
    from lattice.torch.gateway import Gateway

    run, round_number = _needed("LATTICE_RUN_ID"), _needed("LATTICE_ROUND")
    prefix = f"{Keys(run).groups(int(round_number))}{name}/"
    return EtcdStore(Gateway(access(os.environ)), prefix, int(os.environ.get("LATTICE_STORE_LEASE", "0")), timeout)


def _store_of_rank_0(timeout: timedelta) -> Store:
    """
    Give torch's own store, one for the life of this process.

    A second one on the same port would race: a worker that is faster than rank 0 meets the server of the first.
    """
    import torch.distributed as dist

    place = (os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", ""))
    if place not in _stores:
        _stores[place], _, _ = next(dist.rendezvous("env://", timeout=timeout))
    _stores[place].set_timeout(timeout)
    return _stores[place]


def access(variables: Mapping[str, str]) -> Access:
    """Read where etcd is from the variables that the agent set."""
    from lattice.core.addresses import endpoints, of_etcd
    from lattice.torch.gateway import Access

    details = {name: variables.get(f"LATTICE_STORE_{name.upper()}", "") for name in DETAILS}
    if file := variables.get("LATTICE_STORE_PASSWORD_FILE"):
        details["password"] = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    text = variables["LATTICE_STORE_ENDPOINTS"]
    if text.startswith("@"):
        return Access((), **details, endpoints_file=text[1:])
    return Access(of_etcd(endpoints(text)), **details)


def _needed(*names: str) -> str:
    for name in names:
        if name in os.environ:
            return os.environ[name]
    raise ValueError(f"{names[0]} is not set: start this program with `lattice run --framework pytorch`.")
