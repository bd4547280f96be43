"""
etcd over its JSON gateway: plain HTTP from the thread that calls.

A training process forks, and its owner counts its threads: nothing of ours lives there between two calls but idle
connections. A gRPC client would bring threads that do not survive a fork.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import time
from dataclasses import dataclass, field
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from lattice.core.addresses import endpoints, of_etcd
from lattice.errors import StoreRefused, StoreUnavailable

Body = dict[str, Any]

INVALID_ARGUMENT, NOT_FOUND, UNAUTHENTICATED = 3, 5, 16
PASSING = frozenset({1, 2, 4, 8, 10, 13, 14})
"""gRPC codes of answers that may differ a moment later: no leader, time-out, too many requests."""
SHORTEST = 0.01
"""seconds in which no answer can be expected"""


@dataclass(frozen=True, slots=True)
class Access:
    """Where etcd is and how to be let in; TLS is used if ``cacert`` or ``cert`` is given."""

    endpoints: tuple[tuple[str, int], ...]
    cacert: str = ""
    cert: str = ""
    key: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    server_name: str = ""
    """the name that etcd's certificate is for, if not the endpoint's"""
    endpoints_file: str = ""
    """where the endpoints are to be found for every connection, in place of ``endpoints``"""

    def __str__(self) -> str:
        return self.endpoints_file or ", ".join(f"{host}:{port}" for host, port in self.endpoints)

    def located(self) -> tuple[tuple[str, int], ...]:
        """
        Give the addresses to try.

        :raises StoreUnavailable: the file has none
        """
        if not self.endpoints_file:
            return self.endpoints
        try:
            found = of_etcd(endpoints(Path(self.endpoints_file).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            found = ()
        if not found:
            raise StoreUnavailable(f"no address of etcd is in {self.endpoints_file}")
        return found


class Gateway:
    """
    Calls to etcd that go on over lost connections and over all endpoints until a deadline.

    :param access: where etcd is
    :param request_timeout: seconds after which one try at one endpoint is given up
    """

    def __init__(self, access: Access, request_timeout: float = 3.0) -> None:
        self._access = access
        self._request_timeout = request_timeout
        self._endpoint = 0
        self._last = ("", 0)
        self._token = ""
        self._idle: list[HTTPConnection] = []
        self._owner = os.getpid()

    def call(self, path: str, body: Body, deadline: float) -> Body:
        """
        Make one call. It may be applied twice if the first answer was lost.

        :param path: such as ``/v3/kv/range``
        :param body: the request
        :param deadline: when to give up, on the monotonic clock
        :raises StoreUnavailable: there was no answer until the deadline
        :raises StoreRefused: the answer was a final no
        """
        pause, reason = 0.0, ""
        while True:
            try:
                return self._try(path, body, deadline)
            except StoreUnavailable as error:
                # The last try is often cut short by the deadline: an earlier one tells more.
                if not reason or not isinstance(error.__cause__, TimeoutError):
                    reason = str(error)
                left = deadline - time.monotonic()
                if left < SHORTEST:
                    raise StoreUnavailable(f"etcd at {self._access} did not answer in time: {reason}") from error
            # The first failure is most often an idle connection that the server has closed: no pause for that.
            time.sleep(min(pause, left / 2))
            pause = min(max(0.05, 2 * pause), 1.0)

    def watch(self, key: bytes, after: int, deadline: float) -> bool:
        """
        Wait until a key was written after a revision.

        :return: whether something was seen; False means nothing at all: read anew in any case
        """
        create = {"key": encoded(key), "start_revision": str(after + 1), "filters": ["NODELETE"]}
        try:
            connection = self._connection(deadline)
        except StoreUnavailable:
            return False
        try:
            connection.connect()
            stream = connection.sock
            response = self._send(connection, "/v3/watch", {"create_request": create})
            while (left := deadline - time.monotonic()) > 0:
                stream.settimeout(left)
                answer = json.loads(response.readline() or "{}").get("result", {})
                if not answer.get("created") or answer.get("canceled"):
                    return bool(answer.get("events"))
        except (OSError, HTTPException, ValueError, StoreUnavailable):
            self._rotate(connection)
        finally:
            connection.close()
        return False

    def close(self) -> None:
        """Close the idle connections; another call opens new ones."""
        while connection := self._pop():
            connection.close()

    def _try(self, path: str, body: Body, deadline: float) -> Body:
        if self._access.user and not self._token:
            login = {"name": self._access.user, "password": self._access.password}
            self._token = str(self._post("/v3/auth/authenticate", login, deadline)["token"])
        return self._post(path, body, deadline)

    def _post(self, path: str, body: Body, deadline: float) -> Body:
        connection = self._connection(deadline, reuse=True)
        try:
            response = self._send(connection, path, body)
            answer: Body = json.loads(response.read())
        except (OSError, HTTPException, ValueError) as error:
            connection.close()
            self._rotate(connection)
            # Another etcd may be in its place, which neither takes nor refuses that one's token: it waits to know it.
            self._token = ""
            if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
                raise StoreRefused(f"etcd at {self._access}: no TLS connection: {error}") from error
            raise StoreUnavailable(f"{type(error).__name__}: {error}") from error
        except BaseException:
            # Half of an exchange is on it: nobody may use it again.
            connection.close()
            raise
        self._idle.append(connection)
        return answer

    def _send(self, connection: HTTPConnection, path: str, body: Body) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._token and path != "/v3/auth/authenticate":
            headers["Authorization"] = self._token
        connection.request("POST", path, json.dumps(body).encode(), headers)
        response = connection.getresponse()
        if response.status != 200:
            self._raise(response.status, response.read())
        return response

    def _raise(self, status: int, content: bytes) -> None:
        text = content.decode(errors="replace").strip()
        try:
            answer = json.loads(text)
            code, message = int(answer["code"]), str(answer.get("error") or answer.get("message"))
        except (ValueError, KeyError, TypeError):
            if status >= 500:
                raise StoreUnavailable(f"HTTP {status}: {text[:200]}") from None
            raise StoreRefused(
                f"{self._access} answered HTTP {status} ({text[:200]}): not etcd's JSON gateway. "
                "Start etcd without --enable-grpc-gateway=false, and with the TLS files that it serves with."
            ) from None
        # A token lapses, and goes with a restart of etcd; a lease that etcd lost is made anew by the run's leader.
        stale = code == UNAUTHENTICATED or (code == INVALID_ARGUMENT and "revision" in message and "auth" in message)
        if stale:
            self._token = ""
        if stale or code in PASSING or (code == NOT_FOUND and "lease" in message):
            raise StoreUnavailable(message)
        raise StoreRefused(f"etcd at {self._access} refused: {message}")

    def _connection(self, deadline: float, *, reuse: bool = False) -> HTTPConnection:
        if self._owner != os.getpid():
            # After a fork the parent goes on to use these; closing our copies does not disturb it.
            self._owner = os.getpid()
            self.close()
        timeout = max(SHORTEST, min(self._request_timeout, deadline - time.monotonic()))
        while reuse and (connection := self._pop()):
            if connection.sock is not None:
                connection.sock.settimeout(timeout)
                return connection
        endpoints = self._access.located()
        self._last = host, port = endpoints[self._endpoint % len(endpoints)]
        if self._access.cacert or self._access.cert:
            return _Secured(host, port, timeout, self._tls, self._access.server_name)
        return HTTPConnection(host, port, timeout=timeout)

    def _pop(self) -> HTTPConnection | None:
        # Threads share the idle connections: to look first and then take would be a race.
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _rotate(self, failed: HTTPConnection) -> None:
        # Several threads may fail at one endpoint: they leave it once.
        if (failed.host, failed.port) == self._last:
            self._endpoint += 1
            self.close()

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._access.cacert or None)
        if self._access.cert:
            context.load_cert_chain(self._access.cert, self._access.key or None)
        return context


class _Secured(HTTPSConnection):
    """TLS to a server whose certificate may be for another name than its address."""

    def __init__(self, host: str, port: int, timeout: float, tls: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=timeout)
        self._tls = tls
        self._name = name or host

    def connect(self) -> None:
        """Connect, and see that the server is who it should be."""
        HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


def encoded(content: bytes) -> str:
    """Write bytes as the gateway wants them."""
    return base64.b64encode(content).decode()


def decoded(content: str) -> bytes:
    """Read bytes as the gateway gives them."""
    return base64.b64decode(content)
