"""The list of faults in the documentation names tests that there are."""

from __future__ import annotations

import re

from tests.agents import ROOT


def test_each_fault_of_the_list_has_its_test() -> None:
    page = (ROOT / "docs/launch.md").read_text()
    table = page.partition("## What went wrong elsewhere")[2]
    named = re.findall(r"\| `(\w+\.py)::(\w+)` \|$", table, re.MULTILINE)
    assert len(named) == len(re.findall(r"^\| [^-]", table, re.MULTILINE)) - 1 == 16
    for file, test in named:
        assert f"\ndef {test}(" in (ROOT / "tests/launching" / file).read_text(), f"{file} has no {test}"
