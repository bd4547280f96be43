"""Nothing is left behind by these either."""

from __future__ import annotations

from tests.leaks import no_leaks

__all__ = ["no_leaks"]
