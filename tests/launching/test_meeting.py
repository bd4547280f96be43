"""Under which address each host of a launch is found, decided from how it was reached."""

from __future__ import annotations

from typing import Any

import pytest

from lattice.launching.meeting import Place, addresses, facing_node, place, reached
from lattice.process.addresses import LOOPBACK, facing, interface_of, is_own

HERE = Place(True, LOOPBACK, "")
OWN = ("10.0.0.1", "192.168.0.1")


def met(*places: Place, own: tuple[str, ...] = OWN, source: str | None = "10.0.0.9") -> tuple[str, ...]:
    return addresses(places, own.__contains__, lambda address: source)


def test_alone_on_this_machine_is_the_loopback() -> None:
    assert met(HERE, HERE) == (LOOPBACK, LOOPBACK)
    assert met() == ()


def test_this_machine_is_found_where_others_saw_it_come_from() -> None:
    assert met(HERE, Place(False, "10.0.0.2", "10.0.0.1")) == ("10.0.0.1", "10.0.0.2")
    assert met(Place(False, "10.0.0.2", "10.0.0.1"), HERE, HERE) == ("10.0.0.2", "10.0.0.1", "10.0.0.1")


@pytest.mark.parametrize("caller", ["10.9.9.9", "127.0.0.1", ""])
def test_behind_a_jump_host_it_is_what_faces_them(caller: str) -> None:
    assert met(HERE, Place(False, "10.0.0.2", caller)) == ("10.0.0.9", "10.0.0.2")
    second = Place(False, "10.0.0.3", "192.168.0.1")
    assert met(HERE, Place(False, "10.0.0.2", caller), second)[0] == "192.168.0.1", "one that fits is enough"


def test_without_a_way_to_them_there_is_nothing_better_than_the_loopback() -> None:
    assert met(HERE, Place(False, "10.0.0.2", ""), source=None) == (LOOPBACK, "10.0.0.2")


def facts(machine: str = "other", otherwise: str = "10.0.0.7", **ways: list[str]) -> dict[str, Any]:
    return {"machine": machine, "reached": ways, "otherwise": otherwise}


@pytest.mark.parametrize(
    ("transport", "said", "where"),
    [
        ("ssh", facts(ssh=["10.0.0.1", "10.0.0.2"]), Place(False, "10.0.0.2", "10.0.0.1")),
        ("srun", facts(srun=["10.0.0.1", "10.0.0.2"]), Place(False, "10.0.0.2", "10.0.0.1")),
        # What came along from the user's own login says nothing.
        ("local", facts("me", ssh=["1.2.3.4", "5.6.7.8"]), HERE),
        (
            "srun",
            facts(ssh=["1.2.3.4", "5.6.7.8"], srun=["10.0.0.1", "10.0.0.2"]),
            Place(False, "10.0.0.2", "10.0.0.1"),
        ),
        # A server on this machine, and the end of a tunnel on another.
        ("ssh", facts("me", ssh=["127.0.0.1", "127.0.0.1"]), HERE),
        ("ssh", facts("other", ssh=["::1", "::1"]), Place(False, "10.0.0.7", "")),
        ("srun", facts(), Place(False, "10.0.0.7", "")),
        ("srun", facts(srun=["10.0.0.1", ""]), Place(False, "10.0.0.7", "")),
    ],
)
def test_where_a_node_is(transport: str, said: dict[str, Any], where: Place) -> None:
    assert place(transport, said, "me") == where


def test_a_node_tells_how_it_was_reached() -> None:
    found = reached({"SSH_CONNECTION": "10.0.0.1 5000 10.0.0.2 22", "SLURM_LAUNCH_NODE_IPADDR": LOOPBACK})
    assert found["reached"] == {"ssh": ["10.0.0.1", "10.0.0.2"], "srun": [LOOPBACK, LOOPBACK]}
    assert reached({"SSH_CONNECTION": "odd"})["reached"] == {}
    assert reached({})["otherwise"]


def test_where_a_node_may_call_the_launcher() -> None:
    assert facing_node("srun", facts(srun=["10.0.0.1", LOOPBACK]), "n1") == ("10.0.0.1", LOOPBACK)
    assert facing_node("srun", facts(), "localhost") in ((LOOPBACK,), ("::1",))
    assert facing_node("srun", facts(), "no.such.host.invalid") == ()


def test_addresses_and_interfaces_of_this_machine() -> None:
    assert is_own(LOOPBACK) and not is_own("192.0.2.1") and not is_own("no address")
    assert facing(LOOPBACK) == LOOPBACK
    assert facing("no.such.host.invalid") is None
    assert interface_of(LOOPBACK) == "lo"
    assert interface_of("192.0.2.1") is None
    assert interface_of("2001:db8::1") is None
