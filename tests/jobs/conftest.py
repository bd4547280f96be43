"""Jobs leave nothing behind but what they promise to keep."""

from __future__ import annotations

import pytest

from tests.jobs.places import place
from tests.leaks import no_leaks

__all__ = ["no_leaks", "place"]

LONG_OVER_SSH = (
    "test_a_submission_that_waits_shows_the_logs_and_has_the_jobs_exit_code",
    "test_a_restart_within_the_budget_is_counted",
    "test_the_same_submission_twice_is_one_job_and_another_is_refused",
    "test_a_killed_job_can_be_killed_again_and_its_name_is_free",
    "test_a_folder_goes_along_whole",
    "test_a_job_shrinks_and_grows_within_its_size",
    "test_a_killed_agent_is_seen_and_can_be_started_again",
    "test_the_nodes_meet_at_a_store_that_speaks_tls_only",
)
"""of the suite over all places: what over SSH takes ten seconds and more, and is the same as on this machine"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name in [f"{name}[ssh]" for name in LONG_OVER_SSH]:
            item.add_marker(pytest.mark.long)
