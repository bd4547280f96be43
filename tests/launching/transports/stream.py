"""Talk to a stand-in for the node's program through its stream."""

from __future__ import annotations

import hashlib
import os
import select
import sys
import threading
from pathlib import Path

from lattice.launching.hosts import HostSpec
from lattice.launching.transports import NodeProcess
from tests.waiting import eventually

HELLO = b"hello"
# Says hello, then sends back what it gets until its input ends.
ECHO = (
    sys.executable,
    "-c",
    "import os\n"
    "def send(data):\n"
    "    while data: data = data[os.write(1, data):]\n"
    "send(b'hello')\n"
    "while data := os.read(0, 1 << 16): send(data)\n",
)


def host(given: str, transport: str = "ssh", index: int = 0) -> HostSpec:
    """Make an entry for a host."""
    return HostSpec(given, 1, index, transport)


def read_exactly(process: NodeProcess, count: int) -> bytes:
    """Read so many bytes of what the program says, or what there is until the end."""
    data = bytearray()
    while len(data) < count and (chunk := os.read(process.stdout, min(1 << 20, count - len(data)))):
        data += chunk
    return bytes(data)


def greeted(process: NodeProcess) -> bool:
    """Wait for the program's first words."""
    said = read_exactly(process, len(HELLO))
    assert said == HELLO, (said, process.poll(), process.stderr(), process.diagnose())
    return True


def ended(process: NodeProcess, within: float = 30.0) -> int:
    """Wait for the end as a selector would, and give the status."""
    poll = select.poll()
    poll.register(process.pidfd, select.POLLIN)
    assert poll.poll(within * 1000), f"still there: {process.stderr()}"
    status = process.poll()
    assert status is not None
    return status


def verdict(process: NodeProcess, within: float = 30.0) -> str:
    """Wait for the end of one that never said hello, clean up, and give what it is said to be."""
    ended(process, within)
    try:
        assert os.read(process.stdout, 100) == b""
        return process.diagnose()
    finally:
        process.kill()


def there_and_back(process: NodeProcess, data: bytes) -> None:
    """Send data and expect it back, at the same time."""

    def send() -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(process.stdin, view[: 1 << 20]) :]

    sender = threading.Thread(target=send)
    sender.start()
    try:
        back = read_exactly(process, len(data))
    finally:
        sender.join()
    assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest()


def alive(pid: int) -> bool:
    """Tell whether a process runs; an ended one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> None:
    """Wait for the end of a process."""
    eventually(lambda: not alive(pid), within=20)
