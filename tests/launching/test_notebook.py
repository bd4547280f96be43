"""Launches from a notebook: a real Jupyter kernel that runs cells, and what appears under each of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lattice.process.guard import read_processes
from tests.waiting import eventually, patience

jupyter_client = pytest.importorskip("jupyter_client")
pytest.importorskip("ipykernel")

SETUP = """
import os, time
from pathlib import Path
import lattice

SETTINGS = dict(hostnames=["localhost"], workers_per_host=2, backend=None, framework="generic")
"""
WITHIN = 90.0


class Cell:
    """One that runs: what it has shown so far, and whether it has ended."""

    def __init__(self, client: Any, code: str) -> None:
        self._client = client
        self.number = client.execute(code)
        self.text = ""
        self.error = ""
        self.ended = False

    def shows(self, text: str) -> bool:
        """Take what has come, if anything has, and tell whether a text is among it."""
        self._take()
        return text in self.text

    def end(self) -> Cell:
        eventually(lambda: self.shows("") and self.ended, within=WITHIN)
        return self

    def _take(self) -> None:
        try:
            message = self._client.get_iopub_msg(timeout=0.05)
        except Exception:  # queue.Empty, of whichever version
            return
        if message["parent_header"].get("msg_id") != self.number:
            return
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            self.text += content["text"]
        elif kind == "error":
            self.error = "\n".join(content["traceback"])
        elif kind == "status" and content["execution_state"] == "idle":
            self.ended = True


class Kernel:
    """A kernel and what belongs to it."""

    def __init__(self, folder: Path) -> None:
        self._manager = jupyter_client.KernelManager(
            transport="ipc", ip=str(folder / "socket"), connection_file=str(folder / "connection.json")
        )
        self._manager.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self._manager.start_kernel(cwd=str(folder))
        self.client = self._manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=patience(WITHIN))

    def run(self, code: str) -> Cell:
        return Cell(self.client, code)

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()

    def children(self) -> list[int]:
        pid = self._manager.provisioner.pid
        return [process.pid for process in read_processes() if process.parent == pid and not process.ended]

    def close(self) -> None:
        self.client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self._manager.cleanup_resources()


@pytest.fixture(scope="session")
def event_loop_of_jupyter() -> None:
    """Have it made before anything is counted: it is kept for as long as the process lives."""
    pytest.importorskip("jupyter_core.utils").ensure_event_loop()


@pytest.fixture
def kernel(event_loop_of_jupyter: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("LATTICE_LOG_DIR", str(tmp_path / "logs"))
    made = Kernel(tmp_path)
    try:
        assert not made.run(SETUP).end().error
        yield made
    finally:
        made.close()


def test_cells(kernel: Kernel, tmp_path: Path) -> None:
    """One after the other in one kernel, as a notebook is used; each kernel takes seconds to start."""
    cell = kernel.run(
        """
class Found:
    def __init__(self, rank):
        self.rank = rank

def work():
    print("from a cell", flush=True)
    while not Path("go").exists():
        time.sleep(0.01)
    return Found(int(os.environ["LATTICE_RANK"]))

print([found.rank for found in lattice.launch(work, **SETTINGS)])
"""
    )
    eventually(lambda: cell.shows("[localhost:0] from a cell\n"), within=WITHIN)
    assert not cell.ended, "while it runs"
    eventually(lambda: cell.shows("[lattice] localhost: 2 workers, round 1\n"), within=WITHIN)
    (tmp_path / "go").touch()
    cell.end()
    assert cell.text.endswith("[0, 1]\n") and "\x1b" not in cell.text

    cell = kernel.run(
        """
def divide(by):
    return 1 / by

lattice.launch(divide, (0,), **SETTINGS)
"""
    ).end()
    assert "ZeroDivisionError: division by zero" in cell.error
    assert "raised it" in cell.error and "return 1 / by" in cell.error.rpartition("raised it")[2], "the cell's own line"

    cell = kernel.run("lattice.launch(lambda: (print('asleep', flush=True), time.sleep(600)), **SETTINGS)")
    eventually(lambda: cell.shows("asleep"), within=WITHIN)
    assert kernel.children()
    kernel.interrupt()
    assert "KeyboardInterrupt" in cell.end().error
    eventually(lambda: not kernel.children(), within=30)

    # What a pool's workers print appears under the cell that runs them, not under the one that made it.
    assert not kernel.run("pool = lattice.Launcher(progress=False, **SETTINGS).__enter__()").end().error
    for word in ("first", "second"):
        cell = kernel.run(f"pool.run(print, {word!r}, flush=True)").end()
        assert (cell.error, cell.text) == ("", f"[localhost:0] {word}\n")
    assert not kernel.run("pool.__exit__(None, None, None)").end().error
    assert not kernel.children()
