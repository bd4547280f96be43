"""The keys of ``rdzv_conf``: time limits and credentials, one row each, and those of torchrun that have no purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields

from lattice.core import addresses
from lattice.core.spec import NodeRange, Policy, StoreSpec
from lattice.errors import UsageError
from lattice.options import values
from lattice.options.table import RDZV_CONF, RDZV_PASSWORD


@dataclass(frozen=True, slots=True)
class Key:
    """One key of rdzv_conf."""

    name: str
    parse: Callable[[str], object]
    help: str
    accepts: str
    aliases: tuple[str, ...] = ()
    """names by which torchrun knows it"""

    @property
    def default(self) -> str:
        """What holds without this key, as text; empty for nothing."""
        return _DEFAULTS.get(self.name, "")


SECONDS = "seconds from 0"

KEYS = (
    Key("join_timeout", values.seconds(0.001), "how long to wait for the minimum of nodes", "seconds", ("timeout",)),
    Key(
        "last_call",
        values.seconds(),
        "how long after the last join to wait for more, between minimum and maximum",
        SECONDS,
        ("last_call_timeout",),
    ),
    Key(
        "lease_ttl",
        values.seconds(1, integral=True),
        "how long a silent node counts as alive",
        "whole seconds from 1",
    ),
    Key("store_grace", values.seconds(), "how long workers go on without the store; 0 stops them at once", SECONDS),
    Key("connect_timeout", values.seconds(), "how long to try to reach the store at the start", SECONDS),
    Key("request_timeout", values.seconds(0.001), "how long the store has to answer one request", "seconds"),
    Key("grow_interval", values.seconds(), "at least this long between two rounds that only admit newcomers", SECONDS),
    Key(
        "outcome_ttl",
        values.seconds(1, integral=True),
        "how long the outcome of a run can be read after its end; then its id is free",
        "whole seconds from 1",
    ),
    Key(
        "cacert",
        values.text,
        "file with the certificates that the store's is checked by; its presence means TLS",
        "a file",
        ("ca_cert",),
    ),
    Key(
        "cert",
        values.text,
        "file with this node's certificate for etcd, or of the embedded store, where it is served",
        "a file",
        ("ssl_cert",),
    ),
    Key(
        "server_name",
        addresses.word,
        "the name that etcd's certificate is for, where that is not the host of the endpoint",
        "a host name",
    ),
    Key("key", values.text, "file with the private key of cert", "a file", ("ssl_cert_key",)),
    Key(
        "protocol",
        values.one_of(("http", "https")),
        "etcd only: https for TLS with the certificates of the system; cacert and cert mean https",
        "http or https",
    ),
    Key("user", values.text, "user name at etcd", "any text"),
    Key(
        "password",
        values.text,
        f"password; better in {RDZV_PASSWORD.variable}, which other users of the machine cannot see",
        "any text without a comma",
    ),
    Key(
        "password_file",
        values.text,
        f"file that holds the password, in place of {RDZV_PASSWORD.variable}; a line's end after it does not count",
        "a file",
    ),
    Key(
        "is_host",
        values.switch,
        "embedded only: whether this node serves the store; goes before node_rank",
        "1 or 0",
    ),
)

IGNORED = (
    "close_timeout",
    "heartbeat_timeout",
    "keep_alive_interval",
    "keep_alive_max_attempt",
    "read_timeout",
    "store_type",
    "use_libuv",
    "etcd_prefix",
    "rank",
)
"""keys of torchrun that are accepted and have no purpose here"""

_POLICY = ("join_timeout", "last_call", "lease_ttl", "store_grace", "connect_timeout", "grow_interval", "outcome_ttl")


def _defaults() -> Iterator[tuple[str, str]]:
    policy, store = Policy(NodeRange(1, 1)), StoreSpec()
    for name in (field.name for field in fields(Policy) if field.name in _POLICY):
        yield name, f"{getattr(policy, name):g}"
    yield "request_timeout", f"{store.request_timeout:g}"
    yield "protocol", "http"


_DEFAULTS = dict(_defaults())


@dataclass(frozen=True)
class Conf:
    """What an rdzv_conf says."""

    values: Mapping[str, object]
    ignored: tuple[str, ...]
    """keys that were given and have no purpose here"""

    def text(self, name: str) -> str:
        """Give the text of a key, empty if it was not given."""
        return str(self.values.get(name, ""))

    def number(self, name: str) -> float:
        """Give the number of a key, or its default."""
        found = self.values.get(name, _DEFAULTS[name])
        return float(found) if isinstance(found, (int, float, str)) else 0.0

    def switch(self, name: str) -> bool | None:
        """Give a yes or no, None if it was not given."""
        return bool(self.values[name]) if name in self.values else None

    def policy(self, nodes: NodeRange, max_restarts: int) -> Policy:
        """Make the policy that these time limits belong to."""
        return Policy(nodes, max_restarts, **{name: self.number(name) for name in _POLICY})


def read(given: tuple[tuple[str, str], ...]) -> Conf:
    """
    Give the pairs of an rdzv_conf their meaning.

    :param given: keys and values in the order in which they were written; the last one of a key holds
    :raises UsageError: for an unknown key or a wrong value
    """
    known = {name: key for key in KEYS for name in (key.name, *key.aliases)}
    found: dict[str, object] = {}
    ignored = []
    for name, text in given:
        if name in IGNORED:
            ignored.append(name)
            continue
        if name not in known:
            names = ", ".join(key.name for key in KEYS)
            raise UsageError(f"{RDZV_CONF.title} has the unknown key {name!r}; known keys: {names}")
        key = known[name]
        try:
            found[key.name] = key.parse(text)
        except ValueError:
            raise UsageError(f"{RDZV_CONF.title}: {name} is {text!r}; accepted: {key.accepts}") from None
    return Conf(found, tuple(ignored))
