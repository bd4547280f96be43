"""Gloo is told where to listen only where it would get it wrong."""

from __future__ import annotations

import threading

import pytest

from lattice.process import gloo
from lattice.process.gloo import Gloo


@pytest.fixture(autouse=True)
def interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo, "interface_of", {"10.0.0.1": "eth7"}.get)
    monkeypatch.setattr(gloo, "of_own_name", lambda: "127.0.1.1")


def test_a_name_that_leads_to_the_loopback() -> None:
    assert Gloo().variables("10.0.0.1", {}) == {"GLOO_SOCKET_IFNAME": "eth7"}
    assert Gloo().variables("10.0.0.1", {"GLOO_SOCKET_IFNAME": "mine"}) == {}, "the user knows better"
    assert Gloo().variables("10.0.0.2", {}) == {}, "an address that no interface has first"
    assert Gloo().variables("127.0.0.1", {}) == {}, "all nodes are here"


def test_a_name_that_leads_to_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo, "of_own_name", lambda: "10.0.0.3")
    assert Gloo().variables("10.0.0.1", {}) == {}


def test_a_silent_name_server_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    silence = threading.Event()

    def ask() -> str:
        silence.wait()
        return "10.0.0.3"

    monkeypatch.setattr(gloo, "of_own_name", ask)
    monkeypatch.setattr(gloo, "PATIENCE", 0.01)
    one = Gloo()
    assert one.variables("10.0.0.1", {}) == {"GLOO_SOCKET_IFNAME": "eth7"}, "what nobody can look up gloo cannot either"
    silence.set()
