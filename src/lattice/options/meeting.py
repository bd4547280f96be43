"""Where the agents of a run meet and under which name, decided from what the user gave and what was left out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lattice.core.addresses import ETCD_PORT, Endpoint, of_etcd
from lattice.core.spec import JobSpec, NodeRange, StoreSpec
from lattice.errors import UsageError
from lattice.options.conf import Conf
from lattice.options.facts import Machine, loopback
from lattice.options.parsing import Parsed
from lattice.options.table import (
    JOB_ID,
    JOB_ROLES,
    MASTER_ADDR,
    MASTER_PORT,
    NNODES,
    NODE_RANK,
    RDZV_BACKEND,
    RDZV_CLIENT_SERVICE_HOST,
    RDZV_CLIENT_SERVICE_PORT,
    RDZV_CONF,
    RDZV_ENDPOINT,
    RDZV_ID,
    RDZV_PASSWORD,
    STANDALONE,
)

SYSTEM_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""whom a machine trusts, as Debian, Fedora and Alpine keep it"""
EMBEDDED = ("embedded", "c10d", "static")


@dataclass(frozen=True, slots=True)
class Meeting:
    """A run's name and its store."""

    run_id: str
    store: StoreSpec
    notices: tuple[str, ...] = ()


def meeting(parsed: Parsed, conf: Conf, machine: Machine, job: JobSpec) -> Meeting:
    """
    Decide where this agent meets the others.

    :param parsed: what the user said
    :param conf: what rdzv_conf says
    :param machine: who serves an embedded store is a question of which machine this is
    :param job: what the run is a part of: its other roles meet at the same store
    :raises UsageError: where options contradict each other or one is missing
    """
    found = _meeting(parsed, conf, machine, job)
    if len(job.roles) > 1 and found.store.backend == "memory":
        raise UsageError(
            f"{JOB_ROLES.title} is {','.join(job.roles)!r}, and this run meets in memory, where no other role finds "
            f"it; give the address of a store: {RDZV_ENDPOINT.title}, with {RDZV_BACKEND.title} etcd or embedded"
        )
    return found


def _meeting(parsed: Parsed, conf: Conf, machine: Machine, job: JobSpec) -> Meeting:
    nodes, backend = parsed[NNODES], _backend(parsed)
    if parsed[STANDALONE]:
        return _standalone(parsed, nodes, machine)
    pointed = parsed.has(RDZV_ENDPOINT) or _service(parsed)
    # One node needs no store that it serves itself, unless other roles of its job come there.
    joint = bool(job.id) and (parsed.has(RDZV_ENDPOINT) or parsed.has(MASTER_ADDR))
    named = pointed or joint or parsed.has(RDZV_BACKEND)
    if backend == "memory" and nodes.maximum > 1:
        raise UsageError(
            f"{RDZV_BACKEND.title} is memory, which is for one node, and {NNODES.title} is {nodes}; "
            "use etcd or embedded, or one node"
        )
    if nodes.maximum == 1 and (backend == "memory" or (backend in EMBEDDED and not joint) or not named):
        return _alone(parsed, machine)
    if backend in EMBEDDED:
        return _embedded(parsed, conf, backend, machine, job)
    return _etcd(parsed, conf, nodes, machine)


def _backend(parsed: Parsed) -> str:
    """Give the backend; whoever writes master_addr and nothing else about the store means static, as with torchrun."""
    others = parsed.has(RDZV_BACKEND) or parsed.has(RDZV_ENDPOINT) or _service(parsed)
    return "static" if parsed.has(MASTER_ADDR) and not others else parsed[RDZV_BACKEND]


def _service(parsed: Parsed) -> bool:
    return parsed.has(RDZV_CLIENT_SERVICE_HOST) or parsed.has(RDZV_CLIENT_SERVICE_PORT)


def _standalone(parsed: Parsed, nodes: NodeRange, machine: Machine) -> Meeting:
    if nodes.maximum > 1:
        raise UsageError(f"{STANDALONE.title} means one node, and {NNODES.title} is {nodes}; give only one of them")
    unused = [
        option.name
        for option in (RDZV_BACKEND, RDZV_ENDPOINT, RDZV_CLIENT_SERVICE_HOST, RDZV_CLIENT_SERVICE_PORT, MASTER_ADDR)
        if option.name in parsed.given and not parsed.given[option.name].source.startswith("LATTICE_")
    ]
    found = _alone(parsed, machine)
    notice = f"--standalone: no use for {', '.join('--' + name for name in unused)}"
    return Meeting(found.run_id, found.store, found.notices + ((notice,) if unused else ()))


