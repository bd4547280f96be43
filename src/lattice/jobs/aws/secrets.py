"""What only the nodes of one job may know: etcd's key and certificate, and its password."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from secrets import token_hex

from lattice.errors import LatticeError
from lattice.jobs.aws.userdata import SERVER_NAME

YEARS = 10


def make_secrets() -> dict[str, str]:
    """
    Make them anew.

    :raises LatticeError: there is no openssl
    """
    with tempfile.TemporaryDirectory(prefix="lattice-") as folder:
        key, certificate = Path(folder, "key.pem"), Path(folder, "certificate.pem")
        command = [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", f"/CN={SERVER_NAME}", "-addext", f"subjectAltName=DNS:{SERVER_NAME}", "-days", str(365 * YEARS)),
            *("-keyout", str(key), "-out", str(certificate)),
        ]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except FileNotFoundError:
            raise LatticeError("there is no openssl on this machine to make a certificate with; install it") from None
        except subprocess.CalledProcessError as error:
            raise LatticeError(f"openssl made no certificate: {error.stderr.decode(errors='replace')}") from None
        return {"certificate": certificate.read_text(), "key": key.read_text(), "password": token_hex(32)}
