"""Every test here starts threads and opens descriptors: none may be left."""

from __future__ import annotations

from tests.leaks import no_leaks

__all__ = ["no_leaks"]
