"""A real registry of images, on loopback."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.etcd_server import free_ports, listens
from tests.lab.scripts import call, require
from tests.waiting import eventually, patience

USER = ("me", "secret")
HTPASSWD = "me:$2b$04$AhYTVsomE/IZS03itbRC7ufTtyGo9bRkPyE0WHxaCjisi6m8pBwlq\n"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@contextmanager
def registry_server(folder: Path, *, guarded: bool = False) -> Iterator[str]:
    """
    Run a registry as our child; gives where it is.

    :param guarded: whether it wants a login, see :data:`USER`
    """
    require("apt-get")
    program = call("docker/registry.sh", variables={"LAB_NAME": f"t{os.getpid()}"}, within=300).strip()
    (port,) = free_ports(1)
    (folder / "htpasswd").write_text(HTPASSWD)
    auth = f"auth: {{htpasswd: {{realm: tests, path: {folder}/htpasswd}}}}\n" if guarded else ""
    storage = f"storage: {{filesystem: {{rootdirectory: {folder}/images}}}}\n"
    (folder / "registry.yml").write_text(f"version: 0.1\n{storage}{auth}http: {{addr: 127.0.0.1:{port}}}\n")
    with (folder / "registry.log").open("wb") as log:
        server = subprocess.Popen([program, "serve", str(folder / "registry.yml")], stdout=log, stderr=log)
    try:
        eventually(lambda: listens(server.pid, port))
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def put_image(host: str, repository: str, tag: str) -> None:
    """Put the smallest image there is into a registry without a login."""
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}).encode()
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    begun = urllib.request.Request(f"http://{host}/v2/{repository}/blobs/uploads/", method="POST")
    with urllib.request.urlopen(begun, timeout=patience(10)) as answer:
        where = answer.headers["Location"]
    _put(f"{where}&digest={digest}", config, "application/octet-stream")
    described = {"mediaType": "application/vnd.oci.image.config.v1+json", "size": len(config), "digest": digest}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": []}
    _put(f"http://{host}/v2/{repository}/manifests/{tag}", json.dumps(manifest).encode(), MANIFEST)


def _put(url: str, body: bytes, kind: str) -> None:
    asked = urllib.request.Request(url, body, {"Content-Type": kind}, method="PUT")
    urllib.request.urlopen(asked, timeout=patience(10)).close()
