"""
The keeper of a node's checkpoints: a process that outlives the workers, and writes what they saved.

It is started by the node's agent when a worker first asks for it, or by a script that no agent runs, and ends when
nobody is left who could ask: with 0 once everything is written, else with 74.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from lattice.checkpoint.memory import Kept
from lattice.checkpoint.messages import is_mine, receive, send
from lattice.checkpoint.shelf import Part, Shelf
from lattice.core.keeper import NOT_WRITTEN

NICENESS = 5
"""training goes first"""


class Worker:
    """A connection to one."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.waiting: dict[Shelf, tuple[int, int]] = {}
        """shelves of which it waits to hear that they are idle; how often writing had failed before, its question"""

    def tell(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        """Say something; who does not listen any more has gone."""
        try:
            send(self.line, message, descriptor)
        except OSError:
            pass


class Keeper:
    """Serves the workers of this node."""

    def __init__(self, listener: socket.socket, control: int, patience: float) -> None:
        """
        Take over.

        :param listener: where workers call
        :param control: the end of a pipe: written to or closed by whoever started this when it is no longer needed
        :param patience: seconds that it may take after that until everything is written
        """
        self._listener = listener
        self._control = control
        self._patience = patience
        self._selector = DefaultSelector()
        self._shelves: dict[str, Shelf] = {}
        self._workers: set[Worker] = set()
        self._number = 0
        self._over = False
        self._awake, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> int:
        """
        Serve to the end.

        :return: the exit code
        """
        self._selector.register(self._listener, EVENT_READ, self._called)
        self._selector.register(self._control, EVENT_READ, self._told)
        self._selector.register(self._awake, EVENT_READ, self._woken)
        until = None
        while not self._over or self._workers or not all(shelf.idle() for shelf in self._shelves.values()):
            if self._over:
                until = until or time.monotonic() + self._patience
                if time.monotonic() >= until:
                    break
            for key, _ in self._selector.select(0.5 if self._over else None):
                key.data()
            self._answer()
        unwritten = [(where, shelf) for where, shelf in self._shelves.items() if not shelf.idle()]
        for where, shelf in unwritten:
            why = shelf.problem or "parts of other nodes are missing, or there was no time"
            say(f"A CHECKPOINT IS LOST: it could not be written to {where}: {why}")
        return NOT_WRITTEN if unwritten else 0

    def _called(self) -> None:
        line, _ = self._listener.accept()
        if not is_mine(line):
            line.close()
            return
        worker = Worker(line)
        self._workers.add(worker)
        self._selector.register(line, EVENT_READ, lambda: self._hear(worker))

    def _told(self) -> None:
        self._over = True
        self._selector.unregister(self._control)

    def _woken(self) -> None:
        os.read(self._awake, 4096)

    def _changed(self) -> None:
        try:
            os.write(self._wake, b".")
        except BlockingIOError:
            pass  # it is awake

    def _hear(self, worker: Worker) -> None:
        message, descriptor = receive(worker.line)
        if message is None:
            self._selector.unregister(worker.line)
            worker.line.close()
            self._workers.discard(worker)
            for shelf in self._shelves.values():
                shelf.forget_worker(worker)
            return
        where = message.pop("where")
        if where not in self._shelves:
            self._shelves[where] = Shelf(where, say, self._changed)
        self._do(worker, self._shelves[where], message, descriptor)

    def _do(self, worker: Worker, shelf: Shelf, message: dict[str, Any], descriptor: int | None) -> None:
        match message.pop("do"):
            case "keep" if descriptor is not None:
                self._number += 1
                number, table = message.pop("arena"), message.pop("table")
                facts = {**message, "number": self._number, "worker": worker}
                kept = Kept(descriptor, (table[0], table[1]))
                report = _commit_report(worker, message.get("folder"))
                shelf.add(Part(facts, kept, lambda: worker.tell({"released": number}), report))
            case "recall":
                worker.tell({"question": message["question"], "held": shelf.held()})
            case "fetch":
                parts = shelf.parts(message["folder"])
                worker.tell({"question": message["question"], "more": len(parts)})
                for table, lent in parts:
                    worker.tell({"question": message["question"], "table": table}, lent)
                    os.close(lent)
            case "adopt":
                shelf.adopt(message["folder"], message["heir"], _commit_report(worker, message["folder"]))
            case "need":
                shelf.give_back(worker)
            case "wait":
                worker.waiting[shelf] = (shelf.attempts, message["question"])
            case unknown:
                say(f"a worker asked for {unknown!r}, which this keeper does not know")

    def _answer(self) -> None:
        """Tell those who wait that what they wait for is done, or has failed."""
        for worker in self._workers:
            for shelf, (attempts, question) in tuple(worker.waiting.items()):
                if shelf.idle():
                    del worker.waiting[shelf]
                    worker.tell({"question": question, "idle": True})
                elif shelf.attempts > attempts:
                    del worker.waiting[shelf]
                    worker.tell({"question": question, "idle": False, "problem": shelf.problem})


def _commit_report(worker: Worker, folder: str | None) -> Callable[[], None]:
    """Return a function that tells a worker that the log has the entry of a checkpoint."""
    return lambda: worker.tell({"committed": folder})


def say(text: str) -> None:
    """Tell the user; whoever started this shows it."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass


def main(argv: Sequence[str] | None = None) -> int:
    """Run the keeper."""
    parser = argparse.ArgumentParser(prog="lattice.checkpoint.keeper", description=__doc__)
    parser.add_argument("--listener", type=int, required=True, help="descriptor of the socket on which workers call")
    parser.add_argument("--control", type=int, required=True, help="descriptor of a pipe that is closed at the end")
    parser.add_argument("--patience", type=float, required=True, help="seconds to go on writing after that")
    options = parser.parse_args(argv)
    # A terminal's Ctrl-C, or a signal to the whole group, is not meant for who keeps what others saved.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        os.nice(NICENESS)
    except OSError:
        pass
    listener = socket.socket(fileno=options.listener)
    status = Keeper(listener, options.control, options.patience).run()
    sys.stderr.flush()
    os._exit(status)  # the writers may be in the middle of something


if __name__ == "__main__":
    sys.exit(main())
