"""Brings what workers write and leave to the launcher: nothing lost, nothing that a worker waits for."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lattice.agent.group import Companion
from lattice.core.topology import Assignment
from lattice.launching.channel import CHUNK, LOG, STREAMS, BrokenChannelError, Channel, Kind
from lattice.launching.variables import HOST, PAYLOAD, PROJECT, RECORDS, REMAINS, ROOM
from lattice.process.workers import Exit

WINDOW = 4 << 20
"""bytes of logs that may be under way: what the launcher has not taken yet waits in files, not in its memory"""
INTERVAL = 0.02
"""seconds between two looks at the files that workers write"""


@dataclass(slots=True)
class _Tail:
    path: Path
    header: bytes
    done: int = 0


class Forwarder(Companion):
    """
    Adds the payload to each worker, and sends on what it writes and leaves.

    Output goes to files first, as with any agent: a launcher that does not read holds up no worker, and nothing is
    kept in memory for it.
    """

    def __init__(
        self, channel: Channel, folder: Path, payload: int, name: str, project: str, room: int, *, local: bool
    ) -> None:
        """
        Begin a run.

        :param channel: to the launcher
        :param folder: where the logs of this run's workers go
        :param payload: descriptor of what they run
        :param name: how the launcher calls this host
        :param project: where its project is on this host; empty if it is where it was
        :param room: bytes that the launcher has room for
        :param local: whether the launcher can read our descriptors by itself
        """
        self._channel = channel
        self._folder = folder
        self._payload = payload
        self._name = name
        self._project = project
        self._room = room
        self._local = local
        self._left: dict[tuple[int, int], int] = {}
        self._tails: list[_Tail] = []
        self._under_way = 0
        self._taking = threading.Condition()
        self._closing = threading.Event()
        self._ended: queue.SimpleQueue[tuple[Assignment, int, Exit] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in ((self._send_logs, "logs"), (self._send_remains, "remains"))
        ]
        for thread in self._threads:
            thread.start()

    def variables(self, assignment: Assignment, local_rank: int) -> Mapping[str, str]:
        """Tell a worker where the payload is, and where to leave what it has."""
        left = os.memfd_create("lattice-remains", os.MFD_CLOEXEC)
        self._left[assignment.round, local_rank] = left
        place = self._folder / f"round_{assignment.round}" / str(assignment.entry.rank_offset + local_rank)
        place.mkdir(parents=True, exist_ok=True)
        (place / "records.log").touch()
        for number, stream in enumerate(STREAMS[:3]):
            self._tails.append(_Tail(place / f"{stream}.log", LOG.pack(local_rank, number)))
        return {
            HOST: self._name,
            PROJECT: self._project,
            PAYLOAD: f"/proc/{os.getpid()}/fd/{self._payload}",
            REMAINS: f"/proc/{os.getpid()}/fd/{left}",
            RECORDS: str(place / "records.log"),
            ROOM: "" if self._local else str(self._room),
        }

    def ended(self, assignment: Assignment, local_rank: int, ended: Exit) -> None:
        """Send what a worker left as soon as it has ended."""
        self._ended.put((assignment, local_rank, ended))

    def taken(self, size: int) -> None:
        """Hear how many bytes of logs the launcher has done with."""
        with self._taking:
            self._under_way = max(self._under_way - size, 0)
            self._taking.notify_all()

    def close(self) -> None:
        """Send what is left to be sent; what workers left can be read until it is forgotten."""
        self._closing.set()
        self._ended.put(None)
        for thread in self._threads:
            thread.join()

    def forget(self) -> None:
        """Give back what workers left."""
        for descriptor in self._left.values():
            os.close(descriptor)
        self._left.clear()

    def _send_logs(self) -> None:
        try:
            while not self._closing.wait(INTERVAL):
                self._send_new()
            self._send_new()
        except BrokenChannelError:
            pass  # there is nobody to tell

    def _send_new(self) -> None:
        for tail in tuple(self._tails):
            try:
                if tail.path.stat().st_size == tail.done:
                    continue
                descriptor = os.open(tail.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                while data := os.pread(descriptor, CHUNK, tail.done):
                    if len(data) == CHUNK:  # whole lines are less work for the launcher, and there is more to come
                        data = data[: data.rfind(b"\n") + 1] or data
                    with self._taking:
                        self._taking.wait_for(lambda: self._under_way < WINDOW)
                        self._under_way += len(data)
                    self._channel.send(Kind.LOG, tail.header + data)
                    tail.done += len(data)
            finally:
                os.close(descriptor)

    def _send_remains(self) -> None:
        try:
            while (item := self._ended.get()) is not None:
                self._send_left(*item)
        except BrokenChannelError:
            pass

    def _send_left(self, assignment: Assignment, local_rank: int, ended: Exit) -> None:
        left = self._left[assignment.round, local_rank]
        size = os.fstat(left).st_size
        self._channel.tell(
            Kind.LEFT,
            round=assignment.round,
            rank=assignment.entry.rank_offset + local_rank,
            local_rank=local_rank,
            world=assignment.world,
            code=ended.code,
            signal=ended.signal,
            size=size,
            path=f"/proc/{os.getpid()}/fd/{left}" if self._local else "",
        )
        at = 0
        while not self._local and at < size:
            data = os.pread(left, CHUNK, at)
            self._channel.send(Kind.REMAINS, data)
            at += len(data)
