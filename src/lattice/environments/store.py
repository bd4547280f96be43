"""Where a worker finds the run's etcd: written here by the agent, read there by :mod:`lattice.torch.store`."""

from __future__ import annotations

from lattice.core.spec import StoreSpec


def store_variables(store: StoreSpec, lease: int) -> dict[str, str]:
    """
    Tell workers about the store, if it is one that they can use.

    :param store: the run's store
    :param lease: the run's lease, to which workers bind their keys
    :return: nothing unless the store is etcd
    """
    if store.backend != "etcd":
        return {}
    endpoints = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in store.endpoints)
    found = {
        "LATTICE_STORE_ENDPOINTS": f"@{store.endpoints_file}" if store.endpoints_file else endpoints,
        "LATTICE_STORE_LEASE": str(lease),
        "LATTICE_STORE_CACERT": store.cacert,
        "LATTICE_STORE_CERT": store.cert,
        "LATTICE_STORE_KEY": store.key,
        "LATTICE_STORE_USER": store.user,
        "LATTICE_STORE_PASSWORD": "" if store.password_file else store.password,
        "LATTICE_STORE_PASSWORD_FILE": store.password_file,
        "LATTICE_STORE_SERVER_NAME": store.server_name,
    }
    return {name: value for name, value in found.items() if value}
