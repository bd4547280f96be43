"""TLS around the connections of a served store: who serves shows a certificate, and nobody reads along."""

from __future__ import annotations

import socket
import ssl

from lattice.errors import StoreRefused, StoreUnavailable, UsageError
from lattice.stores.secured import RECORD, Secured

NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL: clocks of nodes differ, and a run may last longer than anybody thought"""


def client_context(cacert: str) -> ssl.SSLContext:
    """
    Trust the certificates of a file, and what they signed, whatever names and dates say: the secret comes on top.

    :raises UsageError: the file holds none
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_flags |= ssl.VerifyFlags(NO_CHECK_TIME)
    try:
        context.load_verify_locations(cacert)
    except OSError as error:
        raise UsageError(
            f"rdzv_conf: cacert is {cacert!r}: {_said(error)}; accepted: a PEM file of certificates"
        ) from None
    return context


def server_context(cert: str, key: str) -> ssl.SSLContext:
    """
    Show a certificate to those who connect.

    :raises UsageError: the files hold no certificate and its key
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:
        raise UsageError(
            f"rdzv_conf: cert is {cert!r}, key is {key!r}: {_said(error)}; accepted: PEM files of a certificate and "
            "its key"
        ) from None
    return context


class SecuredLine(Secured):
    """A client's connection, with as much of a socket as a line needs."""

    def recv(self, size: int) -> bytes:
        """Wait for bytes."""
        return self.read(size)

    def sendall(self, data: bytes) -> None:
        """Write all of it."""
        self.write([data])

    def settimeout(self, seconds: float | None) -> None:
        """Wait so long for bytes."""
        self.read_timeout = seconds

    def shutdown(self, how: int) -> None:
        """Have both sides notice the end."""
        self.end()


def secured(connection: socket.socket, context: ssl.SSLContext, name: str, timeout: float) -> SecuredLine:
    """
    Begin TLS with a server, which is then the owner of the connection.

    :param name: of the server, for errors
    :param timeout: seconds for each step, and for sending later
    :raises StoreRefused: it has another certificate
    :raises StoreUnavailable: it does not speak TLS
    """
    try:
        line = SecuredLine(context.wrap_socket(connection))
    except ssl.SSLCertVerificationError as error:
        step = "Give every node the cacert that belongs to the cert of the node that serves (rdzv_conf)."
        raise StoreRefused(f"store at {name}: its certificate is not trusted: {error.verify_message}. {step}") from None
    except ssl.SSLError as error:
        raise StoreUnavailable(f"store at {name}: it does not speak TLS ({_said(error)}).") from None
    line.read_timeout = line.write_timeout = timeout
    return line


class Accepted:
    """A server's connection that never waits: where TLS would, it raises what a socket does that has to."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        self._connection = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        self.must_hear = False
        """whether something has to come before more can be sent: the other side's part of the handshake"""

    def fileno(self) -> int:
        """Give its descriptor."""
        return self._connection.fileno()

    def recv(self, size: int) -> bytes:
        """
        Give what is there.

        :param size: about as many at most. Always whole records: the rest of one, which TLS has taken from the socket
            already, would wake nobody
        :raises BlockingIOError: there is nothing yet
        """
        data = bytearray()
        try:
            while len(data) < size and (more := self._connection.recv(RECORD)):
                data += more
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not data:
                raise BlockingIOError from None
        return bytes(data)

    def send(self, data: bytes | bytearray) -> int:
        """
        Send some of it.

        :raises BlockingIOError: nothing can be sent at the moment
        """
        self.must_hear = False
        try:
            return self._connection.send(data)
        except ssl.SSLWantReadError:
            self.must_hear = True
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None

    def close(self) -> None:
        """End it."""
        self._connection.close()


def _said(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)
