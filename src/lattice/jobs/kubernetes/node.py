"""
What a node's container runs: the agent, and word of it to whoever asks.

A pod of a StatefulSet is started again whenever it ends. So this goes on when the agent has ended for good, asleep,
until somebody takes the pod away; a stated time after the end of the job its nodes do that themselves. An agent that
was killed ends this, too, and is started again with it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from lattice.jobs.kubernetes.account import Account, attempt
from lattice.jobs.kubernetes.order import TOLD, WORK
from lattice.jobs.progress import ENDED, LEFT, LOST, RUNNING, NodeView, ends_job, read_journal

TICK = 0.2
PACE = 2.0
"""seconds between two words about the same agent"""
LAST_CALL = 8.0
"""seconds in which the last word is tried to be left"""
MOST_LOG, MOST_JOURNAL = 48_000, 24_000
"""bytes of the end of the output and the journal that are kept when the pod is gone"""
LAST_WORDS = 20
TURN = 10.0
"""seconds that each node leaves to the one before it to take the pods away"""
RETRY = 60.0


class Tail:
    """The end of what was written."""

    def __init__(self, most: int) -> None:
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._most = most

    def add(self, line: bytes) -> None:
        """Take in a line."""
        self._lines.append(line)
        self._size += len(line)
        while self._size > self._most and len(self._lines) > 1:
            self._size -= len(self._lines.popleft())

    def text(self, lines: int | None = None) -> str:
        """Give it."""
        kept = list(self._lines)[-lines:] if lines else list(self._lines)
        return b"".join(kept).decode(errors="backslashreplace")[-self._most :]


class Node:
    """
    One node of a job in its pod.

    :param order: what the nodes of its role are told
    :param name: of the pod: its number is at the end
    :param uid: of the pod, by which it is told from one of the same name before it
    """

    def __init__(self, order: Mapping[str, Any], name: str, uid: str, account: Account, work: Path) -> None:
        self._order = order
        self._number = int(name.rpartition("-")[2])
        self._name, self._uid = name, uid
        self._account = account
        self._journal = work / "journal.jsonl"
        self._work = work
        self._output = Tail(MOST_LOG)
        self._told: dict[str, str] = {}
        self._next = 0.0
        self._agent: subprocess.Popen[bytes] | None = None
        self._leaving = False

    @property
    def shelf(self) -> str:
        """The ConfigMap in which it leaves word."""
        return str(self._order["shelves"][self._number])

    def run(self) -> int:
        """Run the agent to its end, and sleep if that is final."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        before = self._kept(self.shelf, within=RETRY / 2)
        if before is not None and before.state == ENDED and before.end != LEFT:
            print(f"lattice: this node has ended before, with code {before.status}", flush=True)
            return self._sleep(before)
        if self._leaving:
            return 0
        code = self._attend()
        view = self._last_view(code)
        log, journal = self._output.text(), self._tail_of_journal()
        word = {**self._word(view), "log": log, "journal": journal}
        attempt(partial(self._account.put, self.shelf, word), within=LAST_CALL)
        if self._leaving or view.state != ENDED or view.end == LEFT:
            return 128 - code if code < 0 else code
        return self._sleep(view)

    def _attend(self) -> int:
        index, rank, run_id = self._order["seats"][self._number]
        options = {**self._order["options"], "rdzv_id": run_id}
        if options.get("rdzv_endpoint"):
            options["node_rank"] = str(rank)
        options |= {"events": str(self._journal), "log_dir": str(self._work / "logs")}
        argv = [sys.executable, "-m", "lattice", "run"]
        argv += [
            word for name, text in sorted(options.items()) for word in ((f"--{name}", text) if text else (f"--{name}",))
        ]
        self._agent = subprocess.Popen(
            [*argv, *self._order["words"]],
            env={**os.environ, **self._order["environment"]},
            cwd=self._order["folder"] or None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if self._leaving:
            self._agent.terminate()
        assert self._agent.stdout is not None
        reader = threading.Thread(target=self._pump, args=(self._agent.stdout,), name="output", daemon=True)
        reader.start()
        while (code := self._reap(self._agent.pid)) is None:
            self._tell(replace(self._read(), index=index, state=RUNNING, status=None, end=""))
            time.sleep(TICK)
        self._agent.returncode = code
        reader.join(timeout=PACE)  # what the agent left behind may hold it open
        return code

    def _pump(self, stream: IO[bytes]) -> None:
        out = sys.stdout.buffer
        for line in iter(stream.readline, b""):
            self._output.add(line)
            out.write(line)
            out.flush()

    def _reap(self, pid: int) -> int | None:
        """Collect all that ended, as the first process of a container has to; give the agent's exit code."""
        while True:
            try:
                found, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 1
            if found == pid:
                return os.waitstatus_to_exitcode(status)
            if not found:
                return None

    def _read(self) -> NodeView:
        try:
            lines = self._journal.read_bytes().splitlines()
        except OSError:
            lines = []
        pid = self._agent.pid if self._agent is not None else 0
        return replace(read_journal(lines, NodeView(0, self._name, pid=pid)), host=self._name)

    def _last_view(self, code: int) -> NodeView:
        index = self._order["seats"][self._number][0]
        view = replace(self._read(), index=index)
        if view.state == ENDED and code >= 0:
            return view
        if code < 0:
            return replace(view, state=LOST, status=None, report=f"its agent was killed by signal {-code}")
        # It never came so far as to say so itself.
        said = self._output.text(LAST_WORDS).strip() or "it wrote nothing"
        return replace(view, state=ENDED, status=code, report=said, until=time.time())

    def _tell(self, view: NodeView) -> None:
        word, now = self._word(view), time.monotonic()
        if word != self._told and now >= self._next:
            self._next = now + PACE
            if attempt(partial(self._account.put, self.shelf, {**word, "log": None, "journal": None})):
                self._told = word

    def _word(self, view: NodeView) -> dict[str, str]:
        return {"view": json.dumps(view.dump(), sort_keys=True), "pod": self._uid}

    def _kept(self, shelf: str, within: float = 0.0) -> NodeView | None:
        """Give what the node of that number said last, perhaps in another pod."""
        found: list[dict[str, str]] = []
        attempt(lambda: found.append(self._account.shelf(shelf)), within=within)
        if not found or "view" not in found[0]:
            return None
        return NodeView.load(json.loads(found[0]["view"]))

    def _tail_of_journal(self) -> str:
        try:
            return self._journal.read_bytes()[-MOST_JOURNAL:].decode(errors="replace")
        except OSError:
            return ""

    def _sleep(self, view: NodeView) -> int:
        """Do nothing until somebody takes the pod away, or it is time that we do."""
        keep_for = float(self._order["keep_for"])
        print(
            f"lattice: this node has ended with code {view.status}; its pod goes {keep_for:g}s after the job's end, "
            "or with lattice kill or forget",
            flush=True,
        )
        due = (view.until or time.time()) + keep_for + TURN * view.index
        while not self._leaving:
            if time.time() >= due:
                until = self._job_until(view)
                if until is not None and time.time() >= until + keep_for:
                    self._take_away()
                due = time.time() + RETRY
            self._reap(0)
            time.sleep(TICK)
        return 0

    def _take_away(self) -> None:
        own = self._name.rpartition("-")[0]
        for name in sorted(self._order["sets"], key=lambda one: one == own):
            attempt(partial(self._account.scale, name, 0), within=LAST_CALL)

    def _job_until(self, view: NodeView) -> float | None:
        """Tell when the job ended; None if it may go on: that this node failed says nothing of the others."""
        ends = self._order["options"].get("ends_job", "always")
        if ends_job(view, ends):
            return view.until or 0.0
        if ends != "always":
            return None
        run = self._order.get("of_primary_run", self._order["shelves"])  # an older client does not tell
        found = [view if name == self.shelf else self._kept(name) for name in run]
        untils = [one.until or 0.0 for one in found if one is not None and one.state == ENDED and one.end != LEFT]
        return max(untils) if len(untils) == len(found) else None

    def _pass_on(self, number: int, _: object) -> None:
        self._leaving = True
        if self._agent is not None and self._agent.returncode is None:
            try:
                os.kill(self._agent.pid, number)
            except ProcessLookupError:
                pass


def main() -> int:
    """Be a node."""
    order = json.loads(Path(TOLD, "order").read_text(encoding="utf-8"))
    return Node(order, socket.gethostname(), os.environ.get("LATTICE_POD_UID", ""), Account(), Path(WORK)).run()
