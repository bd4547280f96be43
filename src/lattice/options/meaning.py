"""From what the user said to everything one agent needs to know."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from lattice.core.spec import AgentSpec, Command, LogSpec
from lattice.errors import UsageError
from lattice.options import conf, entrypoint
from lattice.options.facts import Machine, check_platform
from lattice.options.job import job_spec
from lattice.options.meeting import meeting
from lattice.options.option import Option
from lattice.options.parsing import Parsed
from lattice.options.table import (
    CHECKPOINT_TIMEOUT,
    ENTRYPOINT,
    ENTRYPOINT_ARGS,
    EVENTS,
    FRAMEWORK,
    HANG_TIMEOUT,
    LOCAL_ADDR,
    LOCAL_RANKS_FILTER,
    LOG_DIR,
    MAX_RESTARTS,
    MODULE,
    NNODES,
    NO_PYTHON,
    NODE_RANK,
    NOTICE_GRACE,
    NOTICE_SIGNAL,
    NPROC_PER_NODE,
    OPTIONS,
    PRELOAD,
    RDZV_CONF,
    REDIRECTS,
    ROLE,
    SHUTDOWN_TIMEOUT,
    SIGNALS_TO_HANDLE,
    TEE,
    option_variables,
)


def agent_spec(parsed: Parsed, machine: Machine) -> AgentSpec:
    """
    Give the options of a run their meaning.

    :param parsed: what the user said
    :param machine: the machine that the agent runs on
    :return: what the agent does
    :raises UsageError: where something is missing, contradicts something else, or cannot work on this machine
    """
    check_platform(machine.system, machine.release)
    command, about_entry = _command(parsed, machine)
    settings = conf.read(parsed[RDZV_CONF])
    job = job_spec(parsed)
    place = meeting(parsed, settings, machine, job)
    node_rank, about_rank = _node_rank(parsed)
    return AgentSpec(
        run_id=place.run_id,
        command=command,
        policy=settings.policy(parsed[NNODES], parsed[MAX_RESTARTS]),
        workers=_workers(parsed, machine),
        framework=parsed[FRAMEWORK],
        role=parsed[ROLE],
        node_rank=node_rank,
        local_addr=parsed[LOCAL_ADDR],
        store=place.store,
        job=job,
        logs=_logs(parsed),
        preload=parsed[PRELOAD],
        signals=parsed[SIGNALS_TO_HANDLE],
        shutdown_timeout=parsed[SHUTDOWN_TIMEOUT],
        hang_timeout=parsed[HANG_TIMEOUT],
        notice_grace=parsed[NOTICE_GRACE],
        notice_signal=parsed[NOTICE_SIGNAL],
        checkpoint_timeout=parsed[CHECKPOINT_TIMEOUT],
        notices=place.notices + about_entry + about_rank + _without_purpose(parsed, settings.ignored),
        strip=option_variables(),
    )


def _workers(parsed: Parsed, machine: Machine) -> int:
    asked = parsed[NPROC_PER_NODE]
    if isinstance(asked, int):
        return asked
    found = machine.devices(asked)
    if found < 1:
        raise UsageError(f"{NPROC_PER_NODE.title} is {asked!r} and there is none here; give a number, or cpu")
    return found


def _node_rank(parsed: Parsed) -> tuple[int | None, tuple[str, ...]]:
    rank, nodes = parsed[NODE_RANK], parsed[NNODES]
    if rank is None or rank < nodes.maximum:
        return rank, ()
    if nodes.maximum == 1:
        raise UsageError(f"{NODE_RANK.title} is {rank}, so there are more nodes than one: {NNODES.title} must say so")
    return None, (f"--node_rank {rank} is beyond --nnodes {nodes}: this node takes the rank that is free, or waits",)


def _logs(parsed: Parsed) -> LogSpec:
    directory = parsed[LOG_DIR]
    try:
        if directory and Path(directory).exists() and not Path(directory).is_dir():
            raise UsageError(f"{LOG_DIR.title} is {directory!r}, which is not a directory; accepted: {LOG_DIR.accepts}")
    except OSError as error:  # it may not be looked at, or is no name that a file can have
        raise UsageError(f"{LOG_DIR.title} is {directory!r}: {error.strerror}; accepted: {LOG_DIR.accepts}") from None
    return LogSpec(directory, parsed[REDIRECTS], parsed[TEE], parsed[LOCAL_RANKS_FILTER], parsed[EVENTS])


def _command(parsed: Parsed, machine: Machine) -> tuple[Command, tuple[str, ...]]:
    words, notices = _entry_words(parsed)
    environ, interpreter = machine.environ, _interpreter(parsed, machine.environ, machine.interpreter)
    module, plain = parsed[MODULE], parsed[NO_PYTHON]
    if module and plain:
        raise UsageError(f"{MODULE.title} and {NO_PYTHON.title} exclude each other; give only one of them")
    try:
        if module:
            found = entrypoint.module_command(words, interpreter)
            if interpreter == sys.executable and not entrypoint.has_module(words[0]):
                raise UsageError(f"entry point: there is no module {words[0]!r} in {Path.cwd()} or installed")
            return found, notices
        if plain:
            return entrypoint.plain_command(words, entrypoint.search_path(environ)), notices
        return entrypoint.command(words, environ, interpreter, scripts_first=parsed.dialect.torchrun), notices
    except OSError as error:  # it may not be looked at, or is no name that a file can have
        raise UsageError(f"entry point {words[0]!r}: {error.strerror}") from None


def _interpreter(parsed: Parsed, environ: Mapping[str, str], own: str) -> str:
    """Give the Python that runs scripts: torchrun's variable for it is honoured where torchrun is meant."""
    return (environ.get("PYTHON_EXEC") if parsed.dialect.torchrun else None) or own


def _entry_words(parsed: Parsed) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if parsed.entry:
        ignored = parsed.has(ENTRYPOINT_ARGS) and not parsed.has(ENTRYPOINT)
        notice = (
            f"{ENTRYPOINT_ARGS.variable} goes with {ENTRYPOINT.variable}, not with an entry point that is given here"
        )
        return parsed.entry, (notice,) if ignored else ()
    words = _shell_words(parsed, ENTRYPOINT) + _shell_words(parsed, ENTRYPOINT_ARGS)
    if not parsed.has(ENTRYPOINT) or not words:
        raise UsageError(
            f"no entry point: give a script or program after the options, or set {ENTRYPOINT.variable}; "
            f"see {parsed.dialect.command} --help"
        )
    if words[0].startswith("-"):
        raise UsageError(f"{ENTRYPOINT.variable} is {parsed[ENTRYPOINT]!r}; accepted: a script or program, no option")
    return words, ()


def _shell_words(parsed: Parsed, option: Option[str]) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(parsed[option]))
    except ValueError as error:
        raise UsageError(
            f"{option.variable} is {parsed[option]!r} ({str(error).lower()}); accepted: {option.accepts}"
        ) from None


def _without_purpose(parsed: Parsed, conf_keys: tuple[str, ...]) -> tuple[str, ...]:
    """Say once which options were accepted and do nothing."""
    said = [
        f"{parsed.given[option.name].source} ({option.notice})"
        for option in OPTIONS
        if option.notice and parsed.has(option)
    ]
    if conf_keys:
        said.append(f"{', '.join(conf_keys)} in rdzv_conf")
    return (f"accepted, and without a purpose here: {'; '.join(said)}",) if said else ()
