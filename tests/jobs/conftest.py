"""Jobs leave nothing behind but what they promise to keep."""

from __future__ import annotations

from tests.jobs.places import place
from tests.leaks import no_leaks

__all__ = ["no_leaks", "place"]
