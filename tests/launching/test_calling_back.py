"""Nodes that call back, from end to end: what goes through their first stream, what through TLS, and how they end."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lattice
from lattice.launching.reception import Reception
from tests.agents import ROOT
from tests.launching.staying import Families, stay
from tests.leaks import descriptors
from tests.waiting import patience

NODES = ("n1", "n2")
ALONE: dict[str, Any] = {"workers_per_host": 1, "backend": None, "framework": "generic", "log_handlers": None}
# In place of SLURM, of which the lab has a real one: it does nothing but write down what goes through its streams.
SRUN = """#!/bin/sh
for word; do case $word in --nodelist=*) node=${word#*=};; esac; done
while [ "$1" != -- ]; do shift; done; shift
export SLURM_LAUNCH_NODE_IPADDR=127.0.0.1
exec 3<&0
mkfifo "$WATCHED/$node.fifo"
tee "$WATCHED/$node.in" <&3 >"$WATCHED/$node.fifo" & in=$!
"$@" <"$WATCHED/$node.fifo" 3<&- | tee "$WATCHED/$node.out"
sleep 0.5
echo "srun: error: $node: task 0: Exited" >&2
kill $in
"""


@pytest.fixture(autouse=True)
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    write_program(programs / "srun", SRUN)
    for name, value in {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}/src:{ROOT}",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": ",".join(NODES),
        "WATCHED": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    return tmp_path


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def seen(folder: Path) -> bytes:
    return b"".join((folder / f"{node}.{way}").read_bytes() for node in NODES for way in ("in", "out"))


def chatter(argument: bytes) -> bytes:
    print("FROM-THE-LOG")
    return argument + b" FROM-THE-RESULT " + os.environ["SECRET_OF_MINE"].encode()


WORDS = (b"FROM-THE-LOG", b"FROM-THE-ARGUMENT", b"FROM-THE-RESULT", b"FROM-A-VARIABLE")


def run_chatter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "FROM-A-VARIABLE")
    result = lattice.launch(chatter, (b"FROM-THE-ARGUMENT",), extra_env_vars=("SECRET_*",), **ALONE)
    assert result.all() == [b"FROM-THE-ARGUMENT FROM-THE-RESULT FROM-A-VARIABLE"] * 2


def test_all_that_matters_goes_over_tls(
    watched: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_chatter(monkeypatch)
    found = seen(watched)
    assert found.count(b'"fingerprint"') == found.count(b'"commitment"') == len(NODES)
    assert not [word for word in (*WORDS, b'"secret"') if word in found]
    assert not caplog.records


def no_openssl(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    write_program(folder / "bin/openssl", "#!/bin/sh\necho out of order >&2; exit 1\n")
    return "openssl made no certificate: out of order"


def a_firewall(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    offer = Reception.offer

    def elsewhere(self: Reception, addresses: Any) -> Any:
        return {**(offer(self, addresses) or {}), "addresses": [["127.0.0.1", 1]]}

    monkeypatch.setattr(Reception, "offer", elsewhere)
    return "127.0.0.1 port 1: Connection refused"


def no_address(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    srun = folder / "bin/srun"
    srun.write_text(srun.read_text().replace("=127.0.0.1", "=192.0.2.1"))
    monkeypatch.setattr("lattice.launching.meeting.facing", lambda host: None)
    return "it cannot listen on 192.0.2.1"


@pytest.mark.parametrize("obstacle", [no_openssl, a_firewall, no_address])
def test_where_nobody_can_call_back_it_works_all_the_same_and_says_so_once(
    obstacle: Callable[[Path, pytest.MonkeyPatch], str],
    watched: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reason = obstacle(watched, monkeypatch)
    run_chatter(monkeypatch)
    assert all(word in seen(watched) for word in WORDS), "or the other test proves nothing"
    (said,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert said.getMessage().startswith(f"n1, n2: no connection back to this machine ({reason}")


def listening() -> set[str]:
    own = set(descriptors().values())
    lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    return {f"socket:[{words[9]}]" for words in map(str.split, lines) if words[3] == "0A"} & own


def test_nobody_listens_once_all_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = listening(), []
    expect = Reception.expect

    def look(*args: Any) -> None:
        seen.append(listening())
        expect(*args)

    monkeypatch.setattr(Reception, "expect", look)
    with lattice.Launcher(**ALONE) as pool:
        assert len(seen) == 2 and all(found > before for found in seen), "or this cannot see it"
        assert listening() == before
        assert len(set(pool.run(os.getppid).all())) == 2


def kill_node(folder: Path, agent: int) -> None:
    os.kill(agent, signal.SIGKILL)


def kill_stream(folder: Path, agent: int) -> None:
    """End what the node's first stream goes through, and nothing else."""
    link = os.readlink(f"/proc/{agent}/fd/0")  # noqa: PTH115
    assert link == os.devnull, "it keeps its first stream elsewhere"
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"tee", os.fsencode(folder / "n2.in")]:
            os.kill(int(entry.name), signal.SIGKILL)


@pytest.mark.parametrize("end", [kill_node, kill_stream])
def test_when_one_way_ends_all_does_and_what_srun_said_is_told(
    end: Callable[[Path, int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lattice.launching.supervisor.LAST_WORDS", 60.0)
    families = Families(tmp_path / "families")
    families.folder.mkdir()
    handle = lattice.launch(stay, (str(families.folder),), wait=False, **ALONE)
    families.pids(2)
    end(tmp_path, int((families.folder / "1.1").read_text().split()[1]))
    with pytest.raises(lattice.AgentFailedError, match="n2") as caught:
        handle.result(patience(120))
    assert "srun: error: n2: task 0: Exited" in str(caught.value)
    families.gone(2)


def test_a_node_of_another_version_is_not_asked_to_call(watched: Path) -> None:
    other = watched / "other"
    write_program(
        other,
        f"#!/bin/sh\nexec {sys.executable} -c '"
        'import lattice\nlattice.__version__ = "0.0.0"\n'
        "from lattice.launching.node import main\nmain()'\n",
    )
    with pytest.raises(lattice.AgentFailedError, match=r"it has Lattice 0\.0\.0 and the launcher"):
        lattice.launch(os.getpid, python=str(other), **ALONE)
    assert b"fingerprint" not in seen(watched)
