"""The logs of a node, over pods and containers that follow each other, each line once."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator

from lattice.jobs.aws.tail import MARK
from lattice.jobs.kubernetes.client import Client, KubernetesFailed, Stream

PAUSE = 1.0
STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\S+Z) ?")


class Lines:
    """
    Lines that begin with a time, without it, and those of them that were not given before.

    Kubernetes is asked for what came since a second, so that it gives some of that second twice.
    """

    def __init__(self) -> None:
        self.since = ""
        """the time of the newest line"""
        self._given: list[bytes] = []
        self._again: list[bytes] = []

    def begin(self) -> None:
        """Another answer comes, from :attr:`since` on."""
        self._again = list(self._given)

    def new(self, line: bytes) -> bytes | None:
        """Take in a line; None if it was given before."""
        found = STAMP.match(line)
        if found is None:
            return line
        stamp, text = found[1].decode(), line[found.end() :]
        if stamp < self.since:
            return None
        if stamp == self.since:
            if text in self._again:
                self._again.remove(text)
                return None
            self._given.append(text)
        else:
            self.since, self._given = stamp, [text]
        return text


def of_rank(line: bytes, rank: int | None) -> bytes | None:
    """Give a line as the worker of a rank wrote it; None for somebody else's."""
    if rank is None:
        return line
    text = line.decode(errors="surrogateescape")
    found = MARK.match(text)
    return text[found.end() :].encode(errors="surrogateescape") if found and int(found[1]) == rank else None


class Follower:
    """
    Reads the log of one container of a node.

    :param client: the cluster
    :param where: namespace, pod, container
    :param over: tells whether nothing more will come
    """

    def __init__(self, client: Client, where: tuple[str, str, str], over: Callable[[], bool]) -> None:
        self._client = client
        self._where = where
        self._over = over
        self._stream: Stream | None = None
        self._stopped = threading.Event()
        self._lines = Lines()
        self.missed = False
        """whether there was no pod to read from, and so not a line"""

    def read(self, *, follow: bool) -> Iterator[bytes]:
        """Give whole lines, until there are no more."""
        namespace, pod, container = self._where
        while not self._stopped.is_set():
            last = not follow or self._over()
            try:
                self._stream = self._client.log(namespace, pod, container, follow=not last, since=self._lines.since)
            except KubernetesFailed as error:
                if error.status not in (0, 400, 404, 500):  # not there, or not begun
                    raise
                if last:
                    self.missed = error.status == 404 and not self._lines.since
                    return
            else:
                yield from self._read(self._stream, last=last)
                if last:
                    return
            self._stopped.wait(PAUSE)

    def _read(self, stream: Stream, *, last: bool) -> Iterator[bytes]:
        self._lines.begin()
        rest = b""
        for chunk in stream.chunks():
            whole, newline, rest = (rest + chunk).rpartition(b"\n")
            lines = whole.split(b"\n") if newline else []
            for line in lines:
                if (text := self._lines.new(line)) is not None:
                    yield text + b"\n"
        # Half a line of an answer that broke comes again, whole.
        if last and rest and (text := self._lines.new(rest)) is not None:
            yield text + b"\n"

    def interrupt(self) -> None:
        """End the answer that is being read: whether more comes is asked again."""
        if self._stream is not None:
            self._stream.stop()

    def stop(self) -> None:
        """Give no more."""
        self._stopped.set()
        self.interrupt()
