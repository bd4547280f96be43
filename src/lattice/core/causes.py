"""What a failed worker's last words say about why it failed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

# Colours, and the rank that torch puts before each line of an uncaught exception.
_COLOUR = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]")
_RANK = re.compile(r"^\[rank\d+\]: ?(?!\[)")
_HEADER = re.compile(r"^(?P<margin>[ |+]*)(Exception Group )?Traceback \(most recent call last\):$")
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_SYNTAX_ERROR = re.compile(r"^(SyntaxError|IndentationError|TabError): ")
_SYNTAX_PLACE = re.compile(r'^  File ".*", line \d+$')
# Lines that something else wrote after the exception: loggers, C++ stacks, the interpreter on its way out.
_OTHER_OUTPUT = re.compile(
    r"^(\[rank\d+\]:\[|\[?[IWEF]\d{4} |\d{4}-\d\d-\d\d[ T]\d\d:|(DEBUG|INFO|WARNING|ERROR|CRITICAL)[: ]|frame #\d"
    r"|terminate called|Exception raised from|Exception ignored in|Fatal Python error)"
)
_LONGEST_MESSAGE = 80

_PEER_TROUBLE = re.compile(
    r"""
      connection\ (was\ likely\ closed|reset|closed|refused|aborted) | broken\ pipe | socket\ closed
    | Connection(Reset|Refused|Aborted)Error | BrokenPipeError
    | recvValueWithTimeout\ failed | sendBytes\ failed | failed\ to\ recv,\ got\ 0\ bytes
    | socket\ (has\ timed\ out|timeout) | DistNetworkError
    | timed\ out\ waiting\ \d+ms\ for\ (recv|send)\ operation
    | failed\ to\ pass\ monitoredBarrier | clients\ joined
    | remote\ process\ exited | ncclRemoteError | ncclSystemError | unhandled\ system\ error
    | collective\ operation\ timeout | HorovodInternalError
    | failed\ to\ connect\ to\ all\ addresses | heartbeat\ timeout | UNAVAILABLE: | coordination\ service
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ADDRESS_IN_USE = re.compile(r"EADDRINUSE|address already in use|address in use|no address added out of", re.IGNORECASE)
_RANK_VARIABLES = "LOCAL_RANK|RANK|LOCAL_WORLD_SIZE|WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT"
_NUMBER = re.compile(r"\d+")
_MISSING_RANK = re.compile(
    rf"KeyError: '({_RANK_VARIABLES})'"
    rf"|environment variable ({_RANK_VARIABLES}) expected, but not set"
    rf"|\b({_RANK_VARIABLES}): (unbound variable|parameter not set)"
)


@dataclass(frozen=True, slots=True)
class RecordedError:
    """What a worker wrote into its error file."""

    message: str
    callstack: str = ""
    timestamp: str = ""
    """seconds by the worker's clock: to be shown, never compared"""


def last_traceback(text: str) -> str:
    """
    Find the last Python traceback, with the exceptions it was chained to.

    What the interpreter only mentions on its way out ("Exception ignored in") counts if there is nothing else.

    :param text: the end of a worker's standard error
    :return: the traceback without colours and rank prefixes; empty if there is none
    """
    lines, prefixed = _cleaned(text)
    headers = [number for number, line in enumerate(lines) if _HEADER.match(line)]
    serious = [n for n in headers if n == 0 or not lines[n - 1].startswith("Exception ignored in")]
    syntax_error = _last_syntax_error(lines)
    start = (serious or headers or [-1])[-1]
    if syntax_error is not None and syntax_error[0] > start:
        return "\n".join(lines[slice(*syntax_error)])
    if start < 0:
        return ""
    end = _end_of_exception(lines, prefixed, start)
    start = _outermost(lines, start)
    while (earlier := _chained_to(lines, start)) is not None:
        start = _outermost(lines, earlier)
    return "\n".join(lines[start:end]).rstrip()


def headline(traceback: str) -> str:
    """
    Give the one line that says most: the exception that ended the worker.

    :param traceback: what :func:`last_traceback` found, or a recorded call stack
    """
    messages = _messages(traceback)
    return messages[-1][0] if messages else ""


