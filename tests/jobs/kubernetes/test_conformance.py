"""The promises of all places, on a real Kubernetes."""

from __future__ import annotations

from tests.jobs.test_conformance import *  # noqa: F403

# The store of these jobs is an etcd, as on AWS; an agent that is killed comes back by itself: test_faults.py asks.
del test_the_nodes_meet_at_a_store_that_speaks_tls_only  # noqa: F821
del test_a_killed_agent_is_seen_and_can_be_started_again  # noqa: F821
