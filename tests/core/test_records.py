"""What is written can be read, also by a Lattice that knows less; everything else is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lattice.core.records import (
    FailureRecord,
    Keys,
    LeaderRecord,
    NodeRecord,
    OutcomeRecord,
    Record,
    ReportRecord,
    RosterRecord,
    RoundRecord,
    RunRecord,
    WrongRecordError,
)
from lattice.core.topology import RosterEntry

KINDS = (RunRecord, LeaderRecord, RoundRecord, OutcomeRecord, ReportRecord, RosterRecord, NodeRecord, FailureRecord)
entries = st.builds(RosterEntry)
records = st.one_of(*[st.builds(kind) for kind in KINDS])


@given(records)
def test_round_trip(record: Record) -> None:
    assert type(record).decode(record.encode()) == record


@given(records)
def test_fields_of_a_newer_version_are_ignored(record: Record) -> None:
    fields = json.loads(record.encode()) | {"colour": "blue"}
    assert type(record).decode(json.dumps(fields).encode()) == record


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\x80\x04.", b'{"v":2,"incarnation":"a"}', b'{"v":1}'])
@pytest.mark.parametrize("kind", KINDS)
def test_anything_else_is_refused(kind: type[Record], data: bytes) -> None:
    with pytest.raises(WrongRecordError):
        kind.decode(data)


@given(st.text(max_size=8), st.text(max_size=8))
def test_no_run_lies_below_another(one: str, other: str) -> None:
    if one != other:
        assert not Keys(one).root.startswith(Keys(other).root)
