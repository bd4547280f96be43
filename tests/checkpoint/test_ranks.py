from __future__ import annotations

from collections.abc import Mapping

import pytest

from lattice.checkpoint.ranks import ranks

LATTICE = {"LATTICE_RUN_ID": "run", "LATTICE_RUN_UUID": "a1.1", "LATTICE_ROUND": "3", "LATTICE_RESTART_COUNT": "2"}
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "MASTER_ADDR": "host",
    "MASTER_PORT": "29400",
}


@pytest.mark.parametrize(
    ("given", "run", "number", "restarts"),
    [
        (LATTICE, "run (a1.1)", 3, 2),
        ({**LATTICE, **TORCHRUN}, "run (a1.1)", 3, 2),
        ({"LATTICE_RUN_ID": "run", "LATTICE_ROUND": "3"}, "run", 3, 0),
        (TORCHRUN, "none, restart 2 (host:29400)", 0, 2),
        ({}, "token", 0, 0),
    ],
)
def test_no_two_runs_have_one_name(
    given: Mapping[str, str], run: str, number: int, restarts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in {*LATTICE, *TORCHRUN}:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    me = ranks("token")
    assert (me.run, me.round, me.restarts) == (run, number, restarts)
