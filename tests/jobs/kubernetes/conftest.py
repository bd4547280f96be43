"""Jobs on the lab's Kubernetes leave nothing behind but what they promise to keep."""

from __future__ import annotations

from tests.jobs.kubernetes.pods import place, warm
from tests.leaks import no_leaks

__all__ = ["no_leaks", "place", "warm"]
