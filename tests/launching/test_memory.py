"""Memory that does not suffice: what is too large is refused before it is sent, and who is killed for it is named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import lattice
from lattice.errors import ResultNotReturned, TooLarge
from lattice.launching import room, supervisor
from lattice.launching.problems import refuse_large
from lattice.process import cgroups
from tests.launching.test_launch import ALONE
from tests.launching.transports.sshd import server
from tests.launching.transports.stream import host
from tests.limited import limited

MEGABYTE = 1 << 20
MEMINFO = "MemTotal:       24681472 kB\nMemFree:        123 kB\nMemAvailable:   1000 kB\nBuffers:    1 kB\n"


def devour() -> int:
    taken = []
    while True:
        taken.append(b"x" * MEGABYTE)


def test_a_worker_killed_for_its_memory_is_said_to_be(tmp_path: Path) -> None:
    with limited(tmp_path, 300 * MEGABYTE) as python:
        with pytest.raises(lattice.WorkerFailedError, match="was killed, likely out of memory") as caught:
            lattice.launch(devour, workers_per_host=1, python=python, **ALONE)
        assert caught.value.out_of_memory and caught.value.signal == "SIGKILL"
        with pytest.raises(lattice.WorkerFailedError, match="was killed by SIGKILL") as caught:
            lattice.launch(lambda: os.kill(os.getpid(), 9), workers_per_host=1, python=python, **ALONE)
        assert not caught.value.out_of_memory, "what another launch ran out of is no news"


def test_room_is_half_of_the_memory_and_no_more_than_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert room.LEAST <= room.room() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    assert room.available(MEMINFO) == 1000 << 10
    assert room.available("") is None
    group = cgroups.MemoryGroup(str(tmp_path), 2)
    monkeypatch.setattr(room, "memory_groups", lambda: (group,))
    (tmp_path / "memory.max").write_text(f"{200 * MEGABYTE}\n")
    assert room.room() == 100 * MEGABYTE
    (tmp_path / "memory.current").write_text(f"{150 * MEGABYTE}\n")
    assert room.room() == 50 * MEGABYTE
    (tmp_path / "memory.current").write_text(f"{200 * MEGABYTE}\n")
    assert room.room() == room.LEAST


def test_what_a_host_has_no_room_for_is_refused() -> None:
    def facts(machine: str, megabytes: int) -> dict[str, Any]:
        return {"machine": machine, "room": megabytes * MEGABYTE}

    big, small, twin = (host("big"), facts("1", 100)), (host("small"), facts("2", 30)), (host("twin"), facts("1", 99))
    refuse_large([big, small, (host("localhost", "local"), facts("3", 0))], 30 * MEGABYTE)
    with pytest.raises(TooLarge, match="is the most that is sent to small: half"):
        refuse_large([big, small], 31 * MEGABYTE)
    refuse_large([big], 60 * MEGABYTE)
    with pytest.raises(TooLarge, match=r"2 times for as many agents, takes 0\.12 GiB .* to twin"):
        refuse_large([big, twin], 60 * MEGABYTE)


def give(megabytes: int) -> bytes:
    return bytes(megabytes * MEGABYTE)


def test_results_of_workers_that_are_too_much_together(tmp_path: Path) -> None:
    with limited(tmp_path, 400 * MEGABYTE) as python:
        settings = {**ALONE, "python": python, "workers_per_host": 2, "preload": "none"}
        assert lattice.launch(give, (60,), **settings).rank(1) == give(60)
        with pytest.raises(ResultNotReturned, match=r"cannot be sent back: it takes 0\.2. GiB or more"):
            lattice.launch(give, (250,), **settings)
        with pytest.raises(ResultNotReturned, match=r"cannot be sent back: it takes 0\.1. GiB or more"):
            lattice.launch(give, (185,), **settings)


def test_the_memory_of_other_hosts_and_of_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(tmp_path / "sshd") as up, limited(tmp_path, 200 * MEGABYTE) as python:
        config = tmp_path / "config"
        config.write_text(up.host_block("one") + up.host_block("two"))
        settings: dict[str, Any] = {**ALONE, "ssh_config_file": config, "workers_per_host": 1, "python": python}
        with pytest.raises(TooLarge, match="is the most that is sent to one: half"):
            lattice.launch(len, (give(150),), **{**settings, "hostnames": ["one"]})
        with pytest.raises(TooLarge, match="2 times for as many agents"):
            lattice.launch(len, (give(60),), **{**settings, "hostnames": ["one", "two"]})
        assert lattice.launch(len, (give(20),), **{**settings, "hostnames": ["one"]}).rank(0) == 20 * MEGABYTE
        monkeypatch.setattr(supervisor, "room", lambda: 30 * MEGABYTE)  # of the launcher
        with pytest.raises(ResultNotReturned, match=r"cannot be sent back: it takes 0\.03 GiB or more, and 0\.03"):
            lattice.launch(give, (31,), **{**settings, "hostnames": ["one"]})
        with pytest.raises(ResultNotReturned, match="no room here beside the results of others"):
            lattice.launch(give, (20,), **{**settings, "hostnames": ["one", "two"]})
