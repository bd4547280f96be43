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

from tests.waiting import eventually

ROOT = Path(__file__).resolve().parent.parent
SCRIPTED = str(ROOT / "tests" / "workers" / "scripted.py")


def clean_environment() -> dict[str, str]:
    """Give this process's environment without anything that would configure an agent."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LATTICE_", "PET_"))}
    return {**kept, "PYTHONPATH": str(ROOT / "src")}


class AgentProcess:
    """One `python -m lattice.torch.run`, its journal and its output."""

    def __init__(
        self,
        folder: Path,
        name: str,
        arguments: Sequence[str],
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.journal = folder / f"{name}.events"
        self.output_file = folder / f"{name}.output"
        command = [*prefix, sys.executable, "-m", "lattice.torch.run", "--events", str(self.journal), *arguments]
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

    def worlds(self) -> list[int]:
        """Give the world size of every round that was started here."""
        return [line["world"] for line in self.events("round started")]

    def signal(self, number: int) -> None:
        """Send a signal to the agent alone."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: only its lease can tell."""
        self.signal(signal.SIGKILL)
        self.process.wait(30)

    def wait(self, within: float = 60.0) -> int:
        """Wait for the agent's end."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"agent {self.name} still runs; its output:\n{self.output()}") from None

    def close(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
        self.process.wait(30)


class Cluster:
    """Agents of one run, one folder, and the workers' own words about themselves."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.folder = folder
        self.options = list(options)
        self.said = folder / "said"
        self.said.mkdir()
        self.agents: list[AgentProcess] = []

    def agent(
        self,
        *options: str,
        entry: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> AgentProcess:
        """Start one more agent; by default with obedient workers."""
        arguments = [*self.options, "--log_dir", str(self.folder / "logs"), *options]
        arguments += entry if entry is not None else [SCRIPTED, str(self.said)]
        agent = AgentProcess(self.folder, f"agent{len(self.agents)}", arguments, environ, prefix)
        self.agents.append(agent)
        return agent

    def workers(self, number: int | None = None) -> list[dict[str, Any]]:
        """Give what workers said of themselves, of one round or of all."""
        found = [json.loads(path.read_text()) for path in self.said.glob("[!.]*-*-*.json")]
        chosen = [facts for facts in found if number is None or int(facts["LATTICE_ROUND"]) == number]
        return sorted(chosen, key=lambda facts: (int(facts["LATTICE_ROUND"]), int(facts["LATTICE_RANK"])))

    def round_of(self, world: int, after: int = 0) -> int:
        """Wait for a round with this many workers, all started and agreeing, and give its number."""

        def complete() -> int:
            for number in sorted({int(facts["LATTICE_ROUND"]) for facts in self.workers()}, reverse=True):
                facts = self.workers(number)
                if number > after and len(facts) == world == int(facts[0]["LATTICE_WORLD_SIZE"]):
                    assert [int(worker["LATTICE_RANK"]) for worker in facts] == list(range(world))
                    assert len({worker.get("MASTER_PORT") for worker in facts}) == 1
                    assert len({worker.get("MASTER_ADDR") for worker in facts}) == 1
                    return number
            return 0

        try:
            return eventually(complete, within=60)
        except AssertionError as error:
            outputs = "\n".join(f"--- {agent.name}\n{agent.output()}" for agent in self.agents)
            raise AssertionError(f"no round of {world} workers after round {after}: {error}\n{outputs}") from None

    def tell(self, order: str, code: int = 0) -> None:
        """Tell workers to exit: order is exit, exit-RANK, exit-ROUND-RANK."""
        (self.said / f".{order}").write_text(str(code))
        (self.said / f".{order}").rename(self.said / order)

    def close(self) -> None:
        """End every agent; none of their workers may survive."""
        for agent in self.agents:
            agent.close()
        pids = [facts["pid"] for facts in self.workers()]
        eventually(lambda: not [pid for pid in pids if alive(pid)])


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
