"""One gRPC channel to one etcd endpoint: calls with a deadline, and streams that end with a reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from lattice.errors import LatticeError, StoreUnavailable
from lattice.stores.etcd_messages import MESSAGES, METHODS
from lattice.stores.etcd_reasons import explain

# gRPC looks at these variables when it is loaded; workers must not inherit them.
_SETTINGS = {
    # It would write its own opinion of failed connections to standard error, beside our messages.
    "GRPC_VERBOSITY": "NONE",
    # It would stop its threads before every fork and start them again on both sides, so that a forked process may use
    # gRPC too. None of ours does, and one may crash or stand still if a call is under way.
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}
_ours = {name: value for name, value in _SETTINGS.items() if name not in os.environ}
os.environ.update(_ours)
import grpc  # noqa: E402

for _name in _ours:
    del os.environ[_name]

Metadata = tuple[tuple[str, str], ...]


class Stream:
    """
    One message, and answers that go on.

    etcd lets a client send more on its watch stream, but none of ours does. A call of one message needs no thread that
    waits for more to send, and none that polls: whoever reads it does that. So an agent has two threads fewer, and an
    idle one wakes up 5 times a second instead of 15.
    """

    def __init__(self, connection: Connection, method: str, request: Any, metadata: Metadata) -> None:
        self.connection = connection
        self._call = connection.begin(method, request, metadata)

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
        """End it."""
        self._call.cancel()


class Connection:
    """
    A channel to one endpoint, which is not used again once something was wrong with it.

    :param endpoint: host and port
    :param credentials: what :func:`credentials` gave
    :param timeout: seconds that an answer, connecting included, may take
    :param server_name: the name that the server's certificate is for, if not the endpoint's
    """

    def __init__(
        self,
        endpoint: tuple[str, int],
        credentials: grpc.ChannelCredentials | None,
        timeout: float,
        server_name: str = "",
    ) -> None:
        host, port = endpoint
        self.name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.timeout = timeout
        self._broken: LatticeError | None = None
        options: tuple[tuple[str, str | int], ...] = (
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
            ("SingleThreadedUnaryStream", 1),
            # Measuring how much is under way costs a ping for every few messages; nothing here is larger than this.
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", 1 << 20),
        )
        if server_name:
            options += (("grpc.ssl_target_name_override", server_name),)
        self._calls: dict[str, Any] = {}
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
            if method not in self._calls:
                self._calls[method] = self._channel.unary_unary(METHODS[method], *_formats(method))
            return self._calls[method](request, timeout=self.timeout, metadata=metadata)
        except grpc.RpcError as error:
            raise self.failure(error) from None
        except ValueError:
            raise self._closed() from None

    def begin(self, method: str, request: Any, metadata: Metadata) -> Any:
        """Begin a call that goes on; :class:`Stream` is the way to use it."""
        try:
            return self._channel.unary_stream(METHODS[method], *_formats(method))(request, metadata=metadata)
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


def _formats(method: str) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Give what writes the requests of a method and what reads its answers."""
    return MESSAGES[f"{method}Request"].SerializeToString, MESSAGES[f"{method}Response"].FromString


def credentials(cacert: bytes | None, cert: bytes | None, key: bytes | None) -> grpc.ChannelCredentials:
    """Make what a TLS connection needs of the contents of PEM files."""
    return grpc.ssl_channel_credentials(cacert, key, cert)