def recorded_error(text: str) -> RecordedError | None:
    """
    Read an error file as torch's ``@record`` writes it.

    :param text: the file's content
    :return: None if it says nothing that can be understood
    """
    try:
        message = json.loads(text)["message"]
        if isinstance(message, str):
            return RecordedError(message)
        extra = message.get("extraInfo") or {}
        return RecordedError(
            str(message["message"]), str(extra.get("py_callstack", "")).rstrip(), str(extra.get("timestamp", ""))
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def is_connection_error(text: str) -> bool:
    """
    Tell whether a worker failed because it lost a peer, so that the cause is elsewhere.

    If an exception led to others, the first one decides: an error while cleaning up after it is no cause.

    :param text: the end of its standard error, or a traceback
    """
    messages = _messages(last_traceback(text))
    first = "\n".join(messages[0]) if messages else text[-4096:]
    return _PEER_TROUBLE.search(first) is not None and _ADDRESS_IN_USE.search(first) is None


def is_bind_failure(text: str, port: int) -> bool:
    """
    Tell whether a worker failed because somebody else had taken a port.

    :param text: the end of its standard error, or a traceback
    :param port: the very port that must be named beside the failure
    """
    return any(_ADDRESS_IN_USE.search(line) and str(port) in _NUMBER.findall(line) for line in text.splitlines())


def missing_rank(text: str) -> bool:
    """
    Tell whether a worker failed because it expected the variables of a framework, such as RANK.

    :param text: the end of its standard error, or a traceback
    """
    return _MISSING_RANK.search(last_traceback(text) or text[-4096:]) is not None


def _cleaned(text: str) -> tuple[list[str], list[bool]]:
    """Split into lines without colours and rank prefixes, and tell which ones had such a prefix."""
    raw = [line.rstrip("\r") for line in _COLOUR.sub("", text).split("\n")]
    return [_RANK.sub("", line) for line in raw], [_RANK.match(line) is not None for line in raw]


def _end_of_exception(lines: list[str], prefixed: list[bool], start: int) -> int:
    """Find the line after a traceback's message, which may have many lines and is followed by anything."""
    margin = _HEADER.match(lines[start])
    assert margin is not None
    grouped = "|" in margin["margin"] or "+" in margin["margin"]
    end = start + 1
    while end < len(lines) and prefixed[end] == prefixed[start] and lines[end].startswith(" "):
        end += 1
    if grouped:
        return end
    limit = min(len(lines), end + _LONGEST_MESSAGE)
    while end < limit and prefixed[end] == prefixed[start] and not _OTHER_OUTPUT.match(lines[end]):
        end += 1
    return end


def _outermost(lines: list[str], start: int) -> int:
    """Go from a traceback inside an exception group to the traceback of the group."""
    while start > 0 and "|" in lines[start].partition("T")[0]:
        start -= 1
        while start > 0 and not _HEADER.match(lines[start]):
            start -= 1
    return start


def _chained_to(lines: list[str], start: int) -> int | None:
    """Find the traceback before this one, if this one says that it came of it."""
    before = start - 1
    while before > 0 and not lines[before].strip(" |"):
        before -= 1
    if before <= 0 or lines[before].strip(" |") not in _CHAINED:
        return None
    return next((n for n in range(before - 1, -1, -1) if _HEADER.match(lines[n])), None)


def _last_syntax_error(lines: list[str]) -> tuple[int, int] | None:
    """Find a syntax error of the script itself, which is printed without a traceback."""
    for end in range(len(lines) - 1, -1, -1):
        if _SYNTAX_ERROR.match(lines[end]):
            for start in range(end - 1, max(-1, end - 5), -1):
                if _SYNTAX_PLACE.match(lines[start]):
                    alone = start == 0 or not (lines[start - 1].startswith(" ") or _HEADER.match(lines[start - 1]))
                    return (start, end + 1) if alone else None
    return None


def _messages(traceback: str) -> list[list[str]]:
    """Give the message lines of each exception of a chain, the first cause first."""
    found: list[list[str]] = []
    in_message = False
    for line in traceback.splitlines():
        if _HEADER.match(line) or line.strip(" |") in _CHAINED:
            in_message = False
        elif in_message:
            found[-1].append(line)
        elif line and not line.startswith(" "):
            found.append([line])
            in_message = True
        elif re.match(r"^ +\| [A-Za-z_][\w.]*(:|$)", line):
            found.append([line.strip(" |")])
    return found
