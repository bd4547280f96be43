"""Every way in which gRPC reports a failure, and what a user reads."""

from __future__ import annotations

import pytest

from lattice.errors import LatticeError, StoreRefused, StoreUnavailable
from lattice.stores.etcd_reasons import Answered, TimedOut, explain, refusal

CONNECTING = "failed to connect to all addresses; last error: "


@pytest.mark.parametrize(
    ("code", "details", "kind", "words"),
    [
        (
            "UNAVAILABLE",
            CONNECTING + "UNKNOWN: ipv4:10.0.0.1:1: Failed to connect to remote host: Connection refused",
            StoreUnavailable,
            "etcd at h:1: connection refused.",
        ),
        (
            "UNAVAILABLE",
            "DNS resolution failed for h:1: C-ares status is not ARES_SUCCESS",
            StoreUnavailable,
            "etcd at h:1: the name h does not resolve.",
        ),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", TimedOut, "etcd at h:1: timed out, no answer within 2s."),
        (
            "UNAVAILABLE",
            CONNECTING + "UNKNOWN: ipv4:1.2.3.4:1: connection attempt timed out before receiving SETTINGS frame",
            TimedOut,
            "etcd at h:1: timed out, no answer within 2s.",
        ),
        (
            "UNAVAILABLE",
            CONNECTING + "UNKNOWN: ipv4:1.2.3.4:1: Ssl handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL:"
            " error:1000007d:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: self signed certificate: OK",
            StoreRefused,
            "etcd at h:1: its TLS certificate cannot be trusted (self signed certificate). Check --rdzv_conf"
            " cacert=FILE (LATTICE_RDZV_CONF).",
        ),
        (
            "UNAVAILABLE",
            CONNECTING + "INTERNAL: ipv4:1.2.3.4:1: (Trying to connect an http1.x server (HTTP status 400))",
            StoreUnavailable,
            "etcd at h:1: this is no etcd server, it speaks HTTP/1.",
        ),
        ("UNAVAILABLE", "Socket closed", StoreUnavailable, "etcd at h:1: it closed the connection."),
        ("UNAVAILABLE", "etcdserver: no leader", StoreUnavailable, "etcd at h:1: etcdserver: no leader."),
        ("INTERNAL", "", StoreUnavailable, "etcd at h:1: internal."),
        ("NOT_FOUND", "etcdserver: requested lease not found", Answered, "etcd at h:1 answered: requested lease"),
    ],
)
def test_a_failure_in_our_words(code: str, details: str, kind: type[LatticeError], words: str) -> None:
    error = explain("h:1", code, details, 2.0)
    assert type(error) is kind
    assert str(error).startswith(words)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("authentication failed, invalid user ID or password", "LATTICE_RDZV_PASSWORD"),
        ("permission denied", "user=NAME"),
        ("request is too large", "--max-request-bytes"),
    ],
)
def test_a_final_no_says_what_to_do(text: str, step: str) -> None:
    assert step in str(refusal("h:1", text))


def test_other_answers_are_no_final_no() -> None:
    assert refusal("h:1", "mvcc: database space exceeded") is None
