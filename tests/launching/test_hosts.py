"""hostnames and workers_per_host, with and without SLURM's variables."""

from __future__ import annotations

from typing import Any

import pytest

from lattice.errors import UsageError
from lattice.launching.hosts import Address, HostSpec, NoAllocation, WrongArgument, parse_address, resolve

SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_JOB_NODELIST": "gpu[1-2]",
    "SLURMD_NODENAME": "gpu1",
    "SLURM_JOB_CPUS_PER_NODE": "6(x2)",
}


def nodes(
    hostnames: Any, workers: Any = "auto", environ: dict[str, str] | None = None
) -> list[tuple[str, int | str, str]]:
    found = resolve(hostnames, workers, environ or {}, own_name="me.example.org")
    assert [one.index for one in found] == list(range(len(found)))
    return [(one.given, one.workers, one.transport) for one in found]


def test_without_slurm_it_is_this_machine() -> None:
    assert resolve("auto", "auto", {}) == (HostSpec("localhost", "auto", 0, "local"),)


def test_a_list_with_one_host_twice() -> None:
    assert nodes(["a", "u@b:22", "a"], 2) == [("a", 2, "ssh"), ("u@b:22", 2, "ssh"), ("a", 2, "ssh")]
    assert nodes(("a", "b"), [1, "gpu"]) == [("a", 1, "ssh"), ("b", "gpu", "ssh")]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "[::1]", "me", "me.example.org"])
def test_names_of_this_machine_need_no_ssh(name: str) -> None:
    assert nodes([name], "cpu") == [(name, "cpu", "local")]


@pytest.mark.parametrize("name", ["root@localhost", "localhost:2222", "me2", "127.0.0.2"])
def test_a_user_or_port_asks_for_ssh(name: str) -> None:
    assert nodes([name], 1) == [(name, 1, "ssh")]


class TestSlurm:
    def test_the_allocation_by_default(self) -> None:
        assert nodes("auto", "auto", SLURM) == [("gpu1", 6, "local"), ("gpu2", 6, "srun")]
        assert nodes("slurm", "slurm", SLURM) == nodes("auto", "auto", SLURM)
        assert nodes("slurm", 3, SLURM) == [("gpu1", 3, "local"), ("gpu2", 3, "srun")]

    def test_named_hosts_of_the_allocation(self) -> None:
        assert nodes(["gpu2", "other"], "auto", SLURM) == [("gpu2", "auto", "srun"), ("other", "auto", "ssh")]
        assert nodes(["gpu2"], "slurm", SLURM) == [("gpu2", 6, "srun")]
        with pytest.raises(ValueError, match=r"other is not in SLURM job 77 \(gpu1, gpu2\)"):
            nodes(["other"], "slurm", SLURM)

    @pytest.mark.parametrize("arguments", [("slurm", 1), ("auto", "slurm"), (["a"], "slurm")])
    def test_no_allocation(self, arguments: tuple[Any, Any]) -> None:
        for environ in ({}, {"SLURM_CONF": "/etc/slurm.conf"}, {"SLURM_JOB_ID": "1"}):
            with pytest.raises(
                RuntimeError, match=r"is 'slurm', but .* Start it with sbatch, salloc or srun"
            ) as raised:
                nodes(*arguments, environ)
            assert isinstance(raised.value, NoAllocation | UsageError)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("node", (None, "node", None)),
        ("me@node", ("me", "node", None)),
        ("me@realm@node:22", ("me@realm", "node", 22)),
        ("10.0.0.1:65535", (None, "10.0.0.1", 65535)),
        ("fe80::1%eth0", (None, "fe80::1%eth0", None)),
        ("me@[2001:db8::1]:2222", ("me", "2001:db8::1", 2222)),
        ("[2001:db8::1]", (None, "2001:db8::1", None)),
    ],
)
def test_addresses(given: str, parts: tuple[str | None, str, int | None]) -> None:
    assert parse_address(given) == Address(*parts)


@pytest.mark.parametrize(
    "given",
    [
        "",
        " ",
        "a b",
        "a\n",
        "-oProxyCommand=x",
        "u@-x",
        "@a",
        "-l@a",
        "a:",
        "a:0",
        "a:65536",
        "a:b",
        "a:²",
        "[::1",
        "[::1]22",
        "u@",
        "a/b",
    ],
)
def test_addresses_that_cannot_be_meant(given: str) -> None:
    with pytest.raises(WrongArgument, match=r"^hostnames\[1\]: "):
        nodes(["fine", given])


@pytest.mark.parametrize(
    ("hostnames", "workers", "said"),
    [
        ("node1", 1, r"hostnames is 'node1': give a list, such as \['node1'\]"),
        ([], 1, "hostnames is empty"),
        (7, 1, "hostnames is 7: give a list"),
        ([b"a"], 1, r"hostnames\[0\] is b'a'"),
        (["a"], 0, "workers_per_host is 0: a host has at least 1"),
        (["a"], -1, "workers_per_host is -1"),
        (["a"], True, "workers_per_host is True: give a number"),
        (["a"], 1.5, "workers_per_host is 1.5: give a number"),
        (["a"], "many", "workers_per_host is 'many': give a number"),
        (["a", "b"], [1], r"workers_per_host has 1 entries for 2 hosts \(a, b\)"),
        (["a", "b"], [1, 0], r"workers_per_host\[1\] is 0"),
        (["a"], ["slurm"], r"workers_per_host\[0\] is 'slurm': give a number, 'auto'"),
    ],
)
def test_arguments_that_cannot_be_meant(hostnames: object, workers: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        nodes(hostnames, workers)
    with pytest.raises(UsageError):
        nodes(hostnames, workers)
