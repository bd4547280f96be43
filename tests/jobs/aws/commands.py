"""Commands of ours that talk to AWS, started from a process that has loaded boto3 already: see :mod:`.warm`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.jobs import commands as warm_commands
from tests.jobs.places import Said


class Commands:
    """Runs commands, one after another."""

    def __init__(self, commands: warm_commands.Commands) -> None:
        self._commands = commands
        self.calls: list[str] = []
        """to AWS that the last command made"""

    def run(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        folder: Path,
        die: int = -1,
        answers: Sequence[Mapping[str, object]] = (),
    ) -> Said:
        """Run a command to its end; the rest is for :mod:`tests.jobs.aws.warm`."""
        calls = folder / ".calls"
        said = self._commands.run(words, environ, folder, die=die, answers=answers, calls=str(calls))
        self.calls = calls.read_text().splitlines()
        return said


@contextmanager
def commands() -> Iterator[Commands]:
    """Have the process for the length of a block."""
    with warm_commands.commands("tests.jobs.aws.warm") as warm:
        yield Commands(warm)
