"""Lattice runs distributed training anywhere and keeps it running."""

__version__ = "0.1.0"
