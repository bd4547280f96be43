"""
The wire of the served store: who may speak, and that nothing was changed, repeated or left out on the way.

Both sides know a secret. Everything is authenticated, nothing is encrypted: values can be read by whoever sees the
traffic, and a secret that can be guessed can be found out from it. Numbers are big-endian.

1. The server sends ``LATTICE1`` and 32 random bytes.
2. The client sends ``LATTICE1``, 32 random bytes of its own, and its proof.
3. The server sends 32 bytes, its own proof, or zeros if the client's was wrong, and then closes.

A proof is HMAC-SHA256 with the secret over the role (``client`` or ``server``) and both nonces; the roles differ, so
neither side's proof can be sent back to it. The two directions then have a key each, made in the same way. Each
frame after that is

    length of the body (4) | sequence number (8), from 0 in each direction | body | HMAC-SHA256 over all before it (32)

A frame of another connection, from the other direction, out of turn or altered has a wrong HMAC or number and ends
the connection. A body is UTF-8 JSON, see :mod:`lattice.stores.served_values`; nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

MAGIC = b"LATTICE1"
NONCE = 32
DIGEST = 32
GREETING = len(MAGIC) + NONCE
HELLO = len(MAGIC) + NONCE + DIGEST
REFUSAL = bytes(DIGEST)
MAX_BODY = 64 << 20
"""bytes in one frame of a peer that has proved itself; one that has not can send no more than its hello"""

_HEAD = struct.Struct(">IQ")


class UntrustedError(Exception):
    """What came is not from a peer that knows the secret, or was changed on the way."""


def secret_of(password: str, run_id: str) -> bytes:
    """Make the secret of a run: from its password, or from its id, which keeps out only accidents."""
    source = f"password {password}" if password else f"run {run_id}"
    return hashlib.sha256(b"lattice served store, " + source.encode()).digest()


def proof(secret: bytes, role: str, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Make what shows, for this connection only, that the secret is known."""
    return hmac.digest(secret, b"lattice served 1 " + role.encode() + server_nonce + client_nonce, hashlib.sha256)


def same(one: bytes, other: bytes) -> bool:
    """Compare two proofs without telling by the time it takes how far they agree."""
    return hmac.compare_digest(one, other)


class Sealer:
    """Makes the frames of one direction of one connection."""

    def __init__(self, secret: bytes, sender: str, server_nonce: bytes, client_nonce: bytes) -> None:
        self._key = proof(secret, f"{sender} frames", server_nonce, client_nonce)
        self._number = 0

    def seal(self, body: bytes) -> bytes:
        """Make the next frame."""
        framed = _HEAD.pack(len(body), self._number) + body
        self._number += 1
        return framed + hmac.digest(self._key, framed, hashlib.sha256)


class Opener:
    """Takes the frames of one direction of one connection apart, however they are cut up on the way."""

    def __init__(self, secret: bytes, sender: str, server_nonce: bytes, client_nonce: bytes) -> None:
        self._key = proof(secret, f"{sender} frames", server_nonce, client_nonce)
        self._number = 0
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """
        Take what came and give the bodies that are complete.

        :raises UntrustedError: if it is not what the peer sent next
        """
        self._buffer += data
        bodies = []
        while len(self._buffer) >= _HEAD.size:
            length, number = _HEAD.unpack_from(self._buffer)
            # Both are checked before the HMAC can be: nobody makes us wait for, or keep, what will not be accepted.
            if number != self._number or length > MAX_BODY:
                raise UntrustedError(f"frame {number} of {length} bytes came where frame {self._number} was due")
            end = _HEAD.size + length
            if len(self._buffer) < end + DIGEST:
                break
            framed = bytes(self._buffer[:end])
            if not same(hmac.digest(self._key, framed, hashlib.sha256), bytes(self._buffer[end : end + DIGEST])):
                raise UntrustedError(f"frame {number} was altered")
            del self._buffer[: end + DIGEST]
            self._number += 1
            bodies.append(framed[_HEAD.size :])
        return bodies
