"""A log file that holds the very bytes a worker wrote, and a full disk that costs bytes but never the training."""

from __future__ import annotations

import os
import time
from pathlib import Path

RETRY_INTERVAL = 1.0


class LogFile:
    """Appends; what can't be written is counted, and where it would have been, a line says so later."""

    def __init__(self, path: str, retry_interval: float = RETRY_INTERVAL) -> None:
        self.path = path
        self.lost = 0
        """bytes that are not in the file"""
        self.failure = ""
        """why the file can't be written at the moment"""
        self._unmarked = 0
        self._reason = ""
        self._descriptor = -1
        self._retry_interval = retry_interval
        self._retry_at = 0.0
        self.write(b"")

    def write(self, chunk: bytes) -> None:
        """Append what a worker wrote, or count it as lost."""
        if self.failure and time.monotonic() < self._retry_at:
            self._lose(len(chunk))
            return
        left = memoryview(chunk)
        try:
            self._open()
            self._mark_loss()
            while left:
                left = left[os.write(self._descriptor, left) :]
            self.failure = ""
        except OSError as error:
            self.failure = self._reason = error.strerror or str(error)
            self._retry_at = time.monotonic() + self._retry_interval
            self._lose(len(left))
            # Opened anew at the next try: the folder may have been moved, or the mount replaced, in the meantime.
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        if self._descriptor < 0:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _mark_loss(self) -> None:
        if self._unmarked:
            mark = f"\n[lattice] {self._unmarked} bytes are missing here: {self._reason}\n".encode()
            if os.write(self._descriptor, mark) < len(mark):
                raise OSError(0, self._reason)
            self._unmarked = 0

    def _lose(self, length: int) -> None:
        self.lost += length
        self._unmarked += length
