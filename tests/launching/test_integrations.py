"""The examples of examples/launch as a user runs them: each library trains one model on the workers of a launch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tests.agents import ROOT
from tests.frameworks import interpreter
from tests.lab.hosts import network
from tests.launching.transports.sshd import server
from tests.waiting import patience

# The first run installs the libraries; after that these take seconds.
pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

EXAMPLES = ROOT / "examples" / "launch"
LINE = re.compile(r"rank (\d+) of (\d+): (\d+) samples, loss (\S+) -> (\S+), weights ([0-9a-f]{8})")


@cache
def python_with(library: str) -> str:
    return interpreter(library) if library != "torch" else sys.executable


def run(python: str, argv: Sequence[str], folder: Path, on: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run a program as a user would, without a way to anything that it could download."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LATTICE_")}
    nowhere = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder), "LATTICE_LOG_DIR": str(folder / "logs")}
    return subprocess.run(
        [*on, python, *argv],
        cwd=folder,
        env={**kept, **nowhere, "PYTHONPATH": str(EXAMPLES)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience(400),
        check=False,
    )


def check(ended: subprocess.CompletedProcess[str], samples: int) -> None:
    """See that two workers, and only they, shared the work and its fruits."""
    assert ended.returncode == 0, ended.stdout
    told = LINE.findall(ended.stdout)
    assert [line[:3] for line in told] == [(str(rank), "2", str(samples)) for rank in range(2)], ended.stdout
    assert len({weights for *_, weights in told}) == 1, ended.stdout
    for _, _, _, before, after, _ in told:
        assert float(after) < 0.5 * float(before), ended.stdout


@pytest.mark.parametrize(
    ("example", "library", "samples"),
    [
        ("ddp", "torch", 768),
        ("accelerate_train", "integrations", 768),
        ("trainer", "integrations", 512),
        ("lightning_train", "integrations", 768),
        ("jax_train", "jax", 768),
    ],
)
def test_two_workers_train_one_model(example: str, library: str, samples: int, tmp_path: Path) -> None:
    check(run(python_with(library), [str(EXAMPLES / f"{example}.py"), "--hosts", "localhost"], tmp_path), samples)


@pytest.mark.parametrize(("example", "library"), [("ddp", "torch"), ("jax_train", "jax")])
def test_two_hosts_with_a_worker_each_train_one_model(example: str, library: str, tmp_path: Path) -> None:
    python = python_with(library)
    with ExitStack() as stack:
        hosts = stack.enter_context(network(2))
        config = tmp_path / "config"
        with config.open("w") as written:
            for host in hosts.names:
                up = stack.enter_context(server(tmp_path / host, on=hosts.on(host), address=hosts.address(host)))
                written.write(up.host_block(f"by-ssh-{host}"))
        given = ["--hosts", *(f"by-ssh-{host}" for host in hosts.names), "--ssh-config", str(config), "--workers", "1"]
        check(run(python, [str(EXAMPLES / f"{example}.py"), *given], tmp_path, hosts.on(hosts.names[0])), 768)


WATCHED = """
import sys
import lattice

STARTS = {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"}

def watched():
    from lightning_train import train

    started = []
    sys.addaudithook(lambda event, given: started.append((event, given)) if event in STARTS else None)
    return train(), started

for trained, started in lattice.launch(watched, hostnames=["localhost"], workers_per_host=2):
    print(trained)
    assert not started, started
"""


def test_lightning_starts_no_process_of_its_own(tmp_path: Path) -> None:
    check(run(python_with("integrations"), ["-c", WATCHED], tmp_path), 768)


APART: dict[str, tuple[Callable[[int], str], str]] = {
    "groups": (lambda rank: "Trained(0, 1, 10, 4.0, 1.0, 'aa')", "not all are ranks of one group"),
    "weights": (lambda rank: f"Trained({rank}, 2, 10, 4.0, 1.0, 'a{rank}')", "their weights differ"),
    "loss": (lambda rank: f"Trained({rank}, 2, 10, 4.0, {1.0 + 2 * rank}, 'aa')", "the loss did not fall"),
}


@pytest.mark.parametrize("what", APART)
def test_an_example_fails_if_its_workers_trained_apart_or_learnt_nothing(what: str, tmp_path: Path) -> None:
    make, said = APART[what]
    program = f"from trained import Trained, show; show([{make(0)}, {make(1)}])"
    ended = run(sys.executable, ["-c", program], tmp_path)
    assert ended.returncode == 1 and said in ended.stdout
