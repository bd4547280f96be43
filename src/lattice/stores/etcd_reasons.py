"""What gRPC and etcd say when a call fails, told so that a user knows what to do."""

from __future__ import annotations

from lattice.errors import LatticeError, StoreRefused, StoreUnavailable

STALE_LOGIN = ("invalid auth token", "revision of auth store is old", "user name is empty")
"""Refusals that a new login may cure. The request was not applied, so it can be sent again."""

_CREDENTIALS = "Check --rdzv_conf user=NAME (LATTICE_RDZV_CONF) and LATTICE_RDZV_PASSWORD."
_CLIENT_CERTIFICATE = "Check --rdzv_conf cert=FILE,key=FILE (LATTICE_RDZV_CONF)."
_AUTHORITY = "Check --rdzv_conf cacert=FILE (LATTICE_RDZV_CONF)."

_REFUSALS = {
    "authentication failed": _CREDENTIALS,
    "invalid auth token": _CREDENTIALS,
    "user name is empty": _CREDENTIALS,
    "user name not found": _CREDENTIALS,
    "permission denied": "Grant that user read and write below /lattice/, or name another with --rdzv_conf user=NAME"
    " (LATTICE_RDZV_CONF).",
    "request is too large": "Raise etcd's --max-request-bytes.",
}


class Answered(StoreUnavailable):
    """etcd understood the request and answered with an error; the connection is fine."""

    def __init__(self, name: str, code: str, text: str) -> None:
        super().__init__(f"etcd at {name} answered: {text}.")
        self.code = code
        self.text = text


class TimedOut(StoreUnavailable):
    """There was no answer in time."""


def explain(name: str, code: str, details: str, timeout: float) -> LatticeError:
    """
    Turn the end of a call into an error of ours.

    :param name: the endpoint, as host:port
    :param code: name of the gRPC status
    :param details: what came with it
    :param timeout: the seconds that an answer may take
    """
    if details.startswith("etcdserver: ") and code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
        return Answered(name, code, details.removeprefix("etcdserver: "))
    if code == "DEADLINE_EXCEEDED" or "attempt timed out" in details:
        return TimedOut(f"etcd at {name}: timed out, no answer within {timeout:g}s.")
    if "CERTIFICATE_VERIFY_FAILED" in details:
        why = details.split("CERTIFICATE_VERIFY_FAILED:")[-1].removesuffix(": OK").strip()
        return StoreRefused(f"etcd at {name}: its TLS certificate cannot be trusted ({why}). {_AUTHORITY}")
    if "Hostname Verification" in details or "Peer name" in details:
        return StoreRefused(f"etcd at {name}: its TLS certificate is for another name. {_AUTHORITY}")
    if "TSI_DATA_CORRUPTED" in details or "ALERT_BAD_CERTIFICATE" in details or "CERTIFICATE_REQUIRED" in details:
        # With TLS 1.3 a server judges our certificate after our part of the handshake is over.
        return StoreRefused(f"etcd at {name}: it does not accept our TLS certificate. {_CLIENT_CERTIFICATE}")
    return StoreUnavailable(f"etcd at {name}: {_reason(name, details) or code.lower().replace('_', ' ')}.")


def refusal(name: str, text: str) -> StoreRefused | None:
    """Give the final no that an answer of etcd amounts to, if it does."""
    for beginning, step in _REFUSALS.items():
        if beginning in text:
            return StoreRefused(f"etcd at {name} refused: {text}. {step}")
    return None


def _reason(name: str, details: str) -> str:
    if "Connection refused" in details:
        return "connection refused"
    if "address lookup failed" in details or "DNS resolution failed" in details or "errors resolving" in details:
        return f"the name {name.rsplit(':', 1)[0]} does not resolve"
    if "http1.x server" in details:
        return "this is no etcd server, it speaks HTTP/1"
    last = details.rsplit("last error: ", 1)[-1]
    # What remains is often "CODE: ipv4:1.2.3.4:5: the reason".
    last = last.split(": ", 2)[-1] if last != details else last
    if "Handshake read failed" in last:
        return f"TLS handshake failed ({last}); is it an address that speaks TLS?"
    if "Socket closed" in last:
        step = "; if it speaks TLS, set --rdzv_conf cacert=FILE" if last != details else ""
        return f"it closed the connection{step}"
    return last.rstrip(".")