def _alone(parsed: Parsed, machine: Machine) -> Meeting:
    run_id, notices = _own_run_id(parsed, machine)
    return Meeting(run_id, StoreSpec("memory"), notices)


def _own_run_id(parsed: Parsed, machine: Machine) -> tuple[str, tuple[str, ...]]:
    if parsed.has(RDZV_ID):
        return parsed[RDZV_ID], ()
    name = machine.made_up_name()
    return name, (f"run id {name}, made up; --rdzv_id ({RDZV_ID.variable}) sets it",)


def _shared_run_id(parsed: Parsed) -> str:
    if not parsed.has(RDZV_ID):
        raise UsageError(
            f"{RDZV_ID.title} is missing: with {NNODES.title} {parsed[NNODES]} every node needs the same id for the "
            "run, such as --rdzv_id my-run"
        )
    return parsed[RDZV_ID]


def _etcd(parsed: Parsed, conf: Conf, nodes: NodeRange, machine: Machine) -> Meeting:
    shared = nodes.maximum > 1
    run_id, notices = (_shared_run_id(parsed), ()) if shared else _own_run_id(parsed, machine)
    endpoints = parsed[RDZV_ENDPOINT] or ((parsed[RDZV_CLIENT_SERVICE_HOST], parsed[RDZV_CLIENT_SERVICE_PORT]),)
    file = endpoints[0][0].removeprefix("@") if _in_file(endpoints) else ""
    if any(port == 0 for _, port in endpoints):
        raise UsageError(f"{RDZV_ENDPOINT.title} has port 0; give the port of etcd, usually {ETCD_PORT}")
    if parsed.has(MASTER_ADDR):
        notices += ("--master_addr has no purpose with etcd: the nodes agree on a master in every round",)
    user, password = conf.text("user"), _password(parsed, conf)
    if bool(user) != bool(password):
        missing = RDZV_PASSWORD.title if user else f"the key user of {RDZV_CONF.title}"
        raise UsageError(f"etcd takes a user and a password: {missing} is missing")
    cacert, cert, key = _certificates(conf)
    return Meeting(
        run_id,
        StoreSpec(
            "etcd",
            () if file else of_etcd(endpoints),
            endpoints_file=file,
            user=user,
            password=password,
            password_file=conf.text("password_file"),
            cacert=cacert,
            cert=cert,
            key=key,
            server_name=conf.text("server_name"),
            request_timeout=conf.number("request_timeout"),
        ),
        notices,
    )


def _in_file(endpoints: tuple[Endpoint, ...]) -> bool:
    return bool(endpoints) and endpoints[0][0].startswith("@")


def _password(parsed: Parsed, conf: Conf) -> str:
    file = conf.text("password_file")
    if not file:
        return parsed[RDZV_PASSWORD] or conf.text("password")
    if parsed[RDZV_PASSWORD] or conf.text("password"):
        raise UsageError(f"{RDZV_CONF.title} has password_file, and a password is given besides; give one of them")
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{RDZV_CONF.title}: password_file is {file!r}: {reason}") from None


def _certificates(conf: Conf, *, trusting: bool = True) -> tuple[str, str, str]:
    """Give cacert, cert and key; whom the system trusts if https asks for that and the store may be anybody's."""
    cacert, cert, key = conf.text("cacert"), conf.text("cert"), conf.text("key")
    if bool(cert) != bool(key):
        raise UsageError(f"{RDZV_CONF.title}: cert and key go together; one of them is missing")
    for name, file in (("cacert", cacert), ("cert", cert), ("key", key)):
        if file and not os.access(file, os.R_OK):
            raise UsageError(f"{RDZV_CONF.title}: {name} is {file!r}; accepted: a file that can be read")
    if conf.text("protocol") == "https" and not cacert and trusting:
        cacert = next(
            (file for file in (os.environ.get("SSL_CERT_FILE", ""), *SYSTEM_BUNDLES) if os.access(file, os.R_OK)), ""
        )
        if not cacert:
            raise UsageError(
                f"{RDZV_CONF.title}: protocol is https and this machine has no certificates; give cacert too"
            )
    return cacert, cert, key


