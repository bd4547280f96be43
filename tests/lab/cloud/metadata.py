"""The instance metadata service, second version: one server for all instances, which tells them by their address."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROLE = "lattice-instance"
LIFE = "X-aws-ec2-metadata-token-ttl-seconds"
NOTICE = "instance-action"
"""file in an instance's folder: what it is told of its end"""
CUT = "cut"
"""file in an instance's folder: its power is cut"""


@dataclass(frozen=True)
class Instance:
    """What an instance may know of itself."""

    id: str
    name: str
    address: str
    zone: str
    folder: Path

    def told(self, path: str) -> str | None:
        """Answer a question; None if there is no answer."""
        notice = self.folder / NOTICE
        answers = {
            "instance-id": self.id,
            "local-ipv4": self.address,
            "local-hostname": self.name,
            "placement/availability-zone": self.zone,
            "placement/region": self.zone[:-1],
            "iam/security-credentials/": ROLE,
            f"iam/security-credentials/{ROLE}": _credentials(),
        }
        if notice.exists():
            answers["spot/instance-action"] = notice.read_text()
        return answers.get(path)


def _credentials() -> str:
    now = datetime.now(UTC)
    return json.dumps(
        {
            "Code": "Success",
            "Type": "AWS-HMAC",
            "AccessKeyId": "ASIAINSTANCE",
            "SecretAccessKey": "instance",
            "Token": "instance",
            "LastUpdated": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "Expiration": (now + timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
    )


def serve(address: str, find: Callable[[str], Instance | None]) -> None:
    """
    Answer for ever.

    :param address: to listen on, port 80
    :param find: gives the instance that has an address
    """
    tokens = set[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            if self.path != "/latest/api/token" or not self.headers[LIFE]:
                self._answer(400, "")
                return
            tokens.add(token := secrets.token_hex(16))
            self._answer(200, token, {LIFE: self.headers[LIFE]})

        def do_GET(self) -> None:
            instance = find(self.client_address[0])
            if self.headers["X-aws-ec2-metadata-token"] not in tokens:
                self._answer(401, "")
            elif instance is None or (answer := instance.told(self.path.removeprefix("/latest/meta-data/"))) is None:
                self._answer(404, "")
            else:
                self._answer(200, answer)

        def _answer(self, code: int, text: str, headers: Mapping[str, str] = {}) -> None:
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *words: object) -> None:
            """Nobody reads it."""

    ThreadingHTTPServer((address, 80), Handler).serve_forever()
