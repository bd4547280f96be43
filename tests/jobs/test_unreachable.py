"""Hosts that cannot be reached, at the beginning or for good: nobody is stuck with them."""

from __future__ import annotations

from pathlib import Path

from tests.jobs import programs
from tests.jobs.places import ssh
from tests.waiting import eventually


def test_a_host_that_cannot_be_reached_leaves_nothing_on_the_others(tmp_path: Path) -> None:
    with ssh(tmp_path) as place:
        (tmp_path / "tell.py").write_text(programs.TELL)
        config = tmp_path / "ssh_config"
        config.write_text(config.read_text() + "Host nowhere\n  HostName 127.0.0.1\n  Port 1\n")
        words = ("--ssh_config_file", str(config), "tell.py")
        said = place.run("submit", "--name", "j", "--on", "ssh", "--hosts", "alpha,nowhere", *words)
        assert said.code != 0 and "nowhere" in said.err and "lattice kill" not in said.err
        assert not (place.home / "nodes").exists()
        assert "no jobs yet" in place.run("status").out
        assert place.run("submit", "--name", "j", "--on", "ssh", "--hosts", "alpha,beta", *words).code == 0
        assert place.run("wait", "j").code == 0
        eventually(lambda: not place.running())


def test_a_job_whose_hosts_are_gone_for_good_can_be_forgotten(tmp_path: Path) -> None:
    with ssh(tmp_path) as place:
        (tmp_path / "tell.py").write_text(programs.TELL)
        assert place.submit("gone", "tell.py").code == 0
        assert place.run("wait", "gone").code == 0
        eventually(lambda: not place.running())
    assert "unreachable" in place.run("status", "gone").out
    early = place.run("forget", "--force", "gone")
    assert (early.code, "end it first: lattice kill gone" in early.err) == (2, True), early.err
    assert place.run("kill", "gone").code == 1
    refused = place.run("forget", "gone")
    assert (refused.code, "lattice forget --force gone" in refused.err) == (1, True), refused.err
    forced = place.run("forget", "--force", "gone")
    assert (forced.code, "left behind" in forced.err) == (0, True), forced.err
    assert "no jobs yet" in place.run("status").out
