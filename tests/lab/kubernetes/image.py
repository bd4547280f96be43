#!/usr/bin/env python3
"""Turn tar files, one for each layer, into an image that docker load and ctr import take; no engine needed."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def digest(layer: Path) -> str:
    with layer.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="name:tag, such as local/python:1")
    parser.add_argument("out", type=Path, help="image to write")
    parser.add_argument("layers", type=Path, nargs="+", metavar="layer", help="tar file, not compressed; lowest first")
    parser.add_argument("--entrypoint", nargs="+", metavar="WORD", help="what a container runs")
    parser.add_argument("--user", help="whose processes a container's are, as a number")
    options = parser.parse_args()

    settings: dict[str, object] = {"Env": [PATH]}
    if options.entrypoint:
        settings["Entrypoint"] = options.entrypoint
    if options.user:
        settings["User"] = options.user
    digests = [digest(layer) for layer in options.layers]
    config = json.dumps(
        {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{each}" for each in digests]},
            "history": [{"created_by": "lab"} for _ in digests],
        }
    ).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    files = [f"{each}/layer.tar" for each in digests]
    manifest = [{"Config": config_name, "RepoTags": [options.name], "Layers": files}]

    partial = options.out.with_name(options.out.name + ".partial")
    with tarfile.open(partial, "w") as image:
        for name, data in ((config_name, config), ("manifest.json", json.dumps(manifest).encode())):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            image.addfile(entry, io.BytesIO(data))
        for name, layer in zip(files, options.layers, strict=True):
            image.add(layer, name)
    partial.replace(options.out)


if __name__ == "__main__":
    main()
