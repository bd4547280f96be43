"""What of a folder is sent: rules of .gitignore files as git documents them, and what is never sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from lattice.core.dataclass import dataclass

NEVER = (".git", ".hg", ".svn", "__pycache__")
"""names that are never sent, tracked or not"""
CACHES = (
    ".eggs", ".hypothesis", ".ipynb_checkpoints", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache", ".tox",
    ".venv", "node_modules", "venv",
)  # fmt: skip
"""names that are sent only if git tracks what is in them"""
ENVIRONMENT = "pyvenv.cfg"
"""a folder with this file is a virtual environment, whatever it is called"""
SECRETS = (
    ".env", ".env.*", ".envrc", ".netrc", ".pypirc", ".pgpass", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".aws", ".ssh", ".gnupg", ".kube",
)  # fmt: skip
"""names that look like secrets: sent only if git tracks them, as then they are none"""
NO_SECRETS = (".env.example", ".env.sample", ".env.template", ".env.dist")
CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": r"\x21-\x7e", "lower": "a-z", "print": r"\x20-\x7e", "punct": r"!-/:-@\[-`{-~", "space": r" \t-\r",
    "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
IMPOSSIBLE = r"(?!)"


@dataclass(frozen=True, slots=True)
class Listed:
    """A path below the project's folder."""

    path: str
    tracked: bool
    """git knows it, and so does whoever has a clone"""


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of a .gitignore file."""

    pattern: re.Pattern[str]
    ignores: bool
    only_folders: bool
    by_name: bool
    """matches a name wherever it is; otherwise the path from the file's folder on"""


def choose(listed: Iterable[Listed]) -> tuple[list[str], list[str]]:
    """
    Decide what is sent.

    :param listed: what is there and not ignored
    :return: the paths that are sent, and those that are not because they look like secrets
    """
    listed = list(listed)
    environments = {one.path[: -len(ENVIRONMENT)] for one in listed if one.path.endswith(f"/{ENVIRONMENT}")}
    sent, secret = [], []
    for one in listed:
        parts = one.path.split("/")
        if any(part in NEVER for part in parts):
            continue
        if not one.tracked:
            folders = ("/".join(parts[:end]) + "/" for end in range(1, len(parts)))
            if any(part in CACHES for part in parts) or any(folder in environments for folder in folders):
                continue
            if any(map(_is_secret, parts)):
                secret.append(one.path)
                continue
        sent.append(one.path)
    return sorted(sent), sorted(secret)


def parse(text: str) -> tuple[Rule, ...]:
    """Read a .gitignore file."""
    lines = (line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n"))
    return tuple(rule for line in lines if (rule := _rule(line)) is not None)


def ignored(files: Sequence[tuple[str, tuple[Rule, ...]]], path: str, *, folder: bool) -> bool:
    """
    Tell whether a path is ignored, none of whose folders is.

    :param files: for each .gitignore file, the nearest first, its folder with a slash at its end, and its rules
    :param path: of the file or folder
    :param folder: whether it is one
    """
    name = path.rpartition("/")[2]
    for base, rules in files:
        for rule in reversed(rules):
            if rule.only_folders and not folder:
                continue
            if rule.pattern.fullmatch(name if rule.by_name else path[len(base) :]):
                return rule.ignores
    return False


def _is_secret(name: str) -> bool:
    return name not in NO_SECRETS and any(fnmatchcase(name, pattern) for pattern in SECRETS)


def _rule(line: str) -> Rule | None:
    if line.startswith("#"):
        return None
    end = len(line.rstrip(" "))
    if end < len(line) and (end - len(line[:end].rstrip("\\"))) % 2:
        end += 1  # the first of these spaces is escaped
    line = line[:end]
    ignores = not line.startswith("!")
    line = line if ignores else line[1:]
    only_folders = line.endswith("/")
    line = line.removesuffix("/")
    if not line:
        return None
    by_name = "/" not in line
    parts = line.removeprefix("/").split("/")
    regex = _component(parts[0]) if by_name else _path(parts)
    return Rule(re.compile(regex, re.DOTALL), ignores, only_folders, by_name)


def _path(parts: Sequence[str]) -> str:
    regex = ""
    for place, part in enumerate(parts, 1):
        last = place == len(parts)
        if part == "**":
            regex += ".+" if last else "(?:.*/)?"
        else:
            regex += _component(part) + ("" if last else "/")
    return regex


def _component(part: str) -> str:
    regex, at = "", 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            regex += "[^/]*"
        elif char == "?":
            regex += "[^/]"
        elif char == "\\":
            if at == len(part):
                return IMPOSSIBLE
            regex += re.escape(part[at])
            at += 1
        elif char == "[":
            group, at = _bracket(part, at)
            regex += group
        else:
            regex += re.escape(char)
    return regex


def _bracket(part: str, at: int) -> tuple[str, int]:
    """Translate a set of characters from behind its bracket on; give where it ends."""
    negated = part[at : at + 1] in ("!", "^")
    at += negated
    members, first = "", True
    while at < len(part) and (first or part[at] != "]"):
        first = False
        if part.startswith("[:", at) and (end := part.find(":]", at)) >= 0:
            name = part[at + 2 : end]
            if name not in CLASSES:
                return IMPOSSIBLE, len(part)
            members += CLASSES[name]
            at = end + 2
            continue
        low, at = _member(part, at)
        high = low
        if part[at : at + 1] == "-" and part[at + 1 : at + 2] not in ("]", ""):
            high, at = _member(part, at + 1)
        if low <= high:
            members += f"{re.escape(low)}-{re.escape(high)}"
    if at >= len(part):
        return IMPOSSIBLE, len(part)
    if not members:
        return ("[^/]" if negated else IMPOSSIBLE), at + 1
    return f"(?!/)[{'^' * negated}{members}]", at + 1


def _member(part: str, at: int) -> tuple[str, int]:
    if part[at] == "\\" and at + 1 < len(part):
        at += 1
    return part[at], at + 1
