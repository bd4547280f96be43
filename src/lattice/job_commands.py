"""``lattice submit`` and the commands about jobs: words in, lines and an exit code out."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from lattice.errors import UsageError
from lattice.jobs import meaning, tables
from lattice.jobs import options as rows
from lattice.jobs.backends import Priced, backend
from lattice.jobs.control import Control
from lattice.jobs.desk import home
from lattice.jobs.index import Record
from lattice.jobs.job import Job
from lattice.jobs.jobfile import read
from lattice.jobs.progress import FAILED, OVER, JobView
from lattice.jobs.roles import seats
from lattice.jobs.screen import Screen
from lattice.jobs.telling import Teller
from lattice.options.help import plain_rows
from lattice.options.parsing import Dialect, HelpAsked, Parsed, VersionAsked, parse

NOT_IN_TIME = 124
"""exit code of a wait that was too short, as timeout(1) has it"""
WATCH_INTERVAL = 1.0

USAGES = {
    "submit": """\
usage: lattice submit [options] SCRIPT [-- ARGS...]
       lattice submit [options] FOLDER SCRIPT [-- ARGS...]
       lattice submit [options] --file JOB.yaml [-- ARGS...]

Starts a job that goes on by itself: each node is an agent as of lattice run,
with a copy of the script or folder as it is now. Ask about it by its name.

examples:
  lattice submit --name try --size 2 --nproc_per_node 2 train.py -- --lr 0.1
  lattice submit --name big --on ssh --hosts node1,node2 --framework pytorch \\
      --nproc_per_node gpu project train.py
  lattice status try; lattice logs -f try; lattice wait try; lattice kill try
""",
    "status": """\
usage: lattice status [NAME] [options]

Tells how a job stands, with its nodes, or how all jobs do.
""",
    "logs": """\
usage: lattice logs NAME [options]

Shows what the nodes of a job wrote.
""",
    "scale": """\
usage: lattice scale NAME NODES [--role ROLE]

Has a job, or one of its roles, run with another number of nodes, within its
--size. Nodes that were lost are started again.
""",
    "wait": """\
usage: lattice wait NAME [options]

Waits for the end of a job, and exits with its code.
""",
    "kill": """\
usage: lattice kill NAME [options]

Ends a job: SIGTERM first, so that workers can save. Its logs are kept.
""",
    "list": """\
usage: lattice list [options]

Lists all jobs of this user.
""",
    "hosts": """\
usage: lattice hosts NAME [options]

Lists the nodes of a job with their hosts.
""",
    "forget": """\
usage: lattice forget NAME [options]

