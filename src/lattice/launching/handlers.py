"""Handlers for the logs of a launch: those that users make for an agent or a worker, and the ones by default."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from lattice.core.dataclass import dataclass
from lattice.telemetry.logfile import LogFile

FOLDER = "lattice_logs"
FOLDER_VARIABLES = ("LATTICE_LOG_DIR", "TORCHRUNX_LOG_DIR")


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose log something belongs to."""

    hostname: str
    local_rank: int | None
    """None for the agent itself"""
    agent: int = 0
    """its place among the agents of the launch: a host may have several"""

    def __str__(self) -> str:
        return self.hostname if self.local_rank is None else f"{self.hostname}[{self.local_rank}]"


class OriginFilter(logging.Filter):
    """Lets only the records of one agent or worker pass."""

    def __init__(self, hostname: str, local_rank: int | None, log_level: int) -> None:
        super().__init__()
        self.hostname, self.local_rank, self.log_level = hostname, local_rank, log_level

    def takes(self, origin: Origin) -> bool:
        """Tell whether anything of an origin may pass."""
        return (origin.hostname, origin.local_rank) == (self.hostname, self.local_rank)

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record may pass."""
        return (
            getattr(record, "hostname", None) == self.hostname
            and getattr(record, "local_rank", None) == self.local_rank
            and record.levelno >= self.log_level
        )


class OriginFormatter(logging.Formatter):
    """Shows when, how important, and whose it is."""

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._shown = ""

    def format(self, record: logging.LogRecord) -> str:
        """Give the text of a record."""
        second = int(record.created)
        if second != self._second:  # the slowest part of a line, if it were done for each
            self._second, self._shown = second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        origin = Origin(getattr(record, "hostname", "?"), getattr(record, "local_rank", None))
        return f"{self._shown}.{int(record.msecs):03}:{record.levelname}:{origin}: {super().format(record)}"


class CurrentStdout(logging.StreamHandler[TextIO]):
    """Writes to whatever standard output is at the moment, as notebooks and tests replace it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        """Standard output now."""
        return sys.stdout


def add_filter_to_handler(
    handler: logging.Handler, hostname: str, local_rank: int | None, log_level: int = logging.NOTSET
) -> None:
    """
    Make a handler take the records of one agent or worker only.

    :param handler: any handler
    :param hostname: of the agent, as it was given to the launch
    :param local_rank: of the worker on that host; None for the agent itself
    :param log_level: the least level; lines of standard output have INFO, those of standard error ERROR
    """
    handler.addFilter(OriginFilter(hostname, local_rank, log_level))


def file_handler(
    hostname: str, local_rank: int | None, file_path: str | os.PathLike[str], log_level: int = logging.NOTSET
) -> logging.Handler:
    """
    Make a handler that writes the log of one agent or worker to a file.

    :param hostname: of the agent, as it was given to the launch
    :param local_rank: of the worker on that host; None for the agent itself
    :param file_path: of the file, which is appended to; its folder is made
    :param log_level: the least level
    """
    Path(file_path).absolute().parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(file_path, encoding="utf-8", errors="backslashreplace", delay=True)
    handler.setFormatter(OriginFormatter())
    add_filter_to_handler(handler, hostname, local_rank, log_level)
    return handler


def stream_handler(
    hostname: str, local_rank: int | None, stream: TextIO | None = None, log_level: int = logging.NOTSET
) -> logging.Handler:
    """
    Make a handler that writes the log of one agent or worker to a stream.

    :param hostname: of the agent, as it was given to the launch
    :param local_rank: of the worker on that host; None for the agent itself
    :param stream: standard output unless given
    :param log_level: the least level
    """
    handler = CurrentStdout() if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(OriginFormatter())
    add_filter_to_handler(handler, hostname, local_rank, log_level)
    return handler


