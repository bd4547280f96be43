"""Where the store of a run is at the moment."""

from __future__ import annotations

from pathlib import Path

from lattice.core.addresses import endpoints, of_etcd
from lattice.core.spec import StoreSpec
from lattice.errors import StoreUnavailable


def located(spec: StoreSpec) -> tuple[tuple[str, int], ...]:
    """
    Give the addresses to try.

    :raises StoreUnavailable: they are to be in a file, which has none yet
    """
    file = spec.endpoints_file
    if not file:
        return spec.endpoints
    try:
        found = of_etcd(endpoints(Path(file).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        found = ()
    if not found:
        raise StoreUnavailable(f"no address of etcd is in {file}.")
    return found
