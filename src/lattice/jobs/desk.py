"""What a host does for a job: a folder for each node, an agent in it, and answers to whoever asks."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from lattice.errors import LatticeError, UsageError
from lattice.jobs import agents
from lattice.jobs.progress import ENDED, LOST, PREPARED, RUNNING, NodeView, read_journal
from lattice.jobs.unpacking import unpack

HOME = "LATTICE_HOME"
START_TIMEOUT = 60.0
"""seconds that an agent has to say its first word"""
TICK = 0.05
TAIL = 20
"""lines of an agent's output that tell why it did not start"""


class NodeFailed(LatticeError):
    """A host could not do its part."""


def home(environ: Mapping[str, str]) -> Path:
    """Tell where Lattice keeps what it has to remember."""
    return Path(environ.get(HOME) or Path.home() / ".lattice")


def unusable(folder: Path, error: OSError) -> UsageError:
    """Make the error for a home in which nothing can be remembered."""
    return UsageError(f"{folder} cannot be used: {error.strerror}; name another folder by {HOME}")


class Desk:
    """One node of one submission on this host."""

    def __init__(self, root: Path, submission: str, index: int) -> None:
        self.index = index
        self.folder = root / "nodes" / submission / str(index)
        self._order = self.folder / "order.json"
        self._agent = self.folder / "agent.json"
        self.console = self.folder / "console.log"
        self.journal = self.folder / "journal.jsonl"

    @property
    def code(self) -> Path:
        """Where the workers run."""
        return self.folder / "code"

    def create(self, order: Mapping[str, Any], archive: IO[bytes] | None, code: Path | None = None) -> None:
        """
        Make the folder, with the code in it. Made already is as good.

        :param order: ``argv`` (after ``lattice run``), ``environment``, ``files`` (name and content)
        :param archive: a tar file of the code, if there is any to unpack
        :param code: the folder of code that is shared with another node, in place of an own one
        """
        with self._locked():
            if not self._order.exists():
                self._create(order, archive, code)

    def _create(self, order: Mapping[str, Any], archive: IO[bytes] | None, code: Path | None) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)  # half of one
        try:
            self.folder.mkdir(parents=True, mode=0o700)
            if code is not None:
                self.code.symlink_to(code)
            else:
                self.code.mkdir()
            if archive is not None:
                with tarfile.open(fileobj=archive, mode="r|*") as tar:
                    unpack(tar, self.code)
            for name, content in order.get("files", {}).items():
                self._keep(self.folder / name, content)
            fresh = self.folder / "order.json.new"
            self._keep(fresh, json.dumps(dict(order)))
            fresh.replace(self._order)
        except (OSError, tarfile.TarError) as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise NodeFailed(f"cannot prepare {self.folder}: {error}. Is there space, and permission?") from error

    def start(self, *, again: bool = False) -> NodeView:
        """
        Start the agent, and wait for its first word. One that was started already is as good.

        :param again: start another one in place of one that has ended
        :raises NodeFailed: it ended at once; its last words are in the message
        """
        with self._locked():
            return self._start(again=again)

    def _start(self, *, again: bool) -> NodeView:
        process = self.process()
        spoken = self._words_spoken()
        # One that is gone without a word was not told to begin: whoever was about to was killed.
        if process is None or (not process.lives() and (again or not spoken)):
            argv, environ = self.command()
            process = agents.start(argv, environ, str(self.code), self.console, self._remember)
        else:
            spoken = 0
        deadline = time.monotonic() + START_TIMEOUT
        while self._words_spoken() <= spoken:
            if not process.lives():
                if self._words_spoken() > spoken:
                    break
                failed = NodeFailed(f"the agent ended at once: {self.last_words()}")
                failed.exit_code = agents.exit_code(process.pid)
                raise failed
            if time.monotonic() > deadline:
                raise NodeFailed(f"the agent said nothing in {START_TIMEOUT:.0f}s: {self.last_words()}")
            time.sleep(TICK)
        return self.look()

    def command(self) -> tuple[list[str], dict[str, str]]:
        """
        Give the command line of the agent, and its environment.

        :raises NodeFailed: the folder is gone
        """
        try:
            order = json.loads(self._order.read_text(encoding="utf-8"))
        except OSError as error:
            raise NodeFailed(f"what was prepared for this node is gone: {self._order}: {error.strerror}") from error
        argv = [sys.executable, "-m", "lattice", "run", "--events", str(self.journal)]
        argv += ["--log_dir", str(self.folder / "logs"), *order["argv"]]
        return argv, {**os.environ, **order["environment"]}

    def process(self) -> agents.Process | None:
        """Give the agent's process, if one was started."""
        try:
            return agents.Process(**json.loads(self._agent.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def look(self) -> NodeView:
        """Tell how the node stands."""
        process = self.process()
        lives = process is not None and process.lives()  # before the journal is read, which tells of an end before it
        view = self.told(NodeView(self.index, pid=process.pid if process else 0))
        if lives:
            return replace(view, state=RUNNING, status=None, end="")
        if view.state == ENDED:
            return view
        return replace(view, state=PREPARED if process is None else LOST)

    def note(self, name: str, facts: Mapping[str, Any]) -> None:
        """Leave a note in the folder, whole or not at all."""
        path = self.folder / f"{name}.json"
        fresh = path.with_suffix(f".{self.index}.new")
        fresh.write_text(json.dumps(dict(facts)), encoding="utf-8")
        fresh.replace(path)

    def noted(self, name: str) -> dict[str, Any]:
        """Read a note; empty if there is none."""
        try:
            found: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found

    def clear(self, *names: str) -> None:
        """Take notes away."""
        for name in names:
            (self.folder / f"{name}.json").unlink(missing_ok=True)

    def told(self, view: NodeView) -> NodeView:
        """Add what the journal says."""
        try:
            lines = self.journal.read_bytes().splitlines()
        except OSError:
            lines = []
        return read_journal(lines, view)

    def stop(self, grace: float) -> NodeView:
        """
        End the agent: it says goodbye and gives its workers their time.

        :param grace: seconds after which it is killed, with all that it started
        """
        with self._locked():
            process = self.process()
            if process is not None and process.signal(signal.SIGTERM) and not process.wait(grace):
                process.signal(signal.SIGKILL)
                process.wait(10.0)
            return self.look()

    def remove(self) -> None:
        """Kill what is left, and delete the folder."""
        with self._locked() as lock:
            process = self.process()
            if process is not None and process.signal(signal.SIGKILL):
                process.wait(10.0)
            shutil.rmtree(self.folder, ignore_errors=True)
            lock.unlink(missing_ok=True)
        try:
            self.folder.parent.rmdir()
        except OSError:
            pass  # other nodes of it are here, too

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Path]:
        """Let nobody else change this node: what a client that was killed has asked for may still go on."""
        path = self.folder.with_suffix(".lock")
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            opened = path.open("w")
        except OSError as error:
            raise unusable(self.folder.parent, error) from None
        with opened as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield path

    def _remember(self, process: agents.Process) -> None:
        self._keep(self._agent, json.dumps(asdict(process)))

    def lives(self) -> bool:
        """Tell whether the agent runs."""
        process = self.process()
        return process is not None and process.lives()

    def logs(self, rank: int | None, goes_on: Callable[[], bool]) -> Iterator[bytes]:
        """
        Give what was written so far, and what is written while it goes on.

        :param rank: of one worker: its own output as it is; None for the agent's, which has all workers' lines
        :param goes_on: tells whether there may be more
        """
        readers: dict[Path, io.FileIO] = {}
        try:
            while True:
                more = goes_on()
                for path in self._files(rank):
                    if path not in readers:
                        readers[path] = io.FileIO(path)
                    while chunk := readers[path].read(1 << 18):
                        yield chunk
                if not more:
                    return
                time.sleep(TICK)
        finally:
            for reader in readers.values():
                reader.close()

    def _files(self, rank: int | None) -> list[Path]:
        if rank is None:
            return [self.console] if self.console.exists() else []
        found = []
        for line in self.journal.read_bytes().splitlines() if self.journal.exists() else ():
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if said.get("event") == "workers started" and said["ranks"][0] <= rank <= said["ranks"][1]:
                folder = self.folder / "logs" / said["run"] / f"round_{said['round']}" / str(rank)
                found += [path for path in (folder / "stdout.log", folder / "stderr.log") if path.exists()]
        return found

    def _keep(self, path: Path, text: str) -> None:
        path.touch(mode=0o600)  # it may hold secrets
        path.write_text(text, encoding="utf-8")

    def _words_spoken(self) -> int:
        return self.journal.read_bytes().count(b'"agent started"') if self.journal.exists() else 0

    def last_words(self) -> str:
        """Give the end of what the agent wrote."""
        try:
            lines = self.console.read_text(encoding="utf-8", errors="backslashreplace").splitlines()
        except OSError:
            lines = []
        return "\n".join(lines[-TAIL:]) or "it wrote nothing"


def desk(root: Path, submission: str, index: int) -> Desk:
    """
    Open the desk of a node.

    :raises UsageError: what was given could lead out of the folder
    """
    if not submission or "/" in submission or submission.startswith("."):
        raise UsageError(f"no name of a submission: {submission!r}")
    return Desk(root, submission, index)
