"""Manifests as YAML: for ``--dry_run``, and as files."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from lattice.errors import LatticeError

HIDDEN = "***"


def text(manifest: Mapping[str, Any]) -> str:
    """Write a manifest as YAML, in the order in which it was made."""
    try:
        import yaml
    except ImportError:
        raise LatticeError('manifests need PyYAML: pip install "lattice-addons-pytorch[jobs]"') from None

    class Plain(yaml.SafeDumper):
        """Writes the same value out each time it occurs."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    return str(yaml.dump(dict(manifest), Dumper=Plain, sort_keys=False, width=110, default_flow_style=False))


def shown(manifest: Mapping[str, Any]) -> str:
    """Write a manifest for a reader: a Secret without its secrets, but with what nodes are told as text."""
    if manifest["kind"] != "Secret":
        return text(manifest)
    told = {}
    for name, value in manifest["data"].items():
        found = base64.b64decode(value).decode()
        told[name] = json.dumps(_without_values(json.loads(found)), indent=1) if name.startswith("order-") else HIDDEN
    rest = {name: value for name, value in manifest.items() if name != "data"}
    return text({**rest, "stringData": told})


def _without_values(order: dict[str, Any]) -> dict[str, Any]:
    return {**order, "environment": dict.fromkeys(order["environment"], HIDDEN)}