Deletes all that is left of a job that has ended: logs, code, its name.
""",
}


def job_command(name: str, words: Sequence[str]) -> int:
    """
    Run one of the commands about jobs.

    :param name: of the command, one of :data:`COMMANDS`
    :param words: what follows it
    :return: the exit code
    """
    dialect, command = COMMANDS[name]
    try:
        parsed = parse(words, {}, dialect)
    except HelpAsked:
        options = f"\noptions:\n{plain_rows(dialect)}" if dialect.options else ""
        print(USAGES[name] + options, end="", flush=True)
        return 0
    except VersionAsked:
        from lattice import __version__

        print(f"lattice {__version__}", flush=True)
        return 0
    return command(parsed)


def _submit(parsed: Parsed) -> int:
    file = read(parsed[rows.FILE_]) if parsed[rows.FILE_] else None
    job = meaning.job(parsed, file)
    if parsed[rows.DRY_RUN]:
        _print_plan(job)
        return 0
    asks = not parsed[rows.YES] and sys.stdin.isatty() and sys.stderr.isatty()
    if print_quote(job) and asks and not _agreed():
        _say("nothing was submitted")
        return 1
    return submit(job, wait=parsed[rows.WAIT])


def submit(job: Job, *, wait: bool = False) -> int:
    """
    Submit a job, and say so.

    :param wait: show its logs until its end, and give its exit code
    """
    record = _control().submit(job)
    if not wait:
        _say(f"{job.name} is submitted: lattice status {job.name}, lattice logs -f {job.name}, lattice kill {job.name}")
        return 0
    return _follow(record.job.name)


def print_quote(job: Job) -> bool:
    """Say what a job will cost; tells whether it costs anything."""
    place = backend(job.place)
    if not isinstance(place, Priced):
        return False
    for line in place.quote(job):
        _say(line)
    return True


def _agreed() -> bool:
    print("lattice: submit it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _print_plan(job: Job) -> None:
    print(f"{job.name} on {job.place}: {job.size} node{'s' * (job.size.maximum > 1)}, code: {job.code}")
    for step in backend(job.place).plan(job):
        print(f"{step.what}")
        for line in step.detail:
            print(f"    {line}")
    sys.stdout.flush()


def _follow(name: str) -> int:
    control = _control()
    control.wait(name, None, only_start=True)
    record, _ = control.look(name)
    _print_logs(control.logs(name, follow=True), record.job, several=len(record.hosts) > 1)
    view = control.wait(name, None)
    return view.status or 0


def _status(parsed: Parsed) -> int:
    if len(parsed.entry) > 1:
        raise UsageError(f"lattice status takes one name, not {len(parsed.entry)}")
    name = parsed.entry[0] if parsed.entry else ""
    control = _control()
    screen = None if parsed[rows.JSON] else Screen(sys.stdout)
    found: list[tuple[Record, JobView]] = []
    try:
        while True:
            found = [control.look(name)] if name else control.look_at_all()
            if screen is None:
                shown = [tables.as_json(record, view) for record, view in found]
                print(json.dumps(shown[0] if name else shown, indent=2), flush=True)
            elif found:
                screen.show([tables.jobs(found, tables.now()), *([tables.nodes(found[0][1].nodes)] if name else [])])
            if not parsed[rows.WATCH] or all(view.state in OVER for _, view in found):
                break
            time.sleep(WATCH_INTERVAL)
    finally:
        if screen is not None:
            screen.leave()
    if screen is not None and not found:
        print("no jobs yet: lattice submit --name my-job train.py", flush=True)
    if screen is not None and name:
        _, view = found[0]
        reports = [node.report for node in view.nodes if view.state == FAILED and node.status and node.report]
        print("".join(f"\n{report}\n" for report in reports[:1]), end="", flush=True)
    return 0


def _logs(parsed: Parsed) -> int:
    name = _name(parsed)
    rank = parsed[rows.RANK] if parsed.has(rows.RANK) else None
    pieces = _control().logs(
        name, rank=rank, role=parsed[rows.ROLE], container=parsed[rows.CONTAINER], follow=parsed[rows.FOLLOW]
    )
    record, _ = _control().look(name)
    several = len(record.hosts) > 1 and (rank is None or len(record.job.roles) > 1)
    if not _print_logs(pieces, record.job, several=several) and rank is not None:
        raise UsageError(f"rank {rank} of {name} wrote nothing, or there is none; lattice hosts {name} lists the ranks")
    return 0


def _print_logs(pieces: Iterator[tuple[int, bytes]], job: Job, *, several: bool) -> bool:
    wrote = False
    roles = {seat.index: f" {seat.role.name}" for seat in seats(job)} if job.roles else {}
    for index, piece in pieces:
        prefix = f"[node {index}{roles.get(index, '')}] ".encode() if several else b""
        text = prefix + piece[:-1].replace(b"\n", b"\n" + prefix) + b"\n"
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        wrote = True
    return wrote


def _scale(parsed: Parsed) -> int:
    if len(parsed.entry) != 2 or not (parsed.entry[1].isascii() and parsed.entry[1].isdigit()):
        raise UsageError("lattice scale takes a name and a number of nodes: lattice scale my-job 4")
    _control().scale(parsed.entry[0], int(parsed.entry[1]), parsed[rows.ROLE])
    return 0


def _wait(parsed: Parsed) -> int:
    name = _name(parsed)
    try:
        view = _control().wait(name, parsed[rows.TIMEOUT] if parsed.has(rows.TIMEOUT) else None)
    except TimeoutError as error:
        _say(str(error))
        return NOT_IN_TIME
    _say(f"{name} {view.state}")
    return view.status or 0


def _kill(parsed: Parsed) -> int:
    name = _name(parsed)
    view = _control().kill(name, parsed[rows.GRACE])
    _say(f"{name} is {view.state}; its logs stay: lattice logs {name}")
    return 0


def _list(parsed: Parsed) -> int:
    if parsed.entry:
        raise UsageError(
            f"lattice list takes no argument {parsed.entry[0]!r}; lattice status {parsed.entry[0]} tells of one"
        )
    return _status(parsed_like(parsed, rows.STATUS))


def parsed_like(parsed: Parsed, dialect: Dialect) -> Parsed:
    """Take what was said as said to another command."""
    return Parsed(dialect, parsed.given, ())


def _hosts(parsed: Parsed) -> int:
    _, view = _control().look(_name(parsed))
    if parsed[rows.JSON]:
        print(json.dumps([node.dump() for node in view.nodes], indent=2), flush=True)
    else:
        print("\n".join(line.text for line in tables.nodes(view.nodes).lines()), flush=True)
    return 0


def _forget(parsed: Parsed) -> int:
    _control().forget(_name(parsed), force=parsed[rows.FORCE])
    return 0


def _name(parsed: Parsed) -> str:
    if len(parsed.entry) != 1:
        raise UsageError(f"{parsed.dialect.command} takes the name of one job")
    return parsed.entry[0]


def _control() -> Control:
    return Control(home(os.environ), _say)


_say = Teller(sys.stderr)


COMMANDS: dict[str, tuple[Dialect, Callable[[Parsed], int]]] = {
    "submit": (rows.SUBMIT, _submit),
    "status": (rows.STATUS, _status),
    "logs": (rows.LOGS, _logs),
    "scale": (rows.SCALE, _scale),
    "wait": (rows.WAIT_FOR, _wait),
    "kill": (rows.KILL, _kill),
    "list": (rows.LIST, _list),
    "hosts": (rows.HOSTS_OF, _hosts),
    "forget": (rows.FORGET, _forget),
}
