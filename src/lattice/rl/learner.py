"""
The learner: takes in what workers send, updates, publishes, evaluates, and keeps all of it through a restart.

One loop does everything, one thing after another. What it takes in, trains on and has counted goes into one checkpoint,
so that a learner which comes back from it is one that never went further.
"""

from __future__ import annotations

import os
import secrets
import statistics
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lattice.core.roles import PORT
from lattice.rl.buffers import Buffer
from lattice.rl.counters import Counters, Rewards, Window
from lattice.rl.desk import Desk, Evaluation, copied
from lattice.rl.intake import Intake
from lattice.rl.interfaces import Algorithm
from lattice.rl.keys import Keys, secret_of
from lattice.rl.pending_saves import PendingSave, PendingSaves
from lattice.rl.results import Results
from lattice.rl.saving import Saving
from lattice.rl.settings import Goal, LearnerSettings
from lattice.rl.signals import asked_to_stop
from lattice.rl.trajectory import Trajectory
from lattice.rl.transport import Listener
from lattice.worker import heartbeat, notice

IDLE = 0.05
"""seconds to wait for workers, at most, before looking at the clock"""
MANY = 64
"""messages that are taken in between two updates"""
ROOM_EVERY = 1.0
"""seconds, at least, between two checkpoints that workers ask for"""


@dataclass(frozen=True, slots=True)
class Learned:
    """What a learner has done, all its lives together."""

    reason: str
    """why it ended"""
    finished: bool
    """whether its goal is reached; false if it was asked to stop"""
    env_steps: int
    updates: int
    episodes: int
    version: int
    best: float | None
    lives: int
    stale: int
    duplicates: int
    unwritten: int
    """results that could not be written"""


