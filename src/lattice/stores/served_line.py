"""One authenticated connection to a served store: questions and answers by number, and watches."""

from __future__ import annotations

import os
import socket
import threading
from itertools import count
from struct import pack
from typing import TYPE_CHECKING, Any

from lattice.core.keyspace import Batch
from lattice.errors import LatticeError, StoreRefused, StoreUnavailable
from lattice.stores import Sink
from lattice.stores.served_frames import (
    GREETING,
    MAGIC,
    NONCE,
    REFUSAL,
    Opener,
    Sealer,
    UntrustedError,
    proof,
    same,
)
from lattice.stores.served_values import dump, load, load_batch, load_error

if TYPE_CHECKING:
    import ssl

    from lattice.stores.served_tls import SecuredLine


class _Question:
    """A request that waits for its answer."""

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.result: Any = None
        self.error: LatticeError | None = None


class ServedWatch:
    """A running watch; made by :meth:`ServedStore.watch`."""

    def __init__(self, line: Line, number: int, sink: Sink) -> None:
        self._line = line
        self._number = number
        self._sink = sink
        # Held while the sink runs, so that cancel() cannot overtake a call of it.
        self._lock = threading.RLock()
        self._over = False

    def put(self, item: Batch | LatticeError) -> None:
        """Give the sink what came."""
        with self._lock:
            if not self._over:
                self._over = isinstance(item, LatticeError)
                self._sink(item)

    def cancel(self) -> None:
        """End it; after this returns the sink is not called again."""
        with self._lock:
            over, self._over = self._over, True
        self._line.forget(self._number, tell=not over)


