"""Runs one agent from its specification to its exit code, and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from selectors import DefaultSelector

from lattice.agent.accounts import Accounts
from lattice.agent.group import WorkerGroup
from lattice.agent.inbox import Inbox
from lattice.agent.loop import Loop, Signals
from lattice.agent.output import Output
from lattice.agent.serving import open_run_store
from lattice.agent.session import Session
from lattice.agent.starting import Starter
from lattice.core.events import Finish
from lattice.core.rendezvous import begin
from lattice.core.spec import AgentSpec
from lattice.core.state import Identity, lease_of
from lattice.environments import environment
from lattice.errors import UsageError
from lattice.process.spawning import Guard
from lattice.telemetry.console import Console
from lattice.telemetry.journal import Journal
from lattice.telemetry.report import report


def run(spec: AgentSpec, guard: Guard) -> int:
    """
    Supervise this node's workers until the run ends or this node leaves.

    :param guard: the first of all processes and threads; ended here
    :return: the exit code: 0, that of the first failed worker of the run, or 128 + the signal that asked to leave
    """
    incarnation = os.urandom(8).hex()
    with ExitStack() as stack:
        stack.callback(guard.close)
        cwd = working_directory()
        folder = log_folder(spec)
        framework = environment(spec.framework)
        journal = Journal(spec.logs.events, run=spec.run_id, node=incarnation)
        stack.callback(journal.close)
        selector = stack.enter_context(DefaultSelector())
        inbox = Inbox()
        stack.callback(inbox.close)
        console = Console()
        stack.callback(console.close)
        output = Output(spec.logs, console)
        stack.callback(output.close)
        for line in (*spec.notices, *framework.notices(spec.workers, os.environ)):
            console.say(line)
        console.say(f"logs of the workers: {folder}")
        served = open_run_store(spec)
        stack.callback(served.close)
        starter = Starter(spec, framework, incarnation, cwd, guard, selector, console.say)
        stack.callback(starter.close)
        accounts = Accounts(journal, console.say)
        group = WorkerGroup(
            spec, framework, folder, starter, output, accounts, journal, selector, inbox.put, console.say
        )
        stack.callback(group.close)
        me = Identity(
            run_id=spec.run_id,
            incarnation=incarnation,
            host=socket.gethostname(),
            address=spec.local_addr,
            workers=spec.workers,
            role=spec.role,
            rank=spec.node_rank,
            whole_roster=framework.whole_roster(),
        )
        session = Session(served.store, me.keys, spec.policy.lease_ttl, inbox.put)
        state = begin(me, spec.policy, group.ports, time.monotonic())
        loop = Loop(spec, state, inbox, session, served, group, accounts, starter, guard, console, journal, selector)
        signals = Signals(spec.signals, loop, selector)
        stack.callback(signals.close)
        if not gc.isenabled():
            # What is loaded by now stays to the end: looked through again and again, at the exit too, it costs more
            # than the whole agent does otherwise.
            gc.freeze()
            gc.enable()
        journal.write("agent started", host=me.host, address=me.address, workers=me.workers, command=spec.command.argv)
        session.start()
        starter.warm_up()
        finish = loop.run()
        accounts.close(group.steps)
        text = farewell(spec, finish, session)
        if text:
            console.say(text)
        journal.write(finish.event, status=finish.status, reason=text)
        served.linger(me.keys, incarnation)
        session.close()
        return finish.status


def farewell(spec: AgentSpec, finish: Finish, session: Session) -> str:
    """Say why this agent ends."""
    if finish.outcome is None:
        return finish.message
    text = report(spec.run_id, finish.outcome)
    if not finish.late:
        return text
    lease = lease_of(finish.outcome.uuid, "outcome")
    left = session.ask(lambda store: store.remaining(lease), within=3.0) or 0.0
    return (
        f"{text}\nThis node came after its end; the id {spec.run_id!r} is free again in {left:.0f}s, or take another."
    )


def working_directory() -> str:
    """
    Tell where workers run.

    :raises UsageError: that folder was removed
    """
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise UsageError("the working directory does not exist any more; change to one that does.") from error


def log_folder(spec: AgentSpec) -> Path:
    """
    Make the folder for the logs of this run, and see that something can be written there.

    :raises UsageError: it can't
    """
    chosen = spec.logs.directory or f"{os.environ.get('TMPDIR') or '/tmp'}/lattice-{user_name()}"
    folder = Path(chosen).absolute() / spec.run_id.replace("/", "%2F")
    probe = folder / f".probe-{os.urandom(8).hex()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            probe.write_bytes(bytes(4096))
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write logs to {folder}: {error.strerror}. Free some space there, or choose another folder with "
            "--log_dir (LATTICE_LOG_DIR)."
        ) from error
    return folder


def user_name() -> str:
    """Name who runs this agent; a container may run as a number that has no name."""
    known = os.environ.get("LOGNAME") or os.environ.get("USER")
    if known:
        return known.replace("/", "_")
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
