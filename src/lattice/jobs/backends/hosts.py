"""Jobs on hosts that are there already: this machine, or others over SSH. Each node is an agent on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from lattice.errors import LatticeError, UsageError
from lattice.jobs import archive, orders
from lattice.jobs.archive import Archive
from lattice.jobs.backends import Save, Say, Step, Wanted
from lattice.jobs.calls import Caller, HostFailed, together
from lattice.jobs.index import Record
from lattice.jobs.job import Job, Role
from lattice.jobs.merging import merged
from lattice.jobs.orders import Meeting
from lattice.jobs.progress import RUN_ENDED, RUNNING, UNREACHABLE, NodeView
from lattice.jobs.roles import grace_of, scripts, seats_of, title
from lattice.launching.hosts import HostSpec
from lattice.launching.sync.manifest import shown


class HostsBackend:
    """
    Nodes spread over a list of hosts, in turn.

    :param kind: name of the transport that reaches them
    :param hosts: gives the list for a job
    :param caller: gives the way to ask a job's hosts
    """

    def __init__(self, kind: str, hosts: Callable[[Job], Sequence[str]], caller: Callable[[Job], Caller]) -> None:
        self._kind = kind
        self._hosts = hosts
        self._caller = caller

    def plan(self, job: Job) -> tuple[Step, ...]:
        """Tell what a submission would make; pure."""
        hosts = self._assigned(job, range(job.size.maximum))
        meeting = Meeting(f"{hosts[0].given}:PORT", certificate="made for the job")
        steps = []
        for host in hosts.values():
            told = orders.order(job, f"{job.name}-ID", host.index, meeting)
            steps.append(Step(f"{title(job, host.index)} on {host.given}", orders.shown(told)))
        return tuple(steps)

    def submit(self, record: Record, save: Save, say: Say) -> Record:
        """Make it, or make what is missing."""
        record = replace(record, hosts={i: one.given for i, one in self._everybody(record.job).items()})
        record = self._meet(record, say)
        save(record)
        code = record.job.code
        with archive.packed(code, say, scripts(record.job)) if code.upload else nullcontext() as packed:
            self._create(record, packed, say)
        self._start(record, sorted(record.hosts), say)
        return record

    def look(self, record: Record) -> list[NodeView]:
        """Tell how its nodes stand."""
        answers = self._ask_all(record, record.hosts, {"do": "look"})
        return [self._view(index, record.hosts[index], answer) for index, answer in answers.items()]

    def logs(self, record: Record, wanted: Wanted, *, follow: bool) -> Iterator[tuple[int, bytes]]:
        """Give what was written, in pieces of whole lines, and which node's it is."""
        caller = self._caller(record.job)

        def read(index: int) -> Iterator[bytes]:
            request = self._request(record, index, {"do": "logs", "rank": wanted.rank, "follow": follow})
            return caller.read(self._host(record, index), request)

        return merged({index: partial(read, index) for index in wanted.of(record.hosts)}, caller.stop)

    def scale(self, record: Record, role: Role, nodes: int, save: Save, say: Say) -> Record:
        """Have another number of nodes; those with the highest numbers leave, those that are missing come."""
        found = self.look(record)
        living = {view.index for view in found if view.state == RUNNING}
        done = {view.index for view in found if view.end == RUN_ENDED and view.status == 0}
        seats = seats_of(record.job, role)
        leaving = [seat.index for seat in seats if seat.number >= nodes and seat.index in living]
        coming = [seat.index for seat in seats if seat.number < nodes and seat.index not in living | done]
        if leaving:
            say(f"{_nodes(leaving)} leave" if len(leaving) > 1 else f"{_nodes(leaving)} leaves")
            self._check(self._ask_all(record, leaving, {"do": "stop", "grace": grace_of(role)}))
        if coming:
            self._start(record, coming, say, again=True)
        return record

    def kill(self, record: Record, grace: float, say: Say) -> list[NodeView]:
        """End it: workers get their time to save."""
        answers = self._ask_all(record, record.hosts, {"do": "stop", "grace": grace})
        return [self._view(index, record.hosts[index], answer) for index, answer in answers.items()]

    def remove(self, record: Record, say: Say, *, anew: bool = False) -> list[str]:
        """Delete all that it made, and tell what could not be deleted."""
        answers = self._ask_all(record, record.hosts, {"do": "remove"})
        return [str(answer) for answer in answers.values() if isinstance(answer, LatticeError)]

    def _meet(self, record: Record, say: Say) -> Record:
        """Decide once where the nodes meet; all are asked, so that nothing is made if one cannot be reached."""
        if "password" in record.facts:
            return record
        answers = self._ask_all(record, record.hosts, {"do": "reserve"})
        self._check(answers)
        address, port = answers[0]["address"], answers[0]["port"]
        return record.with_facts(
            **orders.new_meeting(f"[{address}]:{port}" if ":" in address else f"{address}:{port}", say)
        )

    def _start(self, record: Record, indices: Sequence[int], say: Say, *, again: bool = False) -> None:
        say(f"starting {_nodes(indices)}")
        first = [index for index in indices if index == 0]  # the others meet at its store
        for some in (first, [index for index in indices if index != 0]):
            self._check(self._ask_all(record, some, {"do": "start", "again": again}))

    def _create(self, record: Record, code: Archive | None, say: Say) -> None:
        indices = sorted(record.hosts)
        each = " each" if len(indices) > 1 else ""
        say(f"preparing {_nodes(indices)}" + (f", {shown(code.size)} of code{each}" if code is not None else ""))
        if code is not None:
            code = replace(code, heard=archive.Sending(code.size * len(indices), say).sent)
        caller = self._caller(record.job)
        meeting = Meeting.known(record.facts)
        creating = []
        for index in indices:
            told = orders.order(record.job, record.submission, index, meeting)
            request = self._request(record, index, {"do": "create", "order": told})
            creating.append(partial(caller.ask, self._host(record, index), request, code))
        self._check(dict(zip(indices, together(creating), strict=True)))

    def _check(self, answers: Mapping[int, Any]) -> None:
        """Raise one error with what is wrong on all hosts."""
        failures = [answer for answer in answers.values() if isinstance(answer, LatticeError)]
        if failures:
            failed = HostFailed("\n".join(dict.fromkeys(str(failure) for failure in failures)))
            failed.exit_code = failures[0].exit_code
            raise failed

    def _ask_all(self, record: Record, indices: Sequence[int] | Mapping[int, str], request: dict[str, Any]) -> Any:
        caller = self._caller(record.job)
        asked = sorted(indices)
        calls = [partial(caller.ask, self._host(record, i), self._request(record, i, request)) for i in asked]
        return dict(zip(asked, together(calls), strict=True))

    def _view(self, index: int, host: str, answer: Any) -> NodeView:
        if isinstance(answer, LatticeError):
            return NodeView(index, host, state=UNREACHABLE, report=str(answer))
        return replace(NodeView.load(answer["view"]), host=host)

    def _request(self, record: Record, index: int, request: dict[str, Any]) -> dict[str, Any]:
        return {"submission": record.submission, "index": index, **request}

    def _host(self, record: Record, index: int) -> HostSpec:
        return HostSpec(record.hosts[index], 1, index, self._kind)

    def _everybody(self, job: Job) -> dict[int, HostSpec]:
        return self._assigned(job, range(job.size.maximum))

    def _assigned(self, job: Job, indices: Sequence[int]) -> dict[int, HostSpec]:
        hosts = self._hosts(job)
        if not hosts:
            raise UsageError("no host is given: --hosts node1,node2")
        return {index: HostSpec(hosts[index % len(hosts)], 1, index, self._kind) for index in indices}


def _nodes(indices: Sequence[int]) -> str:
    return f"node {indices[0]}" if len(indices) == 1 else f"{len(indices)} nodes"