class Line:
    """One authenticated connection, and the thread that reads it."""

    def __init__(self, name: str, connection: socket.socket | SecuredLine, secret: bytes, timeout: float) -> None:
        self.name = name
        self.broken: LatticeError | None = None
        self._identity = ""
        self._connection = connection
        self._timeout = timeout
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._numbers = count(1)
        self._questions: dict[int, _Question] = {}
        self._watches: dict[int, ServedWatch] = {}
        self._sealer, self._opener = self._meet(secret)
        connection.settimeout(None)
        self._reader = threading.Thread(target=self._read, name="lattice-served", daemon=True)
        self._reader.start()

    def ask(self, call: str, *args: Any) -> Any:
        """
        Send a request and wait for its answer.

        :raises LatticeError: what the server said, or why there is no answer
        """
        if threading.current_thread() is self._reader:
            raise RuntimeError("a sink must not call its store: the thread it blocks is the one that hears the answer")
        question = _Question()
        number = next(self._numbers)
        with self._lock:
            if self.broken is not None:
                raise _again(self.broken)
            self._questions[number] = question
        self._send({"id": number, "call": call, "args": args})
        if not question.answered.wait(self._timeout):
            self.hang_up(StoreUnavailable(f"store at {self.name}: timed out, no answer within {self._timeout:g}s."))
            question.answered.wait()
        if question.error is not None:
            raise question.error
        return question.result

    def identity(self) -> str:
        """Name the data at the other end, which is asked once: as long as the line holds it is the same."""
        self._identity = self._identity or str(self.ask("identity"))
        return self._identity

    def watch(self, prefix: str, after: int, sink: Sink) -> ServedWatch:
        """Begin a watch; what it sees may come before the answer does."""
        number = next(self._numbers)
        watch = ServedWatch(self, number, sink)
        with self._lock:
            if self.broken is not None:
                raise _again(self.broken)
            self._watches[number] = watch
        try:
            self.ask("watch", number, prefix, after)
        except LatticeError:
            watch.cancel()
            raise
        return watch

    def forget(self, number: int, *, tell: bool) -> None:
        """Drop a watch; nobody waits for the server to do the same."""
        with self._lock:
            known = self._watches.pop(number, None) is not None and self.broken is None
        if known and tell:
            self._send({"id": 0, "call": "cancel", "args": (number,)})

    def hang_up(self, reason: LatticeError) -> None:
        """End the connection; all who wait fail, and all watches end, for this reason."""
        with self._lock:
            if self.broken is not None:
                return
            self.broken = reason
            questions, self._questions = self._questions, {}
            watches, self._watches = self._watches, {}
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        for question in questions.values():
            question.error = _again(reason)
            question.answered.set()
        for watch in watches.values():
            watch.put(_again(reason))

    def close(self) -> None:
        """End the connection and all watches, quietly."""
        with self._lock:
            watches = list(self._watches.values())
        for watch in watches:
            watch.cancel()
        self.hang_up(StoreUnavailable(f"store at {self.name}: closed."))
        if threading.current_thread() is not self._reader:
            self._reader.join()

    def _meet(self, secret: bytes) -> tuple[Sealer, Opener]:
        greeting = self._exactly(GREETING)
        if not greeting.startswith(MAGIC):
            raise StoreUnavailable(f"store at {self.name}: what answers there is no Lattice store.")
        theirs, ours = greeting[len(MAGIC) :], os.urandom(NONCE)
        self._connection.sendall(MAGIC + ours + proof(secret, "client", theirs, ours))
        given = self._exactly(len(REFUSAL))
        if not same(given, proof(secret, "server", theirs, ours)):
            step = "Give every node the same LATTICE_RDZV_PASSWORD, or none and the same --rdzv_id (LATTICE_RDZV_ID)."
            who = "it does not accept our password" if given == REFUSAL else "it does not know our password"
            raise StoreRefused(f"store at {self.name}: {who}. {step}")
        return Sealer(secret, "client", theirs, ours), Opener(secret, "server", theirs, ours)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._connection.recv(size - len(data))
            if not more:
                raise StoreUnavailable(f"store at {self.name}: it closed the connection.")
            data += more
        return data

    def _send(self, message: dict[str, Any]) -> None:
        try:
            # Sealed under the lock: the numbers of frames must leave in order.
            with self._sending:
                self._connection.sendall(self._sealer.seal(dump(message)))
        except OSError as error:
            self.hang_up(StoreUnavailable(f"store at {self.name}: {_said(error)}."))

    def _read(self) -> None:
        reason = f"store at {self.name}: it closed the connection."
        try:
            while data := self._connection.recv(1 << 18):
                for body in self._opener.feed(data):
                    self._take(load(body))
        except OSError as error:
            reason = f"store at {self.name}: {_said(error)}."
        except (UntrustedError, ValueError, TypeError, LookupError) as error:
            reason = f"store at {self.name}: what it sent cannot be trusted ({error})."
        self.hang_up(StoreUnavailable(reason))
        self._connection.close()

    def _take(self, message: dict[str, Any]) -> None:
        error = load_error(message) if "error" in message else None
        if "watch" in message:
            with self._lock:
                watch = self._watches.get(message["watch"])
            if watch is not None:
                watch.put(load_batch(message["batch"]) if error is None else error)
            return
        with self._lock:
            question = self._questions.pop(message["id"], None)
        if question is not None:
            question.result, question.error = message.get("result"), error
            question.answered.set()


def connect(host: str, port: int, secret: bytes, timeout: float, tls: ssl.SSLContext | None = None) -> Line:
    """
    Connect and authenticate.

    :param timeout: seconds for each step, and for each answer later
    :param tls: if the server has to speak TLS
    :raises StoreUnavailable: if nobody answers as a store does
    :raises StoreRefused: if the secrets differ, or the certificate is another
    """
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    connection: socket.socket | SecuredLine | None = None
    try:
        connection = socket.create_connection((host, port), timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # No thread waits for longer to send: to a machine that is gone, or to a process that does not read.
        seconds, rest = divmod(timeout, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, pack("ll", int(seconds), int(rest * 1e6)))
        if tls is not None:
            from lattice.stores.served_tls import secured

            connection = secured(connection, tls, name, timeout)
        return Line(name, connection, secret, timeout)
    except TimeoutError:
        reason = f"timed out, no answer within {timeout:g}s"
    except socket.gaierror:
        reason = f"the name {host} does not resolve"
    except OSError as error:
        reason = _said(error)
    except LatticeError:
        if connection is not None:
            connection.close()
        raise
    if connection is not None:
        connection.close()
    raise StoreUnavailable(f"store at {name}: {reason}.")


def _said(error: OSError) -> str:
    if isinstance(error, BlockingIOError):
        return "timed out, it does not read what is sent"
    return (error.strerror or str(error)).lower()


def _again(error: LatticeError) -> LatticeError:
    # An error object belongs to whoever raises it, so everyone gets their own.
    return type(error)(*error.args)
