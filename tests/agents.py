"""Real agents as processes, with workers that obey the test: what the fault tests are made of."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from lattice.process.guard import is_marked, read_processes
from tests.waiting import VARIABLE, eventually, patience

ROOT = Path(__file__).resolve().parent.parent
SCRIPTED = str(ROOT / "tests" / "workers" / "scripted.py")
PROGRAM = ("-m", "lattice.torch.run")
TAG = "STARTED_BY_TEST"
"""a variable that agents hand down to whatever descends from them, so that the test finds all of it"""


def clean_environment() -> dict[str, str]:
    """Give this process's environment without anything that would configure an agent."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == VARIABLE or not name.startswith(("LATTICE_", "PET_"))
    }
    # Warm starts have tests of their own; elsewhere every agent would import torch for nothing.
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "LATTICE_PRELOAD": "none"}


class AgentProcess:
    """One agent, its journal and its output."""

    def __init__(
        self,
        folder: Path,
        name: str,
        arguments: Sequence[str],
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.name = name
        self.journal = folder / f"{name}.events"
        self.output_file = folder / f"{name}.output"
        command = [*prefix, sys.executable, *program, "--events", str(self.journal), *arguments]
        with self.output_file.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**clean_environment(), **(environ or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Give the agent's process id."""
        return self.process.pid

    def output(self) -> str:
        """Give all that the agent and its workers wrote to the console."""
        return self.output_file.read_text(errors="replace")

    def events(self, event: str = "") -> list[dict[str, Any]]:
        """Give the journal so far, or its lines of one kind."""
        if not self.journal.exists():
            return []
        lines = [json.loads(line) for line in self.journal.read_text().splitlines() if line.endswith("}")]
        return [line for line in lines if not event or line["event"] == event]

    def started(self, number: int = 1) -> list[int]:
        """Give the pids of a round's workers; the journal names them a moment after they run."""
        pids: list[int] = eventually(
            lambda: [line["pids"] for line in self.events("workers started") if line["round"] == number]
        )[0]
        return pids

    def worlds(self) -> list[int]:
        """Give the world size of every round that was started here."""
        return [line["world"] for line in self.events("round started")]

    def signal(self, number: int) -> None:
        """Send a signal to the agent alone."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: only its lease can tell."""
        self.signal(signal.SIGKILL)
        self.process.wait(patience(30))

    def wait(self, within: float = 60.0) -> int:
        """Wait for the agent's end."""
        try:
            return self.process.wait(patience(within))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"agent {self.name} still runs; its output:\n{self.output()}") from None

    def memory(self) -> float:
        """Give the agent's resident memory in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    def descriptors(self) -> int:
        """Count the agent's open descriptors."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def guard(self) -> int:
        """Find the agent's guard process, 0 if there is none."""
        return next((pid for pid in children(self.pid) if f"guard.py {self.pid}" in command_of(pid)), 0)

    def close(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
        self.process.wait(patience(30))


class Cluster:
    """Agents of one run, one folder, and the workers' own words about themselves."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.folder = folder
        self.options = list(options)
        self.said = folder / "said"
        self.said.mkdir()
        self.agents: list[AgentProcess] = []
        self._tag = uuid4().hex

    def agent(
        self,
        *options: str,
        entry: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        program: Sequence[str] = PROGRAM,
    ) -> AgentProcess:
        """Start one more agent; by default with obedient workers."""
        arguments = [*self.options, "--log_dir", str(self.folder / "logs"), *options]
        arguments += entry if entry is not None else [SCRIPTED, str(self.said)]
        tagged = {**(environ or {}), TAG: self._tag}
        agent = AgentProcess(self.folder, f"agent{len(self.agents)}", arguments, tagged, prefix, program)
        self.agents.append(agent)
        return agent

    def script(self, text: str, name: str = "worker.py") -> str:
        """Write a worker's program and give its path."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def log(self, number: int, rank: int, stream: str = "stdout") -> str:
        """Give what is in a worker's log file."""
        (path,) = (self.folder / "logs").glob(f"*/round_{number}/{rank}/{stream}.log")
        return path.read_text(errors="replace")

    def descendants(self) -> list[int]:
        """Find every running process that came from one of the agents, themselves included, wherever it went."""
        marks = {f"{TAG}={self._tag}".encode()}
        guards = {f"guard.py {agent.pid}" for agent in self.agents}
        return [
            process.pid
            for process in read_processes()
            if not process.ended
            and (is_marked(process.pid, marks) or any(guard in command_of(process.pid) for guard in guards))
        ]

    def pids(self, number: int) -> list[int]:
        """Give the workers' process ids of a round, by rank."""
        return [int(facts["pid"]) for facts in self.workers(number)]

    def outputs(self) -> str:
        """Give what all agents wrote, for a message."""
        return "\n".join(f"--- {agent.name}\n{agent.output()}" for agent in self.agents)

    def rounds(self) -> list[int]:
        """Give the numbers of the rounds in which a worker has said who it is."""
        return sorted({int(path.name.split("-")[1]) for path in self.said.glob("[!.]*-*-*.json")})

    def workers(self, number: int | None = None) -> list[dict[str, Any]]:
        """Give what workers said of themselves, of one round or of all."""
        named = "[!.]*-*-*.json" if number is None else f"[!.]*-{number}-*.json"
        found = [json.loads(path.read_text()) for path in self.said.glob(named)]
        return sorted(found, key=lambda facts: (int(facts["LATTICE_ROUND"]), int(facts["LATTICE_RANK"])))

    def round_of(self, world: int, after: int = 0) -> int:
        """Wait for a round with this many workers, all started and agreeing, and give its number."""

        def complete() -> int:
            for number in reversed([number for number in self.rounds() if number > after]):
                facts = self.workers(number)
                if len(facts) == world == int(facts[0]["LATTICE_WORLD_SIZE"]):
                    assert [int(worker["LATTICE_RANK"]) for worker in facts] == list(range(world))
                    return number
            return 0

        try:
            number = eventually(complete, within=60)
        except AssertionError as error:
            raise AssertionError(
                f"no round of {world} workers after round {after}: {error}\n{self.outputs()}"
            ) from None
        self.agree(number)
        return number

    def agree(self, number: int) -> None:
        """See that no two workers of a round differ in what must be the same for all, or share what must not."""
        facts = self.workers(number)
        for name in ("LATTICE_WORLD_SIZE", "LATTICE_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"):
            said = {worker.get(name) for worker in facts}
            assert len(said) == 1, f"round {number}: workers disagree on {name}: {said}\n{self.outputs()}"
        ranks = [worker["LATTICE_RANK"] for worker in facts]
        assert len(set(ranks)) == len(ranks), f"round {number}: a rank is held twice: {ranks}\n{self.outputs()}"

    def left_from_before(self, number: int) -> list[int]:
        """Find running processes of rounds before this one."""
        before = {f"LATTICE_ROUND={earlier}".encode() for earlier in range(number)}
        return [pid for pid in self.descendants() if is_marked(pid, before)]

    def tell(self, order: str, code: int = 0) -> None:
        """Tell workers to exit: order is exit, exit-RANK, exit-ROUND-RANK."""
        (self.said / f".{order}").write_text(str(code))
        (self.said / f".{order}").rename(self.said / order)

    def close(self) -> None:
        """End every agent; nothing that descended from them may survive."""
        for agent in self.agents:
            agent.close()

        def nothing_left() -> bool:
            left = {pid: command_of(pid) for pid in self.descendants()}
            assert not left, f"left behind: {left}"
            return True

        eventually(nothing_left)


def command_of(pid: int) -> str:
    """Give the command line of a process, empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def processor_time(pid: int) -> float:
    """Give the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Find the running children of a process."""
    return [process.pid for process in read_processes() if process.parent == pid and not process.ended]


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def cluster(folder: Path, *options: str) -> Iterator[Cluster]:
    """Give a cluster whose agents are ended with the test."""
    made = Cluster(folder, options)
    try:
        yield made
    finally:
        made.close()
