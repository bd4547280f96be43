#!/usr/bin/env python3
"""
Storage on demand: for every claim of the class that the cluster has, a folder of this machine, gone with the claim.

All nodes see the machine's files, so that a volume outlives the node that used it, as network storage does.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
import urllib.error
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))
from tests.lab.kubernetes.mirror import Api, Json, Mirror, add_options, connect

CLASS = "lab"
PROVISIONER = "lattice.lab/folder"


def storage_class() -> Json:
    """Give the class that a claim without one has."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {"metadata": {"name": CLASS, "annotations": default}, "provisioner": PROVISIONER, "reclaimPolicy": "Delete"}


def volume(claim: Json, folder: Path) -> Json:
    """Give the volume for a claim; it has what the claim asks for."""
    about, asked = claim["metadata"], claim["spec"]
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        **{name: about[name] for name in ("namespace", "name", "uid")},
    }
    spec = {
        "accessModes": asked["accessModes"],
        "capacity": asked["resources"]["requests"],
        "claimRef": reference,
        "hostPath": {"path": str(folder)},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": CLASS,
    }
    made_by = {"pv.kubernetes.io/provisioned-by": PROVISIONER}
    return {"metadata": {"name": folder.name, "annotations": made_by}, "spec": spec}


def provide(api: Api, claims: Mirror, volumes: Mirror, root: Path) -> None:
    """Bring volumes in step with claims."""
    existing = {name for _, name in volumes.objects}
    for claim in claims.objects.values():
        folder = root / f"pvc-{claim['metadata']['uid']}"
        wanted = claim["spec"].get("storageClassName") == CLASS and claim["status"].get("phase") == "Pending"
        if wanted and folder.name not in existing:
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)  # who is not root writes to it, too; other storage would give it to the pod's group
            api.ask("POST", "/api/v1/persistentvolumes", volume(claim, folder))
    for (_, name), made in volumes.objects.items():
        if made["spec"].get("storageClassName") == CLASS and made.get("status", {}).get("phase") == "Released":
            api.ask("DELETE", f"/api/v1/persistentvolumes/{name}")
            shutil.rmtree(root / name, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--root", required=True, type=Path, help="where the folders are made")
    options = parser.parse_args()

    options.root.mkdir(exist_ok=True)
    changed = threading.Event()
    api = connect(options)
    api.ask("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class())
    claims, volumes = Mirror(api, "persistentvolumeclaims", changed), Mirror(api, "persistentvolumes", changed)
    while changed.wait():
        changed.clear()
        try:
            provide(api, claims, volumes, options.root)
        except urllib.error.HTTPError as error:
            if error.code not in (404, 409):  # it was there, or gone, before the mirror knew
                raise


if __name__ == "__main__":
    main()
