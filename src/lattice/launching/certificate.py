"""A key and a certificate, for as long as one launch or job needs them; those of a launch live in memory."""

from __future__ import annotations

import hashlib
import os
import ssl

from lattice.core.dataclass import dataclass

MAKING = 30.0
"""seconds that it may take"""
COMMAND = (
    *("openssl", "req", "-x509", "-config", "/dev/stdin", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
    *("-nodes", "-keyout", "/dev/stdout", "-subj", "/CN=lattice", "-days", "3650"),
)
"""its name and dates are not looked at, its whole is"""
CONFIGURATION = b"[req]\ndistinguished_name = name\n[name]\n"
"""instead of the system's, which may be missing"""


class NoCertificate(Exception):
    """There is no way to make one here."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a launcher shows to those who call it."""

    context: ssl.SSLContext
    fingerprint: bytes
    """by which they know it"""


def make() -> Certificate:
    """
    Make a new one. The key is written to no file.

    :raises NoCertificate: says why
    """
    text = make_text()
    return Certificate(_context(text), fingerprint(ssl.PEM_cert_to_DER_cert(certificate_of(text).decode())))


def make_text() -> bytes:
    """
    Make a new key and its certificate, as PEM.

    :raises NoCertificate: says why
    """
    import subprocess  # slow to import

    try:
        made = subprocess.run(COMMAND, input=CONFIGURATION, capture_output=True, timeout=MAKING, check=False)
    except FileNotFoundError:
        raise NoCertificate("there is no program 'openssl' on this machine to make a certificate with") from None
    except subprocess.TimeoutExpired:
        raise NoCertificate(f"openssl has made no certificate within {MAKING:g}s") from None
    if made.returncode:
        said = made.stderr.decode(errors="replace").strip().splitlines()
        raise NoCertificate(f"openssl made no certificate: {said[-1] if said else f'exit code {made.returncode}'}")
    return made.stdout


def certificate_of(text: bytes) -> bytes:
    """Give what is no secret of it."""
    return text[text.index(b"-----BEGIN CERTIFICATE-----") :].strip()


def fingerprint(certificate: bytes) -> bytes:
    """Give that by which a certificate, in its binary form, is known."""
    return hashlib.sha256(certificate).digest()


def _context(text: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # nobody comes twice
    memory = os.memfd_create("lattice-key", os.MFD_CLOEXEC)
    try:
        os.write(memory, text)
        context.load_cert_chain(f"/proc/self/fd/{memory}")  # it takes a path, not bytes
    finally:
        os.close(memory)
    return context
