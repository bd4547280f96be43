"""A worker's side of the keeper: memory to save into, handed over and got back. No thread, no copy."""

from __future__ import annotations

import atexit
import os
import select
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from lattice.checkpoint.memory import Arena, Kept
from lattice.checkpoint.messages import connect, listener, receive, send
from lattice.checkpoint.starting import start_keeper
from lattice.core.keeper import NOT_WRITTEN, VARIABLE
from lattice.errors import LatticeError

ANSWER = 60.0
"""seconds that a busy node's keeper may take to start, or to answer"""
ATTEMPTS = 3
"""keepers that are asked one question, if one after another dies"""
ENDING = 5.0
"""seconds that a process may take to end after it let go of its sockets"""
AGAIN = 1.0
"""seconds after which memory is asked for again"""
PATIENCE = 300.0
"""seconds for which a script that no agent runs waits at its end until all is written"""


class NoKeeper(LatticeError):
    """There is no keeper, and none could be started."""


class Client:
    """A connection for one place."""

    def __init__(self, where: str, buffers: int) -> None:
        """
        Prepare to connect, when it is first needed.

        :param where: the place
        :param buffers: arenas at most
        """
        self._where = where
        self._buffers = buffers
        self._process = os.getpid()
        self._line: socket.socket | None = None
        self._free: list[Arena] = []
        self._lent: dict[int, tuple[Arena, dict[str, Any]]] = {}
        self._made = 0
        self._warned = False
        self._asked = 0
        self._answers: list[tuple[dict[str, Any], int | None]] = []
        """to the last question"""
        self._watched: dict[str, int] = {}
        """steps of checkpoints whose commit was not reported yet, by folder, in the order of the saves"""
        self._committed: int | None = None
        self._reconnect_at = 0.0

    # -- saving ------------------------------------------------------------------------------------------------------

    def arena(self) -> Arena:
        """Give memory to save into; waits for some only while the storage is slower than the saves are."""
        self._take()
        if not self._free and self._made >= self._buffers:
            asked = -AGAIN
            while not self._free:
                if time.monotonic() >= asked + AGAIN:  # what could not be given back then may be by now
                    asked = time.monotonic()
                    self._tell({"do": "need"})
                self._await(0.2)
                if not self._free and not self._warned:
                    self._warned = True
                    print(
                        f"lattice: saves come faster than they can be written to {self._where}, so this one waits; "
                        "save less often, or give the Checkpointer more buffers.",
                        file=sys.stderr,
                    )
        if not self._free:
            self._made += 1
            self._free.append(Arena(self._made))
        arena = self._free.pop()
        arena.clear()
        return arena

    def keep(self, arena: Arena, facts: dict[str, Any]) -> None:
        """Hand over what was saved: from here on it does not depend on this process."""
        size = arena.capacity
        message = {"do": "keep", "arena": arena.number, "table": arena.seal(), **facts}
        self._lent[arena.number] = (arena, message)
        self._tell(message, arena)
        if not self._free and self._made < min(self._buffers, 2):
            self._made += 1
            another = Arena(self._made)
            another.prepare(max(size, arena.capacity))
            self._free.append(another)

    def give_up(self, arena: Arena) -> None:
        """Take memory back into which nothing could be saved."""
        self._free.append(arena)

    # -- commits -----------------------------------------------------------------------------------------------------

    def watch_commit(self, folder: str, step: int) -> None:
        """Note a checkpoint of which :meth:`committed_step` should tell; newer than all that were noted before."""
        self._watched[folder] = step

    def begin_commits(self, step: int | None) -> None:
        """
        Forget the checkpoints that were noted.

        :param step: of a checkpoint that the log has; None if there is none
        """
        self._watched, self._committed = {}, step

    def committed_step(self) -> int | None:
        """
        Return the step of the newest noted checkpoint that the log has; None if it has none of them.

        Reads what the keeper has reported and does not wait for more. A keeper that died is replaced, at most once
        each ``AGAIN`` seconds: the next one is handed what is lent, writes it, and reports.
        """
        now = time.monotonic()
        if self._watched and (self._line is not None or (self._lent and now >= self._reconnect_at)):
            with suppress(NoKeeper, OSError):  # tried again soon
                self._take()
            if self._line is None:
                self._reconnect_at = now + AGAIN
        return self._committed

    def _note_commit(self, folder: str) -> None:
        if folder not in self._watched:
            return
        for older in tuple(self._watched):  # what is older will not be restored any more
            step = self._watched.pop(older)
            if older == folder:
                self._committed = step
                return

    # -- restoring ---------------------------------------------------------------------------------------------------

    def held(self) -> list[dict[str, Any]]:
        """Ask which checkpoints this node holds in memory; the newest last."""
        return list(self._ask({"do": "recall"})[0][0]["held"])

    def fetch(self, folder: str) -> list[Kept]:
        """Get what this node holds of a checkpoint."""
        found = self._ask({"do": "fetch", "folder": folder})[1:]
        return [
            Kept(descriptor, (message["table"][0], message["table"][1]))
            for message, descriptor in found
            if descriptor is not None
        ]

    def adopt(self, folder: str, heir: dict[str, Any]) -> None:
        """Have a checkpoint that is held in memory written on behalf of this round, of which the heir tells."""
        self._tell({"do": "adopt", "folder": folder, "heir": heir})

    def wait(self, within: float) -> str:
        """
        Wait until all that this node took is written.

        :return: why it is not; nothing if it is
        """
        try:
            answer = self._ask({"do": "wait"}, within)[0][0]
        except TimeoutError:
            return f"not done after {within:.0f}s"
        return "" if answer["idle"] else str(answer["problem"])

    def close(self) -> None:
        """Let go; the keeper goes on."""
        if self._line is not None:
            if self._process == os.getpid():
                self._line.shutdown(socket.SHUT_RDWR)  # a child that was forked has a copy, which would keep it open
            self._line.close()
            self._line = None
        for arena in (*self._free, *(arena for arena, _ in self._lent.values())):
            arena.close()
        self._free, self._lent, self._made = [], {}, 0
        self._forget()

    # -- the line ----------------------------------------------------------------------------------------------------

    def _connected(self) -> socket.socket:
        if self._process != os.getpid():  # a fork of the one that had the connection, and its memory
            self._process, self._line, self._free, self._lent, self._made = os.getpid(), None, [], {}, 0
            self._watched = {}
        if self._line is None:
            line = _call()
            self._forget()
            try:
                for arena, message in self._lent.values():  # it is another one, which knows nothing yet
                    send(line, {**message, "where": self._where}, arena.descriptor)
            except OSError:
                line.close()  # so that the next one is handed all of it
                raise
            self._line = line
        return self._line

    def _tell(self, message: dict[str, Any], arena: Arena | None = None) -> None:
        for _ in range(2):
            fresh = self._line is None
            line = self._connected()
            if fresh and arena is not None:
                return  # sent with all that is lent: twice, and it is given back while the other is still written
            try:
                send(line, {**message, "where": self._where}, arena.descriptor if arena else None)
                return
            except OSError:
                line.close()
                self._line = None
        raise NoKeeper("the keeper of checkpoints went away twice")

    def _ask(self, message: dict[str, Any], within: float = ANSWER) -> list[tuple[dict[str, Any], int | None]]:
        """
        Ask, and ask again whoever comes after a keeper that died.

        :return: the answer, and as many more as it announces
        """
        deadline = time.monotonic() + within
        self._forget()
        self._asked += 1
        for _ in range(ATTEMPTS):
            self._tell({**message, "question": self._asked})
            line = self._line
            while self._line is line:
                if self._answers and len(self._answers) > self._answers[0][0].get("more", 0):
                    found, self._answers = self._answers, []
                    return found
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self._await(left)
        raise NoKeeper(f"the keeper of checkpoints went away {ATTEMPTS} times before it answered")

    def _forget(self) -> None:
        """Let go of answers that nobody waits for."""
        for _, descriptor in self._answers:
            if descriptor is not None:
                os.close(descriptor)
        self._answers = []

    def _await(self, seconds: float) -> None:
        """Wait for a message, and take what has come."""
        select.select([self._connected()], [], [], seconds)
        self._take()

    def _take(self) -> None:
        """Take the messages that have come."""
        line = self._connected()
        while True:
            ready, _, _ = select.select([line], [], [], 0)
            if not ready:
                return
            message, descriptor = receive(line)
            if message is None:
                line.close()
                self._line = None
                return
            if "released" in message:
                arena = self._lent.pop(message["released"], (None, None))[0]
                if arena is not None:
                    self._free.append(arena)
            elif "committed" in message:
                self._note_commit(message["committed"])
            elif message.get("question") == self._asked:
                self._answers.append((message, descriptor))
            elif descriptor is not None:
                os.close(descriptor)  # an answer that came too late


