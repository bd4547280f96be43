"""What agents and their helpers hold, looked at in every round: as many things as before, and no more memory."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lattice.process.guard import Process, read_processes
from tests.agents import AgentProcess, Cluster
from tests.waiting import eventually

PER_WAITING_WORKER = 2
"""descriptors that a worker forked ahead costs its agent: the line to it and its pidfd"""
PARTS = 5
ENOUGH = 100
"""rounds from which on a slope means something: a page more or less is 4 KB"""
MOST_GROWTH = 1.5
"""KB a round. Measured over 200 rounds: guard and zygote exactly 0, agents 0.2 to 0.5 (fragments, and garbage that
waits for its collection). A store that kept its history cost 3.3; a list of 500 numbers kept by mistake costs 8."""
MOST_STEP = 1024
"""KB that a process may grow in total over few rounds"""
STEADY = 10
"""times in a row that the first count must give the same"""
SETTLING = 3
"""rounds after which nothing is expected to be opened for the first time"""


@dataclass(frozen=True)
class Household:
    """The processes of one agent in one round."""

    agent: int
    guard: int
    zygote: int
    """0 if there is none"""
    workers: tuple[int, ...]
    waiting: tuple[int, ...]
    """forked ahead for a round to come"""
    ended: tuple[int, ...]
    """nobody took their exit status"""

    @property
    def lasting(self) -> dict[str, int]:
        """Name the processes that are the same in all rounds."""
        named = {"agent": self.agent, "guard": self.guard, "zygote": self.zygote}
        return {name: pid for name, pid in named.items() if pid}


@dataclass
class Footprint:
    """What one agent held, round by round."""

    job: Cluster
    agent: AgentProcess
    warm: bool
    """whether the agent has a zygote"""
    counted: dict[str, int] | None = None
    """once it must not change any more"""
    rounds: int = 0
    memory: dict[str, list[int]] = field(default_factory=dict)
    """KB of memory that is no file's, of each process that lasts"""

    def look(self, workers: Sequence[int]) -> None:
        """
        Look while the workers of a round run, and fail if there is more or less of anything than in the rounds before.

        :param workers: all workers of the round, on whatever node
        """
        self.rounds += 1
        if self.rounds == SETTLING:
            self.counted = self._settled(workers)
        elif self.rounds > SETTLING:
            eventually(lambda: self._unchanged(workers), within=10)
        for name, pid in household(self.agent, self.warm, workers).lasting.items():
            self.memory.setdefault(name, []).append(anonymous(pid))

    def grown(self) -> str:
        """
        Fail if the memory of any process grows; for the end.

        :return: how much each one grew, in words
        """
        said = []
        for name, samples in self.memory.items():
            step = max(samples[SETTLING:], default=0) - samples[min(SETTLING, len(samples) - 1)]
            slope = growth(samples) if len(samples) >= ENOUGH else 0.0
            assert slope < MOST_GROWTH, f"{name} of {self.agent.name} grows by {slope:.2f} KB a round: {samples}"
            assert step < max(MOST_STEP, MOST_GROWTH * len(samples)), f"{name} of {self.agent.name}: {samples}"
            said.append(f"{name} {samples[-1] - samples[0]:+d} KB ({slope:+.2f} a round)")
        return ", ".join(said)

    def _settled(self, workers: Sequence[int]) -> dict[str, int]:
        """Count until it gives the same again and again: somebody may be on the way into life, or out of it."""
        seen: list[dict[str, int]] = []

        def same() -> bool:
            seen.append(self._count(workers))
            return len(seen) >= STEADY and all(one == seen[-1] for one in seen[-STEADY:])

        eventually(same)
        return seen[-1]

    def _unchanged(self, workers: Sequence[int]) -> bool:
        now = self._count(workers)
        assert now == self.counted, f"round {self.rounds}: {now} instead of {self.counted}\n{self._listed(workers)}"
        return True

    def _count(self, workers: Sequence[int]) -> dict[str, int]:
        """Count everything but what belongs to workers that wait: those come some time after the start of a round."""
        house = household(self.agent, self.warm, workers)
        counted = {
            "exit statuses that nobody took": len(house.ended),
            "waiting workers that no round has room for": max(0, len(house.waiting) - len(house.workers)),
        }
        for name, pid in house.lasting.items():
            waiting = PER_WAITING_WORKER * len(house.waiting) if name == "agent" else 0
            counted[f"descriptors of the {name}"] = len(descriptors(pid)) - waiting
            counted[f"threads of the {name}"] = len(list(Path(f"/proc/{pid}/task").iterdir()))
        mine = {house.agent, house.guard, house.zygote, *house.waiting, *workers}
        counted["other processes"] = len(set(self.job.descendants()) - mine - self._of_other_agents(workers))
        return counted

    def _of_other_agents(self, workers: Sequence[int]) -> set[int]:
        houses = [household(agent, self.warm, workers) for agent in self.job.agents if agent is not self.agent]
        return {pid for house in houses for pid in (*house.lasting.values(), *house.waiting)}

    def _listed(self, workers: Sequence[int]) -> str:
        house = household(self.agent, self.warm, workers)
        lines = [f"{house}"]
        for name, pid in house.lasting.items():
            lines += [f"{name}: {number} -> {target}" for number, target in sorted(descriptors(pid).items())]
        return "\n".join(lines)


def household(agent: AgentProcess, warm: bool, workers: Sequence[int]) -> Household:
    """
    Find out who is who among an agent's children.

    :param agent: the agent
    :param warm: whether it has a zygote
    :param workers: the workers of the round
    """
    children = sorted((one for one in read_processes() if one.parent == agent.pid), key=_age)
    guard = agent.guard()
    others = [child for child in children if child.pid not in (guard, *workers)]
    running = [child.pid for child in others if not child.ended]
    # The zygote is there before anybody that it forks.
    zygote = running.pop(0) if warm and running else 0
    here = tuple(child.pid for child in children if child.pid in workers)
    ended = tuple(child.pid for child in others if child.ended)
    return Household(agent.pid, guard, zygote, here, tuple(running), ended)


def _age(process: Process) -> int:
    try:
        return int(Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    except OSError:
        return 0


def descriptors(pid: int) -> dict[int, str]:
    """Name the open descriptors of a process with what they lead to."""
    found = {}
    for entry in list(Path(f"/proc/{pid}/fd").iterdir()):
        try:
            found[int(entry.name)] = str(entry.readlink())
        except OSError:
            continue
    return found


def anonymous(pid: int) -> int:
    """Give the KB of a process's memory that are no file's, heap and stacks; counted page by page, not estimated."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Anonymous:"))


def growth(samples: Sequence[int]) -> float:
    """
    Give the KB a round by which memory grows.

    The first fifth of the rounds is left out: caches fill. The rest is looked at in five parts, of which the median
    counts: a table that doubles once, or garbage that goes at once, is a step in one part; a leak is a slope in all.
    """
    rest = samples[len(samples) // PARTS :]
    length = len(rest) // PARTS
    parts = [rest[start : start + length] for start in range(0, PARTS * length, length)]
    return statistics.median(statistics.linear_regression(range(length), part).slope for part in parts)
