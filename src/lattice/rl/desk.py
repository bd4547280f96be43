"""
Who works for a learner, and what each of them is told: the learner's side of all conversations.

It takes in what comes (:mod:`lattice.rl.intake` decides what becomes of it) and answers at once. Parameters are
written once for each version, and sent to a worker only if it has older ones.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lattice.rl.intake import Intake, Verdict
from lattice.rl.interfaces import Arrays
from lattice.rl.messages import read_trajectory
from lattice.rl.trajectory import Trajectory
from lattice.rl.transport import Listener
from lattice.rl.wire import BadMessage, Frame, Message, decode, encode

SILENT = 30.0
"""seconds without a word after which a worker is gone; if it is not, it is known again by its next"""
LONGEST_EVALUATION = 600.0
"""seconds after which somebody else is asked"""
FEW = 8
"""messages that are taken from ZeroMQ at once"""
LARGE_INTAKE = 1 << 26
"""bytes after which no further message is taken in before the next update"""


@dataclass(slots=True)
class Peer:
    """A worker as the learner knows it."""

    line: bytes
    """by which ZeroMQ reaches it"""
    host: str = ""
    version: int = -1
    """the newest that it was sent"""
    faults: dict[str, int] = field(default_factory=dict)
    """how often its simulator has failed"""
    heard: float = 0.0
    """moment of its last word"""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An evaluation that was asked for, with the policy that it is of."""

    order: int
    version: int
    parameters: Arrays
    episodes: int
    seed: int


