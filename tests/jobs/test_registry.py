"""What a registry says of an image, and what it cannot be asked."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lattice.jobs import registry
from lattice.jobs.registry import Answer, Login, Reference
from tests.etcd_server import free_ports
from tests.registry_server import USER, put_image, registry_server


@pytest.mark.parametrize(
    ("image", "meant"),
    [
        ("team/train:1", None),
        ("python", None),
        ("team/train/more:1", None),
        ("example.org/train", Reference("example.org", "train", "latest")),
        ("example.org:5000/a/b:1", Reference("example.org:5000", "a/b", "1")),
        ("localhost/a:1", Reference("localhost", "a", "1")),
        ("example.org/a:1@sha256:ab", Reference("example.org", "a", "sha256:ab")),
        ("example.org/a@sha256:ab", Reference("example.org", "a", "sha256:ab")),
    ],
)
def test_names(image: str, meant: Reference | None) -> None:
    assert registry.parse(image) == meant


def test_logins_as_docker_keeps_them() -> None:
    auth = base64.b64encode(b"me:a:b").decode()
    config = {"auths": {"https://a.example/v1/": {"auth": auth}, "b.example": {"username": "you", "password": "x"}}}
    assert registry.login(config, "a.example") == Login("me", "a:b")
    assert registry.login(config, "b.example") == Login("you", "x")
    assert registry.login(config, "c.example") is None
    odds: list[dict[str, Any]] = [
        {},
        {"auths": []},
        {"auths": {"a.example": []}},
        {"auths": {"a.example": {"auth": "%"}}},
    ]
    for odd in odds:
        assert registry.login(odd, "a.example") is None


@pytest.mark.lab
def test_a_registry_tells_what_it_has(tmp_path: Path) -> None:
    with registry_server(tmp_path) as host:
        put_image(host, "team/train", "1")
        assert registry.look(f"{host}/team/train:1") == Answer(there=True)
        assert registry.look(f"{host}/team/train:2") == Answer(False, f"{host} has no team/train:2")
        assert registry.look(f"{host}/team/other") == Answer(False, f"{host} has no team/other:latest")
    assert registry.look(f"{host}/team/train:1").there is None, "it is gone"
    assert registry.look("team/train:1") == Answer(None, "its name has no registry in it")


@pytest.mark.lab
def test_a_registry_that_wants_a_login(tmp_path: Path) -> None:
    with registry_server(tmp_path, guarded=True) as host:
        assert registry.look(f"{host}/team/train:1") == Answer(None, f"{host} wants a login", refused=True)
        wrong = registry.look(f"{host}/team/train:1", Login("me", "wrong"))
        assert wrong == Answer(None, f"{host} refuses me", refused=True)
        assert registry.look(f"{host}/team/train:1", Login(*USER)) == Answer(False, f"{host} has no team/train:1")


@contextmanager
def answering(realm: str = "", status: int = 404) -> Iterator[tuple[str, list[str]]]:
    """A server that sends whoever asks elsewhere for a token, or is no registry; gives what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            own = f"http://{self.headers['Host']}"
            asked.append(f"{self.path} {self.headers.get('Authorization', '')}")
            if self.path.startswith("/token"):
                self._answer(200, {}, json.dumps({"token": "t1"}))
            elif self.headers.get("Authorization") == "Bearer t1":
                self._answer(200, {}, "{}")
            else:
                wanted = f'Bearer realm="{realm or own + "/token"}",service="here",scope="repository:team/train:pull"'
                self._answer(status, {"WWW-Authenticate": wanted, "Location": own + "/token"}, "")

        def _answer(self, code: int, headers: dict[str, str], text: str) -> None:
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", free_ports(1)[0]), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_token_is_fetched_where_the_registry_says() -> None:
    with answering(status=401) as (host, asked):
        assert registry.look(f"{host}/team/train:1", Login("me", "x")) == Answer(there=True)
    basic = base64.b64encode(b"me:x").decode()
    assert asked[1] == f"/token?service=here&scope=repository%3Ateam%2Ftrain%3Apull Basic {basic}"


def test_no_login_goes_where_it_does_not_belong() -> None:
    with answering(realm="ftp://127.0.0.1/token", status=401) as (host, asked):
        assert registry.look(f"{host}/team/train:1", Login("me", "x")).there is None
    with answering(status=302) as (host, more):
        assert registry.look(f"{host}/team/train:1", Login("me", "x")).there is None
    assert [path.split()[0] for path in (*asked, *more)] == ["/v2/team/train/manifests/1"] * 2


def test_a_mere_404_may_come_from_anybody() -> None:
    with answering() as (host, _):
        assert registry.look(f"{host}/team/train:1") == Answer(None, f"{host} answers 404 Not Found")
