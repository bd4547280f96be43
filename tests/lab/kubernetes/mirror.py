"""Mirror objects of an API server, by list and watch. Standard library only."""

from __future__ import annotations

import argparse
import json
import ssl
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Key = tuple[str, str]  # namespace, name


class Api:
    """An API server, as the user of a token."""

    def __init__(self, server: str, authority: str, token: str) -> None:
        self.server, self.token = server, token
        self.context = ssl.create_default_context(cafile=authority)

    def open(self, method: str, path: str, body: Json | None = None) -> HTTPResponse:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data=data, headers=headers, method=method)
        answer: HTTPResponse = urllib.request.urlopen(request, context=self.context, timeout=3600)
        return answer

    def ask(self, method: str, path: str, body: Json | None = None) -> Json:
        with self.open(method, path, body) as answer:
            said: Json = json.load(answer)
            return said

    def watch(self, path: str) -> Iterator[Json]:
        with self.open("GET", path) as answer:
            for line in answer:
                yield json.loads(line)


class Mirror:
    """One kind of object; after any break the list is read anew."""

    def __init__(self, api: Api, kind: str, changed: threading.Event) -> None:
        self.api, self.kind, self.changed = api, kind, changed
        self.objects: dict[Key, Json] = {}
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while True:
            try:
                listed = self.api.ask("GET", f"/api/v1/{self.kind}")
                self.objects = {key(item): item for item in listed["items"]}
                self.changed.set()
                version = listed["metadata"]["resourceVersion"]
                for event in self.api.watch(f"/api/v1/{self.kind}?watch=1&resourceVersion={version}"):
                    self.apply(event)
            except (OSError, ValueError) as error:
                print(f"{self.kind}: {error}; reading anew", file=sys.stderr, flush=True)
                time.sleep(0.5)

    def apply(self, event: Json) -> None:
        if event["type"] == "ERROR":
            raise ValueError(event["object"].get("message", "watch failed"))
        objects = dict(self.objects)
        if event["type"] == "DELETED":
            objects.pop(key(event["object"]), None)
        else:
            objects[key(event["object"])] = event["object"]
        self.objects = objects  # replaced, never changed in place: the other thread may be reading it
        self.changed.set()


def key(item: Json) -> Key:
    """Name an object; those of the whole cluster have no namespace."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Have options that lead to an API server."""
    parser.add_argument("--server", required=True, help="URL of the API server")
    parser.add_argument("--authority", required=True, help="certificate authority file")
    parser.add_argument("--token", required=True, type=Path, help="file with a bearer token")


def connect(options: argparse.Namespace) -> Api:
    """Give the API server that options lead to."""
    return Api(options.server, options.authority, options.token.read_text().strip())
