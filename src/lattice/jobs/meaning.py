"""From what the user said, on the command line and in a job file, to a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lattice.core.spec import NodeRange
from lattice.errors import UsageError
from lattice.jobs import archive
from lattice.jobs.index import check_name
from lattice.jobs.job import EACH, Code, Job, Role
from lattice.jobs.jobfile import JobFile
from lattice.jobs.options import (
    ENV,
    HOSTS,
    NAME,
    NO_UPLOAD,
    OF_ROLES,
    ON,
    PLACE_OPTIONS,
    RESOURCES,
    RUN_OPTIONS,
    SIZE,
)
from lattice.jobs.rolefile import RoleFile
from lattice.jobs.roles import total
from lattice.options import conf
from lattice.options.parsing import Parsed
from lattice.options.table import RDZV_BACKEND, RDZV_CONF, RDZV_ENDPOINT, RDZV_PASSWORD

OF_PLACES: Mapping[str, tuple[str, ...]] = {
    "local": (),
    "ssh": ("hosts", "ssh_config_file", "python"),
    "slurm": ("slurm_options",),
    "aws": ("specs_file", "instance_type", "region"),
    "kubernetes": (
        *(option.name for option in RESOURCES),
        *("namespace", "context", "kubeconfig", "service_account", "secrets"),
        *("image_pull_secret", "image_pull_policy", "keep_for"),
    ),
}
"""options that each place has of its own"""
PASSWORD = "password"
"""the key of rdzv_conf that nobody else may see"""


@dataclass(frozen=True, slots=True)
class Words:
    """The words after the options, taken apart."""

    source: str
    script: str
    arguments: tuple[str, ...]


def job(parsed: Parsed, file: JobFile | None) -> Job:
    """
    Give what was said its meaning.

    :param parsed: the command line
    :param file: the job file, if there is one; what the command line says wins
    :raises UsageError: something is missing, or contradicts something else
    """
    if file is not None:
        parsed = replace(parsed, given={**file.given, **parsed.given})
    name = parsed[NAME]
    if not name:
        raise UsageError("--name is missing: lattice submit --name my-job ...")
    check_name(name)
    place = parsed[ON]
    cast = _roles(parsed, file) if file is not None and file.roles else ()
    code, arguments = _common_code(parsed, file, cast) if file is not None and cast else _code(parsed, file)
    if not cast:
        archive.check(code)
    return Job(
        name=name,
        place=place,
        size=total([role.size for role in cast]) if cast else _size(parsed),
        code=code,
        arguments=arguments,
        run_options=_run_options(parsed),
        environment=_environment(parsed, file, {}),
        place_options=_place_options(parsed, place),
        roles=cast,
    )


def _roles(parsed: Parsed, file: JobFile) -> tuple[Role, ...]:
    """Give the roles of a file: what the job says besides holds for each that says nothing else."""
    if parsed.has(SIZE):
        raise UsageError(f"{parsed.given[SIZE.name].source}: size belongs to each of the roles")
    if parsed.entry or file.arguments:
        raise UsageError("arguments belong to each of the roles: args: [...] there")
    cast = tuple(_role(parsed, file, one) for one in file.roles)
    for name in (RDZV_BACKEND.name, RDZV_ENDPOINT.name):
        if len({dict(role.run_options).get(name) for role in cast}) > 1:
            raise UsageError(f"{name} belongs to the job: its roles find each other at one store")
    return cast


def _role(parsed: Parsed, file: JobFile, said: RoleFile) -> Role:
    own = replace(parsed, given={**parsed.given, **said.given})
    size = own[SIZE]
    if said is file.roles[0] and said.group == EACH and size.maximum > 1:
        raise UsageError(f"{said.where}: {said.name} is the primary role, whose end is the job's: it has to be one run")
    return Role(
        said.name,
        size,
        script=said.script,
        command=said.command,
        arguments=said.arguments,
        run_options=_run_options(own),
        environment=_environment(own, file, said.env),
        place_options={one.name: own.given[one.name].text for one in OF_ROLES if own.has(one)},
        group=said.group,
        if_failed=said.if_failed,
        sidecars=said.sidecars,
        volumes=said.volumes,
    )


def _common_code(parsed: Parsed, file: JobFile, cast: Sequence[Role]) -> tuple[Code, tuple[str, ...]]:
    """Give the code that all roles have; each names its own script in it."""
    upload, folder = not parsed[NO_UPLOAD], file.words.get("folder", "")
    if file.words.get("script"):
        raise UsageError("script belongs to each of the roles; the job has their folder")
    if not folder and upload:
        raise UsageError("with roles the job needs folder: where their scripts are (no_upload: 1 if on the nodes)")
    code = Code(folder, "", upload)
    if upload and not folder.startswith("s3://") and not Path(folder).is_dir():
        raise UsageError(f"folder is {folder!r}: there is no such folder here")
    for role in cast:
        if role.script:
            archive.check(replace(code, script=role.script))
    return code, ()


def _environment(parsed: Parsed, file: JobFile | None, of_role: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    password = dict(parsed[RDZV_CONF]).get(PASSWORD)
    secret = {RDZV_PASSWORD.variable: password} if password else {}
    return tuple(sorted({**secret, **(file.env if file else {}), **dict(parsed[ENV]), **of_role}.items()))


def split(words: Sequence[str], *, upload: bool, is_folder: bool) -> Words:
    """
    Take the words after the options apart.

    :param words: SCRIPT ARGS, or FOLDER SCRIPT ARGS, where ``--`` may stand before the arguments
    :param upload: false if the words name something on the nodes
    :param is_folder: whether the first word is a folder here
    """
    before, after = list(words), []
    if "--" in before:
        cut = before.index("--")
        before, after = before[:cut], before[cut + 1 :]
        if len(before) > 2:
            raise UsageError(f"more than a folder and a script before --: {' '.join(before)}")
        return Words(before[0], before[1] if len(before) > 1 else "", tuple(after))
    archived = before[0].startswith("s3://") and before[0].endswith((".tar", ".tar.gz", ".tgz"))
    two = is_folder or archived or (not upload and not before[0].endswith(".py"))
    if two and len(before) > 1:
        return Words(before[0], before[1], tuple(before[2:]))
    return Words(before[0], "", tuple(before[1:]))


def _code(parsed: Parsed, file: JobFile | None) -> tuple[Code, tuple[str, ...]]:
    upload = not parsed[NO_UPLOAD]
    words = parsed.entry
    if file is not None and file.words:
        # The file says what runs: words of the command line are its arguments.
        folder, script = file.words.get("folder", ""), file.words.get("script", "")
        return Code(folder or script, script if folder else "", upload), words or file.arguments
    if not words:
        raise UsageError("no script: lattice submit --name my-job train.py -- ARGS; see lattice submit --help")
    found = split(words, upload=upload, is_folder=Path(words[0]).is_dir())
    return Code(found.source, found.script, upload), found.arguments or (file.arguments if file else ())


def _size(parsed: Parsed) -> NodeRange:
    hosts = [host for host in parsed[HOSTS].split(",") if host]
    if hosts and not parsed.has(SIZE):
        return NodeRange(len(hosts), len(hosts))
    size: NodeRange = parsed[SIZE]
    return size


def _run_options(parsed: Parsed) -> tuple[tuple[str, str], ...]:
    if parsed.has(RDZV_BACKEND) and parsed[RDZV_BACKEND] == "etcd" and not parsed.has(RDZV_ENDPOINT):
        raise UsageError("--rdzv_backend etcd needs --rdzv_endpoint; without both, node 0 serves the store")
    conf.read(parsed[RDZV_CONF])  # what is wrong in it is told here, and not by an agent that has waited for its turn
    found = {option.name: parsed.given[option.name].text for option in RUN_OPTIONS if parsed.has(option)}
    if PASSWORD in dict(parsed[RDZV_CONF]):  # a variable has it: a command line is seen by all users of a machine
        found[RDZV_CONF.name] = ",".join(f"{name}={text}" for name, text in parsed[RDZV_CONF] if name != PASSWORD)
    return tuple(sorted((name, text) for name, text in found.items() if text or name != RDZV_CONF.name))


def _place_options(parsed: Parsed, place: str) -> dict[str, str]:
    given = {option.name: parsed.given[option.name].text for option in PLACE_OPTIONS if parsed.has(option)}
    # One file can serve several places: what only others know is left out. A flag was meant for this one.
    foreign = sorted(given.keys() - set(OF_PLACES[place]))
    typed = [name for name in foreign if parsed.given[name].source.startswith("-")]
    if typed:
        raise UsageError(f"--{typed[0]} has no meaning with --on {place}")
    given = {name: text for name, text in given.items() if name not in foreign}
    if place == "aws" and not given.get("specs_file"):
        raise UsageError("--on aws needs --specs_file; copy aws/config/sample_specs.json and fill it in")
    if place == "ssh" and not given.get("hosts"):
        raise UsageError("--on ssh needs --hosts node1,node2")
    return given
