"""Certificates for tests: an authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lattice.stores.served_tls import client_context, server_context


def contexts_of(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Give what a server of a store and its clients use."""
    authority = Authority(directory)
    return server_context(*authority.sign("store")), client_context(authority.certificate)


class Authority:
    """
    A certificate authority that keeps everything in one folder.

    :param directory: where ``<name>.crt`` and ``<name>.key`` are written
    """

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = str(directory / f"{name}.crt")
        certificate = self._describe(self._name, self._key, authority=True).sign(self._key, hashes.SHA256())
        Path(self.certificate).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, host: str = "") -> tuple[str, str]:
        """Make a key and a certificate for a host, else 127.0.0.1 and localhost; give the paths (certificate, key)."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._describe(subject, key, host, authority=False).sign(self._key, hashes.SHA256())
        paths = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        paths[1].write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
        return str(paths[0]), str(paths[1])

    def _describe(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, host: str = "", *, authority: bool
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        local = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        names = [x509.DNSName(host)] if host else local
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if authority:
            return builder
        return builder.add_extension(x509.SubjectAlternativeName(names), critical=False).add_extension(
            x509.ExtendedKeyUsage(usages), critical=False
        )
