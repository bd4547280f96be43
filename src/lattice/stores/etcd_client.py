"""Calls to whichever etcd endpoint works: rotation after any failure, and a login that is renewed when it expires."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lattice.errors import LatticeError, StoreRefused, StoreUnavailable, UsageError
from lattice.stores.etcd_connection import Connection, Metadata, Stream, credentials
from lattice.stores.etcd_messages import MESSAGES
from lattice.stores.etcd_reasons import STALE_LOGIN, Answered, TimedOut, refusal

Endpoints = tuple[tuple[str, int], ...]
_LEADER: Metadata = (("hasleader", "true"),)
"""Asks a member that lost sight of its leader to say so instead of waiting for it."""


class EtcdClient:
    """
    At any time there is one connection, and everything uses it. When a call on it gets no answer it is closed, which
    ends its watches too, and the next call goes to the next endpoint. So a watch never sits on a server that is known
    to hang, and gRPC's own idea of which endpoint is healthy is never asked.

    :param endpoints: hosts and ports, tried in turn; or what gives them, asked for every connection
    :param user: name for etcd's own users, empty for none
    :param tls: paths of the CA certificate, and of our certificate and key; all empty means no TLS
    :param timeout: seconds that an answer may take
    :param server_name: the name that the server's certificate is for, if not the endpoint's
    """

    def __init__(
        self,
        endpoints: Endpoints | Callable[[], Endpoints],
        user: str,
        password: str,
        tls: tuple[str, str, str],
        timeout: float,
        server_name: str = "",
    ) -> None:
        if not endpoints:
            raise UsageError("no etcd address is given. Set --rdzv_endpoint HOST:PORT (LATTICE_RDZV_ENDPOINT).")
        self.timeout = timeout
        self._find = endpoints if callable(endpoints) else lambda: endpoints
        self._server_name = server_name
        self._credentials = _load(*tls) if any(tls) else None
        self._user = user
        self._password = password
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._next = 0
        self._closed = False
        self._login = threading.Lock()
        self._token: str | None = None

    def call(self, method: str, **fields: Any) -> Any:
        """
        Send one request and give its answer.

        :param method: a name in :data:`~lattice.stores.etcd_messages.METHODS`
        :param fields: what the request contains
        :raises Answered: if etcd answered with an error that is not about who we are
        """
        request = MESSAGES[f"{method}Request"](**fields)
        connection = self._current()
        stale: str | None = None
        token = ""
        while True:
            try:
                token = self._authenticate(connection, stale)
                return self._try(connection, method, request, token)
            except TimedOut:
                # An etcd that took another's place does not refuse that one's logins: it waits until it knows them.
                self._forget(token)
                raise
            except Answered as error:
                if not self._user or stale is not None or not error.text.startswith(STALE_LOGIN):
                    raise (refusal(connection.name, error.text) or error) from None
                stale = token

    def stream(self, method: str, request: Any, *, fresh_login: bool = False) -> Stream:
        """
        Begin a call whose answers go on.

        :param fresh_login: whether the login is to be renewed first
        """
        connection = self._current()
        token = self._authenticate(connection, self._token if fresh_login else None)
        return Stream(connection, method, request, _metadata(token))

    def drop(self, connection: Connection, reason: LatticeError) -> None:
        """Stop using a connection; the next call goes to the next endpoint."""
        with self._lock:
            if self._connection is connection:
                self._connection = None
                self._next += 1
        connection.close(reason)

    def close(self) -> None:
        """Close the connection for good."""
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(StoreUnavailable("the connection to etcd is closed."))

    def _current(self) -> Connection:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the connection to etcd is closed.")
            if self._connection is None:
                endpoints = self._find()
                endpoint = endpoints[self._next % len(endpoints)]
                self._connection = Connection(endpoint, self._credentials, self.timeout, self._server_name)
            return self._connection

    def _try(self, connection: Connection, method: str, request: Any, token: str) -> Any:
        try:
            return connection.call(method, request, _metadata(token))
        except Answered:
            raise
        except (StoreUnavailable, StoreRefused) as error:
            self.drop(connection, error)
            raise

    def _forget(self, token: str) -> None:
        with self._login:
            if self._token == token:
                self._token = None

    def _authenticate(self, connection: Connection, stale: str | None) -> str:
        """Give a token other than the stale one; empty if none is needed."""
        if not self._user:
            return ""
        with self._login:
            if self._token is None or self._token == stale:
                request = MESSAGES["AuthenticateRequest"](name=self._user, password=self._password)
                try:
                    self._token = str(self._try(connection, "Authenticate", request, "").token)
                except Answered as error:
                    if "authentication is not enabled" not in error.text:
                        raise
                    # Whoever runs etcd without users need not remove ours from every command.
                    self._token = ""
            return self._token


def _metadata(token: str) -> Metadata:
    return (*_LEADER, ("token", token)) if token else _LEADER


def _load(cacert: str, cert: str, key: str) -> Any:
    if bool(cert) != bool(key):
        raise UsageError("a TLS certificate and its key go together. Set --rdzv_conf cert=FILE,key=FILE.")
    contents = []
    for name, path in (("cacert", cacert), ("cert", cert), ("key", key)):
        try:
            contents.append(Path(path).read_bytes() if path else None)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}. Check --rdzv_conf {name}=FILE.") from None
    if cert:
        import ssl

        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key)
        except (ssl.SSLError, ValueError) as error:
            step = "Check --rdzv_conf cert=FILE,key=FILE."
            raise UsageError(f"{cert} and {key} are no pair of certificate and key ({error}). {step}") from None
    return credentials(*contents)