def _embedded(parsed: Parsed, conf: Conf, backend: str, machine: Machine, job: JobSpec) -> Meeting:
    host, port, notices = _embedded_endpoint(parsed, backend)
    if parsed[NNODES].maximum == 1:
        run_id, about_id = _own_run_id(parsed, machine)
        notices += about_id
    elif parsed.has(RDZV_ID) or backend == "embedded" or job.id:
        run_id = _shared_run_id(parsed)
    else:
        # An embedded store serves one run, so its address says enough where torchrun asks for no id.
        run_id = f"none-{host.replace(':', '.')}-{port}"
    password = _password(parsed, conf)
    if not password and not loopback(host):
        notices += (
            f"WARNING: whoever reaches {host} port {port} and guesses the {'job' if job.id else 'run'} id can join "
            "this run; "
            f"set {RDZV_PASSWORD.variable} to the same secret on every node",
        )
    serve = _serves(parsed[NODE_RANK], conf.switch("is_host"), host, machine, job)
    cacert, cert, key = _certificates(conf, trusting=False)
    if cert and not cacert:
        raise UsageError(f"{RDZV_CONF.title}: cert is given and cacert is not, by which the other nodes check it")
    if cacert and not cert and serve is not False:
        raise UsageError(f"{RDZV_CONF.title}: cacert means TLS: where the store is served, give cert and key too")
    store = StoreSpec(
        "embedded",
        ((host, port),),
        serve=serve,
        password=password,
        cacert=cacert,
        cert=cert,
        key=key,
        request_timeout=conf.number("request_timeout"),
    )
    return Meeting(run_id, store, notices)


def _embedded_endpoint(parsed: Parsed, backend: str) -> tuple[str, int, tuple[str, ...]]:
    notices: tuple[str, ...] = ()
    endpoints = parsed[RDZV_ENDPOINT]
    if _in_file(endpoints):
        raise UsageError(f"{RDZV_ENDPOINT.title} is a file, which is for etcd; an embedded store has one address")
    if len(endpoints) > 1:
        raise UsageError(f"{RDZV_ENDPOINT.title} has {len(endpoints)} addresses; an embedded store has one, node 0's")
    if not endpoints and (parsed.has(MASTER_ADDR) or backend == "static"):
        host = parsed[MASTER_ADDR] or "127.0.0.1"
        endpoints = ((host, parsed[MASTER_PORT]),)
        if not parsed.has(MASTER_ADDR):
            notices = (f"no --master_addr ({MASTER_ADDR.variable}): all nodes are taken to be on this machine",)
    if not endpoints:
        raise UsageError(
            f"{RDZV_ENDPOINT.title} is missing: with {RDZV_BACKEND.title} {backend} every node needs the address of "
            "node 0, such as --rdzv_endpoint node0:29500"
        )
    host, port = endpoints[0][0], endpoints[0][1]
    port = parsed[MASTER_PORT] if port is None else port
    if port == 0:
        raise UsageError(
            f"{RDZV_ENDPOINT.title} (or {MASTER_PORT.title}) has port 0; with {NNODES.title} {parsed[NNODES]} every "
            "node must know the port, such as 29500"
        )
    return host, port, notices


def _serves(node_rank: int | None, is_host: bool | None, host: str, machine: Machine, job: JobSpec) -> bool | None:
    if is_host is not None:
        return is_host
    if node_rank is not None and len(job.roles) < 2:
        return node_rank == 0
    # Several agents may share the machine that owns the address: the port decides among them.
    if loopback(host) or machine.owns(host):
        return None
    if node_rank == 0:
        raise UsageError(
            f"{NODE_RANK.title} is 0, which each role of {JOB_ID.title} {job.id!r} has, and {RDZV_ENDPOINT.title} is "
            f"another machine's, by its name; say who serves the store with is_host=1, or 0, in {RDZV_CONF.title}"
        )
    return False
