"""Runs one agent from its specification to its end, and leaves nothing behind."""

from __future__ import annotations

import errno
import gc
import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from selectors import BaseSelector, DefaultSelector
from typing import TYPE_CHECKING

from lattice.agent.accounts import Accounts
from lattice.agent.group import Companion, WorkerGroup
from lattice.agent.inbox import Inbox
from lattice.agent.loop import Loop, Signals
from lattice.agent.output import Output
from lattice.agent.serving import RunStore, open_run_store
from lattice.agent.session import Session
from lattice.agent.starting import Starter
from lattice.core.events import Finish
from lattice.core.keyspace import Transaction
from lattice.core.member import greet
from lattice.core.records import NodeRecord
from lattice.core.rendezvous import begin
from lattice.core.roles import late_variables
from lattice.core.spec import AgentSpec
from lattice.core.state import Identity, lease_of
from lattice.environments import environment
from lattice.errors import UsageError
from lattice.process.spawning import Guard
from lattice.telemetry.console import Console
from lattice.telemetry.journal import Journal
from lattice.telemetry.report import report

if TYPE_CHECKING:
    from lattice.agent.job import JobPart


@dataclass(slots=True)
class Surroundings:
    """What an agent is run in; whoever made it closes it, and may run another agent in it."""

    guard: Guard
    console: Console
    selector: BaseSelector
    starter: Starter
    served: RunStore
    folder: Path
    """for the logs of the workers"""
    incarnation: str
    companion: Companion = field(default_factory=Companion)
    began: Callable[[Loop], None] = lambda loop: None
    """called with the loop before it runs"""


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
        console = Console()
        stack.callback(console.close)
        for line in (*spec.notices, *framework.notices(spec.workers, os.environ)):
            console.say(line)
        console.say(f"logs of the workers: {folder}")
        served = open_run_store(spec)
        stack.callback(served.close)
        late = late_variables(spec.job.roles) if spec.job.id else frozenset()
        starter = Starter(spec, framework, incarnation, cwd, guard, selector, console.say, late)
        stack.callback(starter.close)
        around = Surroundings(guard, console, selector, starter, served, folder, incarnation)
        return supervise(spec, around, journal).status


def supervise(spec: AgentSpec, around: Surroundings, journal: Journal) -> Finish:
    """
    Run an agent in given surroundings.

    :param spec: what it shall do
    :param around: what it does it with
    :param journal: where it writes down what happens
    :return: how it ended
    """
    with ExitStack() as stack:
        inbox = Inbox()
        stack.callback(inbox.close)
        output = Output(spec.logs, around.console)
        stack.callback(output.close)
        framework = environment(spec.framework)
        accounts = Accounts(journal, around.console.say)
        part = _part_of_job(spec, around, inbox)
        if part is not None:
            stack.callback(part.close)
        group = WorkerGroup(
            spec,
            framework,
            around.folder,
            around.starter,
            output,
            accounts,
            journal,
            around.selector,
            inbox.put,
            around.console.say,
            part.directory if part is not None else around.companion,
        )
        stack.callback(group.close)
        me = Identity(
            run_id=spec.run_id,
            incarnation=around.incarnation,
            host=socket.gethostname(),
            address=spec.local_addr,
            workers=spec.workers,
            role=spec.role,
            rank=spec.node_rank,
            whole_roster=framework.whole_roster(),
        )

        def greeting(lease: int) -> tuple[NodeRecord, Transaction]:
            address = spec.local_addr or around.served.address()
            return greet(replace(me, address=address), spec.policy, group.ports, lease)

        session = Session(around.served.store, me.keys, spec.policy.lease_ttl, inbox.put, greeting)
        state = begin(me, spec.policy, group.ports, time.monotonic())
        loop = Loop(
            spec,
            state,
            inbox,
            session,
            around.served,
            group,
            accounts,
            around.starter,
            around.guard,
            around.console,
            journal,
            around.selector,
        )
        signals = Signals(spec.signals, loop, around.selector)
        stack.callback(signals.close)
        if not gc.isenabled():
            # What is loaded by now stays to the end: looked through again and again, at the exit too, it costs more
            # than the whole agent does otherwise.
            gc.freeze()
            gc.enable()
        journal.write("agent started", host=me.host, address=me.address, workers=me.workers, command=spec.command.argv)
        session.start()
        if part is not None:
            part.start()
        around.starter.warm_up()
        around.began(loop)
        finish = loop.run()
        output.close()  # what the workers wrote comes before our last words, which say why the run ended
        accounts.close(group.steps)
        finish = group.keeper.conclude(finish, loop)
        if part is not None:
            finish = part.conclude(finish)
        text = farewell(spec, finish, session)
        if text:
            around.console.say(text, routine=True)
        journal.write(finish.event, status=finish.status, reason=text)
        around.served.linger(me.keys.nodes, around.incarnation)
        if part is not None:
            part.leave(finish, loop)
        session.close()
        return finish


def _part_of_job(spec: AgentSpec, around: Surroundings, inbox: Inbox) -> JobPart | None:
    if not spec.job.id:
        return None
    from lattice.agent.job import JobPart  # few runs are a part of a job: the others need not load it

    return JobPart(spec, around.served, around.incarnation, inbox.put, around.console.say)


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
        remedy = "Free some space there, or choose" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Choose"
        raise UsageError(
            f"cannot write logs to {folder}: {error.strerror}. {remedy} another folder with --log_dir "
            "(LATTICE_LOG_DIR)."
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