class ByteHandler(logging.Handler, ABC):
    """A handler that takes lines as the bytes they are: quicker than a record for each, and nothing can be invalid."""

    @abstractmethod
    def takes(self, origin: Origin) -> bool:
        """Tell whether the log of an origin is for this handler."""

    @abstractmethod
    def lines(self, origin: Origin, whole: bytes) -> None:
        """Take some lines, each with its end."""

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record as lines."""
        origin = Origin(
            getattr(record, "hostname", "?"), getattr(record, "local_rank", None), getattr(record, "agent", 0)
        )
        if self.takes(origin):
            self.lines(origin, self.format(record).encode(errors="backslashreplace") + b"\n")


class Printer(ByteHandler):
    """Prints the log of the first agent, without its routine, and of its first worker."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Leave out what agents say of every run."""
        routine = getattr(record, "local_rank", None) is None and record.levelno < logging.WARNING
        return not routine and bool(super().filter(record))

    def takes(self, origin: Origin) -> bool:
        """Tell whether this is the first agent or its first worker."""
        return origin.agent == 0 and origin.local_rank in (None, 0)

    def lines(self, origin: Origin, whole: bytes) -> None:
        """Print some lines."""
        prefix = f"[{origin.hostname}] " if origin.local_rank is None else f"[{origin.hostname}:{origin.local_rank}] "
        text = whole.decode(errors="backslashreplace")
        shown = prefix + text[:-1].replace("\n", f"\n{prefix}") + "\n"
        stream = sys.stdout
        if not shown.isascii():  # what the terminal cannot show is shown as what it is
            encoding = getattr(stream, "encoding", None) or "utf-8"
            shown = shown.encode(encoding, "backslashreplace").decode(encoding)
        stream.write(shown)
        stream.flush()


class Files(ByteHandler):
    """Writes every log to a file of its own, named by time, host and local rank."""

    def __init__(self, folder: str, hostnames: Sequence[str] = ()) -> None:
        """
        Write no file yet.

        :param folder: where they go
        :param hostnames: of the launch: of a host that is there twice, the second agent's files have its number too
        """
        super().__init__()
        self.folder = folder
        now = time.time()
        self._stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now)) + f".{int(now % 1 * 1e6):06}"
        self._files: dict[Origin, LogFile] = {}
        self._complained = False
        self._agents: dict[str, int] = {}
        for index, hostname in enumerate(hostnames):
            self._agents.setdefault(hostname, index)

    def takes(self, origin: Origin) -> bool:
        """Take all."""
        return True

    def lines(self, origin: Origin, whole: bytes) -> None:
        """Write some lines."""
        if origin not in self._files:
            self._files[origin] = LogFile(self.path(origin))
        self._files[origin].write(whole)
        if self._files[origin].failure and not self._complained:
            self._complained = True
            print(
                f"lattice: LOGS ARE NOT WRITTEN to {self.folder}: {self._files[origin].failure}. The launch goes on; "
                "name another folder by LATTICE_LOG_DIR.",
                file=sys.stderr,
                flush=True,
            )

    @property
    def pattern(self) -> str:
        """Tell where the files are that were written; empty if there are none."""
        written = any(not file.failure for file in self._files.values())
        return f"{self.folder}/{self._stamp}-*.log" if written else ""

    def path(self, origin: Origin) -> str:
        """Name the file of a log."""
        hostname = re.sub(r"[^\w.@:-]", "_", origin.hostname)
        if self._agents.setdefault(origin.hostname, origin.agent) != origin.agent:
            hostname += f"#{origin.agent}"
        rank = "" if origin.local_rank is None else f"[{origin.local_rank}]"
        return f"{self.folder}/{self._stamp}-{hostname}{rank}.log"

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        super().close()


def default_handlers(environ: Mapping[str, str] | None = None, hostnames: Sequence[str] = ()) -> list[logging.Handler]:
    """
    Make the handlers of a launch that was given none.

    :param environ: says where files go
    :param hostnames: of the launch
    """
    handlers: list[Any] = [Printer(), Files(log_folder(os.environ if environ is None else environ), hostnames)]
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handlers


def log_folder(environ: Mapping[str, str]) -> str:
    """Tell where files go: LATTICE_LOG_DIR, TORCHRUNX_LOG_DIR, or a folder here."""
    named = [environ[name] for name in FOLDER_VARIABLES if environ.get(name)]
    return os.path.abspath(named[0] if named else FOLDER)  # noqa: PTH100
