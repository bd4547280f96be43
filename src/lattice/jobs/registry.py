"""Whether a registry has an image, asked as a node that pulls it would ask (OCI distribution, second version)."""

from __future__ import annotations

import base64
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

TIMEOUT = 5.0
MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
UNKNOWN = ("MANIFEST_UNKNOWN", "NAME_UNKNOWN")
"""how a registry says that it has no such image; a mere 404 may come from anybody"""
LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of an image, taken apart."""

    host: str
    repository: str
    version: str
    """a tag, or a digest"""


@dataclass(frozen=True, slots=True)
class Login:
    """Whom a registry knows."""

    user: str
    password: str

    @staticmethod
    def of(text: str) -> Login:
        """
        Read what logins are written as.

        :raises ValueError: it is no login
        """
        user, _, password = base64.b64decode(text, validate=True).decode().partition(":")
        return Login(user, password)


@dataclass(frozen=True, slots=True)
class Answer:
    """What could be found out."""

    there: bool | None
    """None if that cannot be told from here"""
    words: str = ""
    refused: bool = False
    """whether the registry does not let whoever asks look"""


def parse(image: str) -> Reference | None:
    """Take a name apart; None for one without a registry: where it is pulled from is the nodes' own affair. Pure."""
    host, _, path = image.partition("/")
    if not path or not ("." in host or ":" in host or host == "localhost"):
        return None
    named, _, digest = path.partition("@")
    repository, colon, tag = named.rpartition(":")
    return Reference(host, repository if colon else named, digest or (tag if colon else LATEST))


def login(config: Mapping[str, Any], host: str) -> Login | None:
    """
    Find a registry's login in what Docker, and Secrets for pulling images, keep them in. Pure.

    :param config: as JSON has it: ``{"auths": {HOST: {"auth": ...}}}``
    """
    auths = config.get("auths")
    for key, value in auths.items() if isinstance(auths, dict) else ():
        if re.sub("^https?://", "", key).partition("/")[0] != host or not isinstance(value, dict):
            continue
        if "username" in value:
            return Login(str(value["username"]), str(value.get("password", "")))
        try:
            return Login.of(str(value["auth"]))
        except (KeyError, ValueError):
            return None
    return None


def look(image: str, known: Login | None = None) -> Answer:
    """
    Ask the registry of an image for it.

    :param known: a login there
    """
    asked = parse(image)
    if asked is None:
        return Answer(None, "its name has no registry in it")
    name = urllib.parse.urlsplit(f"//{asked.host}").hostname or ""
    scheme = "http" if name == "localhost" or name.startswith("127.") else "https"  # as Docker has it
    url = f"{scheme}://{asked.host}/v2/{asked.repository}/manifests/{asked.version}"
    try:
        try:
            _get(url, {"Accept": MANIFESTS})
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            proof = _proof(error.headers.get("WWW-Authenticate", ""), known, scheme)
            _get(url, {"Accept": MANIFESTS, **proof})
    except urllib.error.HTTPError as error:
        return _refusal(asked, error, known)
    except (OSError, ValueError, HTTPException) as error:
        return Answer(None, f"{asked.host}: {getattr(error, 'reason', error)}")
    return Answer(there=True)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nobody: a login is for the one who was asked."""

    def redirect_request(self, *_: Any) -> None:
        """Give nothing to follow."""


_OPENER = urllib.request.build_opener(_Stay)


def _get(url: str, headers: Mapping[str, str]) -> bytes:
    with _OPENER.open(urllib.request.Request(url, headers=dict(headers)), timeout=TIMEOUT) as answer:
        return bytes(answer.read())


def _proof(challenge: str, known: Login | None, scheme: str) -> dict[str, str]:
    """Give what a registry wants to see, which says so in a header: a login, or a token from somebody who knows it."""
    kind, _, rest = challenge.partition(" ")
    basic = {}
    if known is not None:
        joined = base64.b64encode(f"{known.user}:{known.password}".encode()).decode()
        basic = {"Authorization": f"Basic {joined}"}
    if kind.lower() != "bearer":
        return basic
    fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    realm = fields.pop("realm", "")
    if not realm.startswith(f"{scheme}://"):
        raise ValueError(f"it sends whoever asks to {realm!r}")
    given = json.loads(_get(f"{realm}?{urllib.parse.urlencode(fields)}", basic))
    return {"Authorization": f"Bearer {given.get('token') or given.get('access_token')}"}


def _refusal(asked: Reference, error: urllib.error.HTTPError, known: Login | None) -> Answer:
    if error.code in (401, 403):
        words = f"{asked.host} refuses {known.user}" if known is not None else f"{asked.host} wants a login"
        return Answer(None, words, refused=True)
    try:
        codes = [one["code"] for one in json.loads(error.read())["errors"]]
    except (ValueError, LookupError, TypeError, OSError):
        codes = []
    if error.code == 404 and any(code in UNKNOWN for code in codes):
        return Answer(there=False, words=f"{asked.host} has no {asked.repository}:{asked.version}")
    return Answer(None, f"{asked.host} answers {error.code} {error.reason}")
