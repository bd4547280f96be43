"""Amounts as Kubernetes writes them. Pure."""

from __future__ import annotations

SUFFIXES = {
    **{"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15},
    **{"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50},
}


def amount(text: str) -> float:
    """Read an amount such as ``500m``, ``2`` or ``8Gi``; nothing is 0."""
    number = text.rstrip("mkKMGTPi")
    return float(number or 0) * SUFFIXES.get(text[len(number) :], 1.0)
