"""One gRPC channel to one etcd endpoint: calls with a deadline, and streams that end with a reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

from lattice.errors import LatticeError, StoreUnavailable
from lattice.stores.etcd_messages import MESSAGES, METHODS
from lattice.stores.etcd_reasons import explain

# gRPC writes its own opinion of failed connections to standard error, beside our messages. It looks at this variable
# when it is loaded; workers must not inherit it.
_verbosity = os.environ.get("GRPC_VERBOSITY")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc  # noqa: E402

if _verbosity is None:
    del os.environ["GRPC_VERBOSITY"]

Metadata = tuple[tuple[str, str], ...]


class Stream:
    """A call that goes on in both directions."""

    def __init__(self, connection: Connection, method: str, metadata: Metadata) -> None:
        self.connection = connection
        self._outgoing: SimpleQueue[Any] = SimpleQueue()
        self._call = connection.begin(method, iter(self._outgoing.get, None), metadata)

    def send(self, request: Any) -> None:
        """Send one more message."""
        self._outgoing.put(request)

    def __iter__(self) -> Iterator[Any]:
        """
        Give every message that comes.

        :raises LatticeError: when the stream ends, whatever ended it
        """
        try:
            yield from self._call
        except grpc.RpcError as error:
            raise self.connection.failure(error) from None
        raise StoreUnavailable(f"etcd at {self.connection.name}: it ended a watch.")

    def cancel(self) -> None:
        """End it, and with it the thread in which gRPC waits for more to send."""
        self._outgoing.put(None)
        self._call.cancel()


class Connection:
    """
    A channel to one endpoint, which is not used again once something was wrong with it.

    :param endpoint: host and port
    :param credentials: what :func:`credentials` gave
    :param timeout: seconds that an answer, connecting included, may take
    """

    def __init__(self, endpoint: tuple[str, int], credentials: grpc.ChannelCredentials | None, timeout: float) -> None:
        host, port = endpoint
        self.name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.timeout = timeout
        self._broken: LatticeError | None = None
        options = (
            # Channels share connections otherwise, and a new one would get the very connection that hangs.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
            # In spite of its name also how long one attempt to connect may take.
            ("grpc.min_reconnect_backoff_ms", int(timeout * 1000)),
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
            ("grpc.service_config_disable_resolution", 1),
        )
        if credentials is None:
            self._channel = grpc.insecure_channel(self.name, options)
        else:
            self._channel = grpc.secure_channel(self.name, credentials, options)

    def call(self, method: str, request: Any, metadata: Metadata) -> Any:
        """
        Send one message and give the one that answers it.

        This serves etcd's keepalive stream too: on the wire a stream of one message is a plain call.

        :raises Answered: if etcd answered with an error
        :raises LatticeError: if the connection is of no use any more
        """
        try:
            invoke: Any = self._channel.unary_unary(
                METHODS[method], lambda message: message.SerializeToString(), MESSAGES[f"{method}Response"].FromString
            )
            return invoke(request, timeout=self.timeout, metadata=metadata)
        except grpc.RpcError as error:
            raise self.failure(error) from None
        except ValueError:
            raise self._closed() from None

    def begin(self, method: str, requests: Iterator[Any], metadata: Metadata) -> Any:
        """Begin a call that goes on; :class:`Stream` is the way to use it."""
        try:
            invoke: Any = self._channel.stream_stream(
                METHODS[method], lambda message: message.SerializeToString(), MESSAGES[f"{method}Response"].FromString
            )
            return invoke(requests, metadata=metadata)
        except ValueError:
            raise self._closed() from None

    def failure(self, error: grpc.RpcError) -> LatticeError:
        """Say in our words how a call ended."""
        if self._broken is not None:
            return self._closed()
        return explain(self.name, error.code().name, error.details() or "", self.timeout)

    def close(self, reason: LatticeError) -> None:
        """Close it; whoever still uses it fails for the same reason."""
        if self._broken is None:
            self._broken = reason
        self._channel.close()

    def _closed(self) -> LatticeError:
        # An error object belongs to whoever raises it, so the others get their own.
        reason = self._broken
        return StoreUnavailable(f"etcd at {self.name}: closed.") if reason is None else type(reason)(*reason.args)


def credentials(cacert: bytes | None, cert: bytes | None, key: bytes | None) -> grpc.ChannelCredentials:
    """Make what a TLS connection needs of the contents of PEM files."""
    return grpc.ssl_channel_credentials(cacert, key, cert)
