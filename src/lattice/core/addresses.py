"""Addresses as people write them: HOST, HOST:PORT, [IPV6]:PORT; a text that is none raises ValueError."""

from __future__ import annotations

Endpoint = tuple[str, int | None]
ETCD_PORT = 2379


def word(value: str) -> str:
    """Take one word: no white space, nothing that cannot be printed, not empty."""
    if not value or not value.isprintable() or any(letter.isspace() for letter in value):
        raise ValueError
    return value


def host(value: str) -> str:
    """Read a host name or address; an IPv6 address may be in brackets."""
    if value.startswith("[") and value.endswith("]"):
        value = value[1:-1]
        if ":" not in value:
            raise ValueError
    if value and (not word(value) or any(letter in "[]/,@" for letter in value)):
        raise ValueError
    return value


def port(value: str) -> int:
    """Read the number of a port."""
    digits = value.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 5 or int(digits) > 65535:
        raise ValueError
    return int(digits)


def endpoint(value: str) -> Endpoint:
    """Read HOST, HOST:PORT, [IPV6]:PORT or a bare IPv6 address."""
    if value.startswith("["):
        name, bracket, rest = value.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError
        return host(name + "]"), port(rest[1:]) if rest else None
    name, colon, digits = value.rpartition(":")
    if not colon or ":" in name:
        return word(host(value)), None
    return word(host(name)), port(digits)


def endpoints(value: str) -> tuple[Endpoint, ...]:
    """Read endpoints separated by commas."""
    return tuple(endpoint(part.strip()) for part in value.split(",")) if value.strip() else ()


def of_etcd(found: tuple[Endpoint, ...]) -> tuple[tuple[str, int], ...]:
    """Give those without a port etcd's own."""
    return tuple((name, ETCD_PORT if number is None else number) for name, number in found)
