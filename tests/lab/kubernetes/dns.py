#!/usr/bin/env python3
"""
Cluster DNS: keep a dnsmasq in step with the cluster's Services and Endpoints. Standard library only.

SERVICE.NAMESPACE.svc.cluster.local is the cluster address of a service, or the ready pods of a headless one;
HOSTNAME.SERVICE.NAMESPACE.svc.cluster.local is one pod of a headless service, such as a StatefulSet's.
A service that sets publishNotReadyAddresses has its pods in it from the start, as on any cluster.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))
from tests.lab.kubernetes.mirror import Json, Key, Mirror, add_options, connect


def table(services: dict[Key, Json], endpoints: dict[Key, Json]) -> str:
    """Give the lines of a hosts file; the name of a single pod comes first, so that reverse look-ups give it."""
    lines = []
    for (namespace, name), service in sorted(services.items()):
        full = f"{name}.{namespace}.svc.cluster.local"
        address = service["spec"].get("clusterIP")
        if address and address != "None":
            lines.append(f"{address} {full}")
        elif address == "None":
            for subset in endpoints.get((namespace, name), {}).get("subsets") or ():
                for pod in subset.get("addresses") or ():
                    own = [f"{pod['hostname']}.{full}"] if pod.get("hostname") else []
                    lines.append(" ".join([pod["ip"], *own, full]))
    return "".join(line + "\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--listen", required=True, help="address to answer on")
    parser.add_argument("--hosts", required=True, type=Path, help="hosts file to keep")
    options = parser.parse_args()

    options.hosts.write_text("")
    # Inherited: a signal that comes before dnsmasq is ready for it, and so before it reads the file, must not end it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # --address=/#/ answers "no such name" for all other names; without it dnsmasq refuses them, and a resolver
    # that goes through its search list takes a refusal for a broken server.
    quiet = ["--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--pid-file", "--no-resolv", "--no-hosts"]
    names = [
        "--bind-interfaces",
        f"--listen-address={options.listen}",
        f"--addn-hosts={options.hosts}",
        "--address=/#/",
    ]
    server = subprocess.Popen(["dnsmasq", *quiet, *names])
    changed = threading.Event()
    api = connect(options)
    services, endpoints = Mirror(api, "services", changed), Mirror(api, "endpoints", changed)
    before = ""
    while server.poll() is None:
        if not changed.wait(timeout=1):
            continue
        changed.clear()
        if (now := table(services.objects, endpoints.objects)) != before:
            partial = options.hosts.with_suffix(".partial")
            partial.write_text(now)
            partial.replace(options.hosts)
            server.send_signal(signal.SIGHUP)  # read the file anew, forget the cache
            before = now
    sys.exit(f"dns.py: dnsmasq ended with {server.returncode}.")


if __name__ == "__main__":
    main()