class Learner:
    """Learns from what workers send."""

    def __init__(
        self, algorithm: Algorithm, buffer: Buffer, goal: Goal, settings: LearnerSettings | None = None
    ) -> None:
        """
        Prepare; nothing is opened before :meth:`run`, but the port at which workers call.

        :param algorithm: what learns
        :param buffer: a :class:`~lattice.rl.buffers.ReplayBuffer`, or an :class:`~lattice.rl.buffers.OnPolicyQueue`
        :param goal: when to end
        :param settings: how to work
        :raises UsageError: there is no key
        :raises NoPort: the port is taken
        """
        self.settings = settings or LearnerSettings()
        self.algorithm, self.buffer, self.goal = algorithm, buffer, goal
        self.counters = Counters()
        self._rewards = Rewards()
        self.intake = Intake(self.settings.staleness)
        port = self.settings.port
        if port is None:
            port = int(os.environ.get(PORT, "0"))
        self._listener = Listener(Keys.of(secret_of(self.settings.key)), self.settings.host, port)
        self.port = self._listener.port
        """where workers call"""
        self._desk = Desk(self._listener, self.intake, self._take)
        self._saving: Saving | None = None
        self._pending = PendingSaves()
        self._results = Results(None)
        self._window = Window(0.0)
        self._lived = 0.0  # seconds of earlier lives
        self._began = 0.0
        self._warned = False
        self._took = 0.0  # seconds of the last update

    def run(self) -> Learned:
        """
        Learn until the goal is reached, or a signal asks to stop.

        :return: what was done
        """
        with asked_to_stop() as stopping:
            try:
                self._open()
                reason = self._reached()
                while not reason and not stopping():
                    self._turn()
                    reason = self._reached()
                return self._end(reason)
            finally:
                if self._saving is not None:
                    self._saving.close()
                self._listener.close(linger=1.0)

    def _open(self) -> None:
        self._results = Results(self.settings.results)
        self._saving = Saving.of(self.settings)
        self._began = time.monotonic()
        restored = self._saving.restore()
        if restored is not None:
            self._restore(restored)
            self._note_commits()
        self.counters.lives += 1
        self._desk.publish(self.counters.version, self.algorithm.parameters)
        if restored is None:
            self._results.parameters(self._facts())
            self._results.epoch(0, self.algorithm.parameters())
        self._window = Window(time.monotonic())
        self._say(f"listening on port {self.port}")

    def _turn(self) -> None:
        """Take in what has come, do an update if there is one to do, and all else that is due."""
        owes = self._owes()
        if self.buffer.room < 1:
            self._desk.pause(0.0 if owes else IDLE)
        elif not (owes and self.settings.updates_per_step is not None):
            # With a fixed ratio only until an update is owed: else workers would wait long for an answer.
            enough = None if self.settings.updates_per_step is None else self._has_enough
            # Workers that send more than it can learn from get no more than half of its time.
            within = self._took if owes else IDLE
            self._desk.serve(0.0 if owes else IDLE, min(MANY, self.buffer.room), within, enough)
        else:
            self._desk.pause(0.0)  # what is owed may take minutes, and nobody could connect in them
        if self._owes():
            self._update()
        else:
            heartbeat()
        self._do_what_is_due()

    def _owes(self) -> bool:
        """Tell whether it is time for an update."""
        if not self.buffer.ready:
            return False
        if self.buffer.room < 1:
            return True  # nothing else makes room
        ratio = self.settings.updates_per_step
        return ratio is None or self.counters.updates < int(self.counters.env_steps * ratio)

    def _has_enough(self) -> bool:
        return self._owes() or bool(self._reached())

    def _update(self) -> None:
        began = time.perf_counter()
        figures = self.algorithm.update(self.buffer.batch())
        self._took = time.perf_counter() - began
        self._window.updated(self._took, figures)
        self.counters.updates += 1
        if self.counters.updates % self.settings.publish_every == 0:
            self.counters.version += 1
            self._desk.publish(self.counters.version, self.algorithm.parameters)
        heartbeat(self.counters.updates)

    def _take(self, trajectory: Trajectory) -> None:
        """Take in a trajectory that nobody has taken before."""
        counters = self.counters
        row = {"worker": trajectory.worker, "number": trajectory.number, "version": trajectory.version}
        if trajectory.evaluation is not None:
            self._judge(trajectory.evaluation, row)
            return
        self.buffer.add(trajectory)
        counters.trajectories += 1
        counters.env_steps += trajectory.steps
        self._window.took(trajectory, counters.version)
        if trajectory.episode is not None:
            counters.episodes += 1
            self._rewards.add({"kind": "training", **row, "env_steps": counters.env_steps, **trajectory.episode})

    def _judge(self, found: Mapping[str, Any], row: dict[str, Any]) -> None:
        """Take in an evaluation: if it is the best so far, its policy is written down."""
        asked = self._desk.answered(int(found["order"]))
        mean = statistics.fmean(found["rewards"])
        told = {"rewards": list(found["rewards"]), "length": statistics.fmean(found["lengths"])}
        row = {"kind": "evaluation", **row, "env_steps": self.counters.env_steps, "reward": mean, **told}
        self._rewards.add(row)
        if asked is None:
            return  # of an earlier life, or too late: whose policy it was is not known any more
        self.counters.newest = mean
        if self.counters.best is None or mean > self.counters.best:
            self.counters.best = mean
            self._results.best(mean, asked.version, asked.parameters)
        self._say(f"evaluation after {self.counters.env_steps} steps: reward {mean:.2f}, best {self.counters.best:.2f}")

    def _do_what_is_due(self) -> None:
        now, counters, settings = time.monotonic(), self.counters, self.settings
        counters.seconds = self._lived + now - self._began
        if settings.epoch_steps and counters.env_steps // settings.epoch_steps > counters.epochs:
            counters.epochs = counters.env_steps // settings.epoch_steps
            self._results.epoch(counters.epochs, self.algorithm.parameters())
        due = settings.evaluate_every and counters.env_steps - counters.evaluated_at >= settings.evaluate_every
        if due and not self._desk.judging:
            self._ask_for_evaluation()
        if now - self._window.began >= settings.metrics_every:
            self._tell(now)
        saving = self._saving
        assert saving is not None
        given = notice()
        self._note_commits()
        # While a save is under way another one would bring room no sooner.
        asked_room = self._desk.wants_room and now - saving.saved_at >= ROOM_EVERY and not saving.under_way
        if now - saving.saved_at >= settings.checkpoint_every or asked_room or (given and not self._warned):
            self._save()
        if given is not None and not self._warned:
            self._warned = True
            given.ready()

    def _ask_for_evaluation(self) -> None:
        counters, settings = self.counters, self.settings
        counters.evaluated_at = counters.env_steps
        self._desk.ask(
            Evaluation(
                secrets.randbits(48),  # no earlier life of this learner has asked by that number
                counters.version,
                copied(self.algorithm.parameters()),
                settings.evaluation_episodes,
                settings.evaluation_seed,
            )
        )

    def _tell(self, now: float) -> None:
        """Write a line of metrics."""
        counters, counts = self.counters, self.intake.counts
        row = {
            "time": round(time.time(), 3),
            "life": counters.lives,
            "seconds": round(counters.seconds, 3),
            "env_steps": counters.env_steps,
            "episodes": counters.episodes,
            "updates": counters.updates,
            "version": counters.version,
            "reward_mean": self._rewards.mean,
            "reward_evaluation": counters.newest,
            "reward_best": counters.best,
            "workers": len(self._desk.peers),
            **{verdict.value: count for verdict, count in counts.items()},
            "rejected": self._desk.rejected,
            "strangers": self._listener.refused,
            "simulator_faults": self._desk.faults(),
            **self._window.row(now, self._desk.taking),
        }
        self._results.metrics(row)
        self._window = Window(now)
        self._desk.taking = 0.0

    def _save(self) -> None:
        """Put everything into a checkpoint. What is in it counts as kept once it is committed."""
        assert self._saving is not None
        counters = self.counters
        counters.saves += 1
        heard, rows = self.intake.state(), self._rewards.state()
        state = {
            "algorithm": dict(self.algorithm.state()),
            "buffer": self.buffer.state(),
            "intake": heard,
            "counters": counters.state(),
            "rewards": {**rows, "unwritten": {**self._results.unwritten(), **self._pending.rewards()}},
        }
        if not self._saving.save(counters.saves, state, counters.newest):
            return  # workers still have what was sent since the last one
        self._rewards.rows.clear()
        self._desk.wants_room = False
        self._pending.add(PendingSave(counters.saves, heard, {f"{counters.saves:08}": rows["rows"]}))
        self._note_commits()

    def _note_commits(self) -> None:
        """Write the episodes of checkpoints that are committed by now, and tell workers what they may forget."""
        assert self._saving is not None
        if not self._pending:
            return
        committed = self._pending.take_committed(self._saving.committed)
        for save in committed:
            for number, text in save.rewards.items():
                self._results.rewards(int(number), text)
        if committed:
            self._desk.saved(committed[-1].intake)

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.algorithm.load_state(state["algorithm"])
        self.buffer.restore(state["buffer"])
        self.intake.restore(state["intake"])
        self.counters = Counters.of(state["counters"])
        self._rewards.restore(state["rewards"])
        # The learner before may have gone before these were written.
        rewards = {**state["rewards"].get("unwritten", {}), f"{self.counters.saves:08}": state["rewards"]["rows"]}
        self._pending.add(PendingSave(self.counters.saves, state["intake"], rewards))
        self._lived = self.counters.seconds
        counters = self.counters
        self._say(
            f"goes on after {counters.env_steps} steps and {counters.updates} updates, from checkpoint {counters.saves}"
        )

    def _reached(self) -> str:
        counters = self.counters
        return self.goal.reached(counters.env_steps, counters.updates, counters.seconds, counters.newest)

    def _end(self, reason: str) -> Learned:
        """Keep everything, and send the workers home if the goal is reached; else they wait for the next learner."""
        counters, counts = self.counters, self.intake.counts
        self._tell(time.monotonic())
        self._save()
        self._wait_for_commit()
        if reason and not self._pending:
            self._results.epoch(counters.epochs + 1, self.algorithm.parameters())
            self._desk.dismiss(reason)
            until = time.monotonic() + self.settings.farewell
            while self._desk.peers and time.monotonic() < until:
                self._desk.serve(IDLE, MANY)
        unwritten = self._results.close()
        self._say(f"ends: {reason or 'asked to stop'}; {counters.env_steps} steps, {counters.updates} updates")
        by_verdict = {verdict.value: count for verdict, count in counts.items()}
        return Learned(
            reason or "asked to stop",
            bool(reason),
            counters.env_steps,
            counters.updates,
            counters.episodes,
            counters.version,
            counters.best,
            counters.lives,
            by_verdict["stale"],
            by_verdict["duplicate"],
            unwritten,
        )

    def _wait_for_commit(self) -> None:
        """
        Wait until the last save is committed: workers that are sent home have forgotten everything.

        Nothing is taken in meanwhile, for it would be in no checkpoint.
        """
        assert self._saving is not None
        while self._pending:
            written = self._saving.wait(IDLE)
            self._note_commits()
            if written:
                break
            self._desk.pause(0.0)
            heartbeat()
        if self._pending:
            self._say("THE LAST CHECKPOINT WAS REFUSED: another learner has taken over. Workers are left to that one")

    def _facts(self) -> dict[str, Any]:
        goal = {name: value for name in Goal.__slots__ if (value := getattr(self.goal, name)) is not None}
        told = {name: getattr(self.settings, name) for name in LearnerSettings.__slots__ if name != "key"}
        return {"goal": goal, "algorithm": type(self.algorithm).__name__, **told}

    def _say(self, line: str) -> None:
        with suppress(OSError, ValueError):
            print(f"rl learner: {line}", file=sys.stderr, flush=True)