class Desk:
    """Talks to all workers."""

    def __init__(self, listener: Listener, intake: Intake, take: Callable[[Trajectory], None]) -> None:
        """
        Begin to talk.

        :param listener: where workers call
        :param intake: decides what to take
        :param take: takes a trajectory in; a ValueError means that it is unfit
        """
        self._listener, self.intake, self._take = listener, intake, take
        self.session = secrets.token_hex(8)
        """another one after each start of the learner"""
        self.peers: dict[str, Peer] = {}
        self.rejected = 0
        """messages that were none"""
        self.wants_room = False
        """a worker waits for a checkpoint, and none was begun since it said so"""
        self.taking = 0.0
        """seconds in which messages were read, judged and answered"""
        self.version = 0
        self.ended = ""
        """why all workers may go; empty while they may not"""
        self._parameters: Callable[[], Arrays] = dict
        self._written: tuple[int, list[Frame]] | None = None
        self._evaluation: Evaluation | None = None
        self._judge_name = ""  # who was asked for it
        self._judge_until = 0.0
        self._complained: set[str] = set()
        self._due: dict[str, str] = {}  # who is answered next, and how

    def publish(self, version: int, parameters: Callable[[], Arrays]) -> None:
        """
        Have workers act with newer parameters.

        :param parameters: gives them; called only if somebody wants them
        """
        self.version, self._parameters = version, parameters

    def ask(self, evaluation: Evaluation) -> None:
        """Have the next worker that is heard of evaluate a policy; an earlier wish is forgotten."""
        self._evaluation, self._judge_name = evaluation, ""

    @property
    def judging(self) -> bool:
        """Tell whether an evaluation is under way, by somebody who is there and has not taken too long."""
        if self._evaluation is None:
            return False
        return not self._judge_name or (self._judge_name in self.peers and time.monotonic() < self._judge_until)

    def answered(self, order: int) -> Evaluation | None:
        """Give the evaluation that was asked for by a number, if it still matters."""
        asked = self._evaluation
        if asked is None or asked.order != order:
            return None
        self._evaluation = None
        return asked

    def serve(self, timeout: float, most: int, within: float = 1.0, enough: Callable[[], bool] | None = None) -> int:
        """
        Take in what workers sent, and answer.

        :param timeout: seconds to wait if there is nothing
        :param most: messages, at most
        :param within: seconds after which no more are taken in
        :param enough: asked after each message whether no more should be
        :return: how many came
        """
        count, began = 0, 0.0
        self._due.clear()
        while count < most:
            few = 1 if enough is not None else min(FEW, most - count)
            came = self._listener.receive(0.0 if count else timeout, few, LARGE_INTAKE)
            began = began or time.perf_counter()
            for line, frames in came:
                try:
                    self._hear(line, decode(frames))
                except BadMessage as error:
                    self.rejected += 1
                    self._complain(f"a message was refused: {error}")
            count += len(came)
            if not came or time.perf_counter() - began > within or (enough is not None and enough()):
                break
        for name, kind in self._due.items():  # one answer for all that came of one worker
            if (peer := self.peers.get(name)) is not None:
                self._answer(name, peer, kind)
        self.taking += time.perf_counter() - began
        if not count:  # nothing waits to be read: who has not been heard has said nothing
            self._forget_silent()
        return count

    def pause(self, timeout: float) -> None:
        """Take nothing in for a while: what workers send waits with them."""
        self._listener.wait(timeout)

    def saved(self, state: Mapping[str, Any]) -> None:
        """Note that a state of the intake is in a committed checkpoint, and tell all workers what they may forget."""
        self.intake.saved(state)
        for name, peer in self.peers.items():
            self._answer(name, peer, "ack")

    def dismiss(self, reason: str) -> None:
        """Tell all workers that they may go, and so everyone who calls from now on."""
        self.ended = reason
        for name, peer in self.peers.items():
            self._answer(name, peer, "ack")

    def faults(self) -> dict[str, int]:
        """Count the failures of all simulators that are there."""
        found: dict[str, int] = {}
        for peer in self.peers.values():
            for name, count in peer.faults.items():
                found[name] = found.get(name, 0) + count
        return found

    def _forget_silent(self) -> None:
        before = time.monotonic() - SILENT
        for name in [name for name, peer in self.peers.items() if peer.heard < before]:
            del self.peers[name]

    def _hear(self, line: bytes, message: Message) -> None:
        name = message.text("worker")
        if not name:
            raise BadMessage("a worker without a name")
        peer = self.peers.get(name)
        if peer is None or peer.line != line:
            peer = self.peers[name] = Peer(line)
            self._ask_again(name)
        peer.heard = time.monotonic()
        match message.kind:
            case "hello":
                peer.host, peer.version = message.text("host"), -1
                self.intake.greet(name, max(message.count("first"), 1))
                self._ask_again(name)
                self.wants_room = self.wants_room or message.fields.get("full") is True
                self._due[name] = "welcome"
            case "trajectory":
                self._judge(name, peer, message)
                self._due.setdefault(name, "ack")
            case "alive":
                self._due.setdefault(name, "ack")
            case "full":
                self.wants_room = True
            case "bye":
                del self.peers[name]
            case other:
                raise BadMessage(f"{other[:40]!r} is no message of a worker")

    def _ask_again(self, name: str) -> None:
        """Have an evaluation done by whoever is heard next, if it was asked of a worker that may not know of it."""
        if name == self._judge_name:
            self._judge_name = ""

    def _judge(self, name: str, peer: Peer, message: Message) -> None:
        number = message.count("number")
        if number < 1:
            raise BadMessage("a trajectory without a number")
        if self.ended:
            return  # nobody will train on it; the answer is goodbye
        try:
            trajectory = read_trajectory(message)
            steps = trajectory.evaluation is None
            verdict = self.intake.hear(name, number, trajectory.version, self.version, steps)
            if verdict is Verdict.TAKEN:
                peer.faults = dict(trajectory.faults)
                self._take(trajectory)
        except ValueError as error:
            # It is of a worker of ours, which must not send it for ever.
            if (name, number) in self.intake.ledger:
                self.intake.counts[Verdict.TAKEN] -= 1
                self.intake.counts[Verdict.UNFIT] += 1
            else:
                self.intake.refuse(name, number)
            self._complain(f"trajectory {number} of worker {name} cannot be learned from: {error}")

    def _answer(self, name: str, peer: Peer, kind: str) -> None:
        if self.ended:
            self._listener.send(peer.line, encode(Message("done", {"session": self.session, "reason": self.ended})))
            return
        taken, kept = self.intake.marks(name)
        fields: dict[str, Any] = {"session": self.session, "taken": taken, "kept": kept, "version": self.version}
        if (asked := self._evaluation) is not None and not self._judge_name and kind == "ack":
            fields |= {"version": asked.version}
            fields["evaluate"] = {"order": asked.order, "episodes": asked.episodes, "seed": asked.seed}
            if self._listener.send(peer.line, encode(Message(kind, fields, asked.parameters))):
                self._judge_name, self._judge_until = name, time.monotonic() + LONGEST_EVALUATION
                peer.version = asked.version
        elif peer.version < self.version:
            if self._send_with_parameters(peer, kind, fields):
                peer.version = self.version
        else:
            self._listener.send(peer.line, encode(Message(kind, fields)))

    def _send_with_parameters(self, peer: Peer, kind: str, fields: dict[str, Any]) -> bool:
        if self._written is None or self._written[0] != self.version:
            self._written = (self.version, encode(Message("", {}, copied(self._parameters()))))
        listed, *frames = self._written[1]
        # The header of this answer, with the list of arrays that was written before.
        header = encode(Message(kind, fields))[0]
        whole = bytes(header)[: -len(b'"arrays":[]}')] + bytes(listed)[bytes(listed).index(b'"arrays":') :]
        return self._listener.send(peer.line, [whole, *frames])

    def _complain(self, line: str) -> None:
        """Say a thing of a kind once: whoever sends nonsense sends much of it."""
        kind = line.partition(":")[0].partition(" of worker")[0].strip("0123456789 ")
        if kind not in self._complained:
            self._complained.add(kind)
            with suppress(OSError, ValueError):
                print(f"rl learner: {line} (further ones are only counted)", file=sys.stderr, flush=True)


def copied(arrays: Arrays) -> dict[str, Any]:
    """Copy arrays, whose owner may go on to change them."""
    return {name: np.array(array) for name, array in arrays.items()}
