"""The launcher's part in one node's move from the stream that it was started with to a TLS connection."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lattice.launching.channel import BrokenChannelError, Channel, Kind
from lattice.launching.transports import CALL_BACK

if TYPE_CHECKING:
    from lattice.launching.reception import Reception
    from lattice.launching.secured import SecuredStream


@contextlib.contextmanager
def reception_for(transports: Iterable[str]) -> Iterator[Reception | None]:
    """
    Listen for nodes while they are being started.

    :param transports: how they are; those of most need no reception
    """
    if not any(transport in CALL_BACK for transport in transports):
        yield None
        return
    from lattice.launching.reception import Reception  # loads ssl: only where it is needed

    reception = Reception()
    try:
        yield reception
    finally:
        reception.close()


def warn_of_insecure(problems: Mapping[str, str]) -> None:
    """
    Say, once for all of them, which nodes could not call back.

    :param problems: for each node why, or nothing
    """
    told = {host: problem for host, problem in problems.items() if problem}
    if told:
        logging.getLogger("lattice").warning(
            "%s: no connection back to this machine (%s). What is sent there and back goes through srun instead,"
            " slowly and not encrypted. Let the nodes of the job reach this machine, on the ports of SLURM's"
            " SrunPortRange if there is one.",
            ", ".join(told),
            next(iter(told.values())),
        )


class Invitation:
    """
    Asks the node to call, knows it by what it announced, and moves the channel over once it is there.

    Each side moves what it sends by itself, after a last message through the old stream that says so; the other side
    then listens to the new one. So nothing is lost, and nothing overtakes.
    """

    def __init__(self, reception: Reception, channel: Channel, settled: Callable[[str], None]) -> None:
        """
        Prepare it.

        :param reception: where it can call
        :param channel: to the node
        :param settled: called once, with nothing, or with why all stays as it was
        """
        self._reception = reception
        self._channel = channel
        self._settled = settled
        self._stream: SecuredStream | None = None
        self._diverted = threading.Event()

    def invite(self, addresses: Iterable[str]) -> None:
        """Ask the node to call one of these addresses of ours."""
        offer = self._reception.offer(addresses)
        if offer is None:
            self._settled(self._reception.problem)
            return
        try:
            self._channel.tell(Kind.CALL, **offer)
        except BrokenChannelError:
            pass  # whoever listens to it tells

    def received(self, body: bytes) -> None:
        """Take what the node says about it."""
        said: dict[str, Any] = json.loads(body)
        if "commitment" in said:
            self._reception.expect(bytes.fromhex(said["commitment"]), self._arrived)
        elif "moved" in said:
            self._diverted.wait()  # it was told that it is accepted just before
            assert self._stream is not None
            self._channel.receive_from(self._stream)
            self._settled("")
        elif self._stream is not None:  # it came, and the connection broke before it knew
            self._channel.receive_from(self._stream)
            self._stream.end()
        else:
            self._settled(said["failed"])

    def close(self) -> None:
        """Give the connection back."""
        if self._stream is not None:
            self._stream.close()

    def _arrived(self, stream: SecuredStream) -> None:
        self._stream = stream
        try:
            self._channel.send_through(stream)
        except BrokenChannelError:
            pass  # whoever listens to it tells
        self._diverted.set()
