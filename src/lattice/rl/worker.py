"""
A worker: collects trajectories with the newest policy, and sees to it that the learner gets each of them.

Neither a failing simulator nor a learner that is gone ends it: only the learner's goodbye, SIGTERM, or SIGINT do.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lattice.rl.interfaces import Arrays, Environment, Policy
from lattice.rl.keys import Keys, secret_of
from lattice.rl.messages import trajectory_message
from lattice.rl.outbox import Outbox
from lattice.rl.rollout import Play
from lattice.rl.settings import WorkerSettings
from lattice.rl.signals import asked_to_stop
from lattice.rl.simulator import Backoff, Simulator
from lattice.rl.trajectory import Trajectory
from lattice.rl.transport import Caller
from lattice.rl.wire import BadMessage, Message, decode, encode
from lattice.roles import peers
from lattice.worker import heartbeat

IDLE = 0.2
"""seconds after which the worker looks around, though nothing has come"""
ALIVE = 5.0
"""seconds after which a worker that has nothing to send says that it is there"""
GREETING = 1.0
"""seconds between two greetings that nobody answers"""
ANEW = 60.0
"""seconds without a word of the learner after which it is called on another line: ZeroMQ gives one up for good if who
answered there, once, was somebody else"""


@dataclass(frozen=True, slots=True)
class Worked:
    """What a worker has done."""

    reason: str
    """why it ended"""
    env_steps: int
    trajectories: int
    untaken: int
    """trajectories that the learner does not have, as far as is known"""
    faults: Mapping[str, int]
    """how often its simulator failed, by kind"""


class Worker:
    """Plays for a learner."""

    def __init__(
        self,
        environment: Callable[[], Environment],
        policy: Callable[[], Policy],
        settings: WorkerSettings | None = None,
    ) -> None:
        """
        Prepare; nothing is started before :meth:`run`.

        :param environment: makes an environment; called in the process of the simulator
        :param policy: makes a policy, whose parameters are then loaded; called there, too
        :param settings: how to work
        :raises UsageError: there is no key
        """
        self.settings = settings or WorkerSettings()
        self.name = secrets.token_hex(8)
        """the incarnation: each start of a worker is another"""
        self._caller = Caller(Keys.of(secret_of(self.settings.key)))
        seed = secrets.randbits(31) if self.settings.seed is None else self.settings.seed
        self._simulator = Simulator(
            Play(environment, policy, self.settings.segment, seed),
            self.settings.step_timeout,
            self.settings.start_timeout,
            self._say,
            Backoff(self.settings.backoff, self.settings.longest_backoff),
        )
        self._outbox: Outbox[Trajectory] = Outbox(self.settings.credit, self.settings.limit)
        self._parameters: Arrays = {}
        self._version = -1
        self._fresh = False  # whether the simulator has not got them yet
        self._order: tuple[dict[str, Any], Arrays, int] | None = None
        self._loaded = -1
        self._greeted = -1e9
        self._heard = 0.0  # moment of the learner's last word, or of a call
        self._evaluating = 0  # the simulator's process that was given an evaluation
        self._untaken, self._moved = 0, 0.0  # what the learner has not taken, and since when
        self._spoke = -1e9
        self._asked_room = False
        self._done = ""
        self._env_steps = 0

    def run(self) -> Worked:
        """
        Work until the learner says goodbye, or a signal comes.

        :return: what was done
        """
        with asked_to_stop() as stopping:
            try:
                while not self._done and not stopping():
                    self._turn(IDLE)
                if not self._done:
                    self._done = "asked to stop"
                    self._hand_over()
                self._caller.send(encode(Message("bye", {"worker": self.name})))
            finally:
                self._simulator.close()
                self._caller.close(linger=0.5)
        return Worked(
            self._done,
            self._env_steps,
            self._outbox.next_number - 1,
            self._outbox.untaken,
            dict(self._simulator.faults),
        )

    def _turn(self, patience: float, play: bool = True) -> None:
        """Do what there is to do, and wait for more."""
        heartbeat()  # also while it waits for the learner; it sees by itself whether its simulator hangs
        self._look_for_learner()
        while (frames := self._caller.receive()) is not None:
            try:
                self._hear(decode(frames))
            except BadMessage as error:
                self._say(f"the learner sent what is no message: {error}")
        if play:
            for message in self._simulator.tick():
                self._collect(message)
            if self._evaluating not in (0, self._simulator.pid):  # it failed, and the evaluation with it
                self._evaluating = 0
                self._greet()  # so the learner asks again
            self._play_on()
        self._send()
        busy = self._simulator.descriptor if play else -1
        self._caller.wait(busy, patience)

    def _look_for_learner(self) -> None:
        now = time.monotonic()
        address = self.settings.address
        if address is None:
            found = peers(self.settings.role)
            address = found[0] if found else self._caller.address  # one that is away for a while comes back there
        if address != self._caller.address or (address and not self._outbox.session and now - self._heard > ANEW):
            self._call(address, now)
        # Not the last word of the learner counts: that it is there does not mean that it got everything. Greeting one
        # that is only slow does no harm, for its answer comes after all that was sent before.
        if self._outbox.untaken != self._untaken or not self._outbox.untaken:
            self._untaken, self._moved = self._outbox.untaken, now
        if self._outbox.session and now - self._moved > self.settings.patience:
            self._moved = now
            self._greet()
        if not self._outbox.session and now - self._greeted > GREETING:
            hello = {"worker": self.name, "first": self._outbox.first_number, "full": self._outbox.full}
            hello["host"] = os.uname().nodename
            if self._caller.send(encode(Message("hello", hello))):
                self._greeted = now

    def _call(self, address: str, now: float) -> None:
        self._caller.call(address)
        self._heard = now
        self._greet()

    def _greet(self) -> None:
        """Greet the learner, at once and before anything else: it may not be the same, or not know what it knew."""
        self._outbox.lost_sight()
        self._greeted = -1e9

    def _hear(self, message: Message) -> None:
        """Hear the learner: how far it has come, and newer parameters if there are any."""
        self._heard = time.monotonic()
        session = message.text("session")
        if message.kind == "done":
            self._done = message.text("reason", 1000)
            return
        if message.kind not in ("welcome", "ack"):
            raise BadMessage(f"{message.kind!r} is no message of a learner")
        taken, kept = message.count("taken"), message.count("kept")
        if message.kind == "welcome":
            self._outbox.welcomed(session, taken, kept)
        elif not self._outbox.acknowledged(session, taken, kept) and self._outbox.session:
            self._greet()  # another life of the learner
        # A learner that was just greeted may make room before it has what is sent again: it is asked after that.
        self._asked_room = self._asked_room and self._outbox.full and message.kind != "welcome"
        if not message.arrays:
            return
        version, evaluate = message.count("version"), message.mapping("evaluate")
        if evaluate is not None:
            self._order = ({**evaluate, "episodes": int(evaluate["episodes"])}, message.arrays, version)
        self._parameters, self._version, self._fresh = message.arrays, version, True

    def _play_on(self) -> None:
        """Give the simulator its next orders, as soon as there is a policy, and room for what comes of them."""
        while self._version >= 0 and (room := self._room()) > 0:
            order, parameters, version = None, self._parameters, self._version
            if self._order is not None:
                order, parameters, version = self._order
            elif not self._fresh and self._loaded == self._simulator.pid:
                parameters = {}
            if not self._simulator.wants(parameters):
                return
            self._fresh, self._loaded, self._order = order is not None, self._simulator.pid, None
            self._simulator.go(version, parameters, room if order is None else 1, order)
            self._evaluating = self._simulator.pid if order is not None else self._evaluating

    def _room(self) -> int:
        """Tell how many trajectories the next order may bring: credit is for those that are finished."""
        outbox = self._outbox
        return min(outbox.limit - len(outbox) - self._simulator.ordered, self.settings.credit - outbox.untaken)

    def _collect(self, message: Message) -> None:
        """Take what the simulator has played; its partial episode is gone if it failed."""
        version = message.count("version")
        number, faults = self._outbox.next_number, dict(self._simulator.faults)
        if message.kind == "evaluated":
            self._evaluating = 0
            told = {name: message.fields[name] for name in ("order", "rewards", "lengths")}
            made = Trajectory(self.name, number, version, {}, 0, None, told, faults)
        else:
            steps = message.count("steps")
            self._env_steps += steps
            episode = message.mapping("episode")
            made = Trajectory(self.name, number, version, message.arrays, steps, episode, None, faults)
        self._outbox.put(made)

    def _send(self) -> None:
        for _, trajectory in self._outbox.to_send():
            if not self._caller.send(encode(trajectory_message(trajectory))):
                self._outbox.lost_sight()  # there is nobody: greet whoever comes, and send again what is missing
                break
            self._spoke = time.monotonic()
        if self._outbox.session and time.monotonic() - self._spoke > ALIVE:
            self._caller.send(encode(Message("alive", {"worker": self.name})))
            self._spoke = time.monotonic()
        if self._outbox.full and self._outbox.session and not self._asked_room:
            self._asked_room = self._caller.send(encode(Message("full", {"worker": self.name})))

    def _hand_over(self) -> None:
        """Have the learner take what is finished, for a while."""
        until = time.monotonic() + self.settings.farewell
        while self._outbox.untaken and not self._done_by_learner() and time.monotonic() < until:
            self._turn(0.05, play=False)

    def _done_by_learner(self) -> bool:
        return self._done != "asked to stop"

    def _say(self, line: str) -> None:
        with suppress(OSError, ValueError):
            print(f"rl worker {self.name}: {line}", file=sys.stderr, flush=True)
