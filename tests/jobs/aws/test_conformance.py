"""The promises of all places, on AWS: real agents on hosts that run the user data of moto's instances."""

from __future__ import annotations

import pytest

from tests.jobs.aws.instances import place, running_cloud, warm
from tests.jobs.test_conformance import *  # noqa: F403

# The store of these jobs is an etcd: test_end_to_end.py asks who may ask it.
del test_the_nodes_meet_at_a_store_that_speaks_tls_only  # noqa: F821

__all__ = ["place", "running_cloud", "warm"]
# tests/sharing.py keeps these in one process: the cloud is made once.
pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]