def _call() -> socket.socket:
    try:
        try:
            return connect(os.environ.get(VARIABLE) or _own_keeper(), ANSWER)
        except ConnectionRefusedError:
            _await_end()
            return connect(os.environ.get(VARIABLE) or _own_keeper(), ANSWER)
    except OSError as error:
        raise NoKeeper(f"the keeper of checkpoints does not answer: {error.strerror or error}") from error


_own: list[tuple[int, str, subprocess.Popen[bytes], int]] = []


def _own_keeper() -> str:
    """Start a keeper for this process, unless it has one that lives."""
    if _own and _own[0][0] == os.getpid():
        _, name, process, control = _own[0]
        if process.poll() is None:
            return name
        os.close(control)
    else:
        atexit.register(_finish)
    _own.clear()
    name = f"lattice-keeper-{os.urandom(8).hex()}"
    with listener(name) as line:
        process, control = start_keeper(line, PATIENCE, None)
    _own.append((os.getpid(), name, process, control))
    return name


def _await_end() -> None:
    """Wait for the end of a keeper of this process that has stopped to listen, as it does just before."""
    if _own and _own[0][0] == os.getpid():
        try:
            _own[0][2].wait(ENDING)
        except subprocess.TimeoutExpired:
            pass


def _finish() -> None:
    """Wait until this process's keeper has written everything, and end with a code that says so if it could not."""
    if not _own or _own[0][0] != os.getpid():
        return
    _, _, process, control = _own.pop()
    for client in tuple(_clients):
        client.close()
    try:
        os.write(control, b".")  # a child that was forked may have a copy, which would keep it open
    except BrokenPipeError:
        pass
    os.close(control)
    status = process.wait()
    if status not in (0, NOT_WRITTEN):
        print(f"lattice: checkpoints: A CHECKPOINT MAY BE LOST: its keeper was killed ({status})", file=sys.stderr)
    if status:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(NOT_WRITTEN)


_clients: list[Client] = []


def client(where: str, buffers: int) -> Client:
    """Give the connection of this process for a place."""
    found = Client(where, buffers)
    _clients.append(found)
    return found
