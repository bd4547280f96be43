"""The keeper of this node's checkpoints, as the agent has it: started when a worker first calls, ended at the end."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from selectors import EVENT_READ, BaseSelector
from typing import TYPE_CHECKING

from lattice.core.events import Finish
from lattice.core.keeper import NOT_WRITTEN, VARIABLE
from lattice.telemetry.journal import Journal

if TYPE_CHECKING:
    import subprocess

    from lattice.agent.loop import Loop

SILENT = 2.0
"""seconds for which nothing is said of waiting for it"""


class Keeper:
    """Until somebody calls it is a socket, and costs nothing."""

    def __init__(self, selector: BaseSelector, journal: Journal, say: Callable[[str], None], patience: float) -> None:
        """
        Listen.

        :param say: takes words for the user
        :param patience: seconds that it may take at the end until everything is written
        """
        self._selector = selector
        self._journal = journal
        self._say = say
        self._patience = patience
        self._name = f"lattice-keeper-{os.urandom(8).hex()}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self._listener.bind(f"\0{self._name}")
        self._listener.listen(128)
        self._selector.register(self._listener, EVENT_READ, self._start)
        self._process: subprocess.Popen[bytes] | None = None
        self._control = -1
        self._words = -1
        self._unfinished = b""
        self._over = False
        self._status = 0
        """of the last one that ended"""

    def variables(self) -> dict[str, str]:
        """Tell a worker where to call."""
        return {VARIABLE: self._name}

    def conclude(self, finish: Finish, loop: Loop) -> Finish:
        """
        Wait until what the workers saved is written.

        :param finish: how this agent ends
        :param loop: hears of signals meanwhile: one more means not to wait
        :return: how it ends, after all
        """
        if self._process is None:
            self._selector.unregister(self._listener)
        self._over = True
        if self._process is None and select.select([self._listener], [], [], 0)[0]:
            self._start()
        if self._process is None:
            return self._judged(finish)
        self._hang_up()
        began, asked, said = time.monotonic(), loop.goodbyes, False
        while (
            self._process is not None and time.monotonic() < began + self._patience + SILENT and loop.goodbyes == asked
        ):
            loop.listen(0.2)
            if not said and time.monotonic() > began + SILENT and self._process is not None:
                said = True
                self._say(
                    f"waiting until the checkpoints are written, at most {self._patience:g}s (--checkpoint_timeout); "
                    "one more Ctrl-C or SIGTERM ends this, and loses them"
                )
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._status = NOT_WRITTEN
            self._say("A CHECKPOINT IS LOST: there was no more time to write it")
            self._ended()
        if not self._status:
            self._journal.write("checkpoints written", status=0)
        return self._judged(finish)

    def _judged(self, finish: Finish) -> Finish:
        """Have a run that went well end with a code of its own if a checkpoint is lost, or may be."""
        if not self._status:
            return finish
        self._journal.write("checkpoints lost", status=self._status)
        if finish.status:
            return finish
        if self._status == NOT_WRITTEN:
            what = "a checkpoint could not be written"
        else:
            what = f"the keeper of checkpoints was killed ({self._status}), and what it had not written yet is lost"
        self._say(f"the workers did well, but {what}: exit code {NOT_WRITTEN}")
        return replace(finish, status=NOT_WRITTEN)

    def close(self) -> None:
        """Hang up; a keeper that is still busy ends by itself."""
        self._hang_up()
        if self._process is not None:
            self._ended()
        elif not self._over:
            self._selector.unregister(self._listener)
        self._listener.close()

    def _start(self) -> None:
        from lattice.checkpoint.starting import start_keeper  # few runs need it

        self._words, there = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self._process, self._control = start_keeper(self._listener, self._patience, there)
        except OSError as error:
            self._say(f"no keeper for checkpoints could be started: {error.strerror}")
            os.close(self._words)
            self._listener.accept()[0].close()  # who called hears that nobody is there, and may call again
            return
        finally:
            os.close(there)
        if not self._over:
            self._selector.unregister(self._listener)
        self._selector.register(self._words, EVENT_READ, self._hear)
        self._journal.write("keeper started", pid=self._process.pid)

    def _hear(self) -> None:
        try:
            data = os.read(self._words, 1 << 16)
        except BlockingIOError:
            return
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            self._say(f"checkpoints: {line.decode(errors='replace')}")
        if not data and self._process is not None:
            self._status = self._process.wait()
            if not self._over:
                self._say(f"the keeper of checkpoints ended ({self._status}); the next save starts another")
            self._ended()

    def _ended(self) -> None:
        self._selector.unregister(self._words)
        os.close(self._words)
        self._hang_up()
        self._process = None
        if not self._over:
            self._selector.register(self._listener, EVENT_READ, self._start)

    def _hang_up(self) -> None:
        if self._control >= 0:
            os.close(self._control)
            self._control = -1
