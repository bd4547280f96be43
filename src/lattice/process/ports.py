"""Ports that nobody else is given, and on which a worker can listen while they are still reserved."""

from __future__ import annotations

import socket


class ReservedPorts:
    """
    Free ports, held by sockets that are bound but do not listen.

    The kernel gives such a port to nobody who asks for any free one, neither to listen nor to connect from. A server
    that asks for this very port gets it if it sets SO_REUSEADDR, as nearly all do (tried: torch's TCP store, gRPC and
    with it TensorFlow and JAX, Python's servers), so the reservation need not be given up before the worker starts.
    """

    def __init__(self, count: int, address: str = "") -> None:
        """
        Reserve some ports.

        :param count: how many
        :param address: the local address to listen on, empty for all of both families
        """
        self._sockets: list[socket.socket] = []
        self.ports: tuple[int, ...] = ()
        try:
            for _ in range(count):
                self._sockets.append(_bound(address))
        except OSError:
            self.close()
            raise
        self.ports = tuple(held.getsockname()[1] for held in self._sockets)

    def close(self) -> None:
        """Give up the reservation; a server that listens by now is not touched. The numbers can still be read."""
        for held in self._sockets:
            held.close()
        self._sockets.clear()

    def __enter__(self) -> ReservedPorts:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _bound(address: str) -> socket.socket:
    if not address:
        try:
            return _bound_in(socket.AF_INET6, "::")
        except OSError:  # a machine without IPv6
            return _bound_in(socket.AF_INET, "0.0.0.0")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return _bound_in(family, address)


def _bound_in(family: socket.AddressFamily, address: str) -> socket.socket:
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and address == "::":
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind((address, 0))
    except OSError:
        held.close()
        raise
    return held
