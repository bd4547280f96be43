"""Turns a worker's bytes, as they come, into whole prefixed lines for a console shared with others."""

from __future__ import annotations

LONGEST_LINE = 64 << 10


class Lines:
    """
    The console's view of one stream. Bytes are never decoded, so nothing can be invalid.

    A line that was overwritten by carriage returns is shown as a terminal would leave it.
    """

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._rest = b""
        self._shown = b""

    def feed(self, chunk: bytes) -> tuple[bytes, int]:
        """
        Take in some bytes.

        :return: the lines that are complete now, with their prefixes, and how many they are
        """
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._rest = self._compact(self._rest + chunk)
            return self.flush() if len(self._rest) > LONGEST_LINE else (b"", 0)
        whole = self._rest + chunk[:end]
        self._rest = self._compact(chunk[end:])
        self._shown = b""
        if b"\r" in whole:
            whole = b"".join(_as_left(line) + b"\n" for line in whole[:-1].split(b"\n"))
        return self._prefixed(whole), whole.count(b"\n")

    @property
    def has_progress(self) -> bool:
        """Whether a line is being overwritten: a progress bar."""
        return b"\r" in self._rest

    def progress(self) -> tuple[bytes, int]:
        """Show the line that is being overwritten as it is now, unless it was shown so before."""
        now = _as_left(self._rest)
        if not self.has_progress or now == self._shown or not now:
            return b"", 0
        self._shown = now
        return self._prefixed(now + b"\n"), 1

    def flush(self) -> tuple[bytes, int]:
        """Show what is left as a line, at the end of the stream."""
        now = _as_left(self._rest)
        shown, self._rest, self._shown = self._shown, b"", b""
        return (self._prefixed(now + b"\n"), 1) if now and now != shown else (b"", 0)

    def _prefixed(self, whole: bytes) -> bytes:
        if not self._prefix:
            return whole
        return self._prefix + whole[:-1].replace(b"\n", b"\n" + self._prefix) + b"\n"

    @staticmethod
    def _compact(rest: bytes) -> bytes:
        """Forget what was overwritten; the last carriage return stays as the sign that there is progress."""
        start = rest.rstrip(b"\r").rfind(b"\r")
        return rest[start:] if start > 0 else rest


def _as_left(line: bytes) -> bytes:
    line = line.rstrip(b"\r")
    return line[line.rfind(b"\r") + 1 :]
