"""etcd on its instance."""

from __future__ import annotations

import signal

from lattice.jobs import protected_etcd
from lattice.jobs.aws.node import Node, attempt, metadata, write
from lattice.jobs.aws.specs import RDZV

PORT = 2379


def serve(node: Node) -> int:
    """Run etcd until it ends."""
    for name in ("certificate", "key"):
        write(node.folder / f"{name}.pem", node.secret(name), 0o600)
    url = f"https://{metadata('meta-data/local-ipv4')}:{PORT}"
    tls = ["--cert-file", f"{node.folder}/certificate.pem", "--key-file", f"{node.folder}/key.pem"]
    etcd = protected_etcd.start(node.folder, node.name, node.secret("password"), url, *tls)
    attempt(lambda: node.note({"words": ""}, RDZV))  # whatever was wrong before
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: etcd.terminate())
    return etcd.wait() or 1  # it has no reason to end
