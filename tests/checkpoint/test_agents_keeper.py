"""The keeper as the agent has it."""

from __future__ import annotations

import errno
from contextlib import closing
from selectors import DefaultSelector
from typing import Any

import pytest

from lattice.agent.keeper import Keeper
from lattice.checkpoint import starting
from lattice.checkpoint.messages import connect, receive
from lattice.core.keeper import VARIABLE
from lattice.telemetry.journal import Journal


def test_who_calls_while_none_can_be_started_hears_so_and_may_call_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(starting, "start_keeper", fails)
    said: list[str] = []
    with DefaultSelector() as selector, closing(Keeper(selector, Journal(""), said.append, 1.0)) as keeper:
        for times in (1, 2):
            with closing(connect(keeper.variables()[VARIABLE], 30)) as line:
                for key, _ in selector.select(30):
                    key.data()
                assert receive(line) == (None, None)
            assert said == ["no keeper for checkpoints could be started: no more processes"] * times
