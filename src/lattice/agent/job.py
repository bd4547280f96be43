"""An agent's part in a job: what the end of its run means for the other roles, and the end of the job for its run."""

from __future__ import annotations

from collections.abc import Callable

from lattice.agent.directory import Directory
from lattice.agent.loop import Loop
from lattice.agent.serving import FAREWELL, RunStore
from lattice.core.directory import EndRecord
from lattice.core.events import Event, Finish
from lattice.core.records import OutcomeRecord
from lattice.core.spec import AgentSpec
from lattice.telemetry.report import ending

ECHO = 5.0
"""seconds, at most, in which a failed run waits to hear that the job has ended: then its failure is only the echo"""


class JobPart:
    """What one agent does for its job."""

    def __init__(
        self,
        spec: AgentSpec,
        served: RunStore,
        incarnation: str,
        put: Callable[[Event], None],
        say: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._served = served
        self._incarnation = incarnation
        self._say = say
        self.directory = Directory(spec, served, incarnation, put, say)

    def start(self) -> None:
        """Begin to take part."""
        self.directory.start()

    def conclude(self, finish: Finish) -> Finish:
        """
        Tell the other roles that the job has ended, if it has by the end of this run.

        :param finish: how this agent ends as far as its run is concerned
        :return: how it ends
        """
        directory, when = self.directory, self._spec.job.ends
        outcome = finish.outcome
        if outcome is None:
            # It was asked to leave, or the store went while its workers were stopping: nobody needs it any more.
            return finish if directory.end is None else _by(directory.end)
        if outcome.status and when != "always":
            # Workers that lose those of the primary role may fail before the word of its end has come.
            directory.heard.wait(min(self._spec.policy.lease_ttl, ECHO))
            if directory.end is not None and directory.end.run != self._spec.run_id:
                return _by(directory.end)
        if when == "always" or (when == "failure" and outcome.status):
            end = EndRecord(self._spec.role, self._spec.run_id, outcome.status, _cause(outcome))
            if not directory.tell(end, within=FAREWELL):
                self._say(f"the other roles of job {self._spec.job.id!r} could not be told: the store does not answer")
        return finish

    def leave(self, finish: Finish, loop: Loop) -> None:
        """
        Keep serving the job's store while the job goes on without this run, and then until all know of its end.

        :param finish: how this agent ends
        :param loop: hears of signals that ask it not to wait
        """
        place, told = self.directory.keys.agents, False
        if finish.event == "run ended":
            while self.directory.end is None and self._served.attended(place, self._incarnation):
                if not told:
                    told = True
                    self._say(f"serving the store on, for the other roles of job {self._spec.job.id!r}")
                if loop.listen(0.1):
                    break
        if self.directory.end is not None:
            self._served.linger(place, self._incarnation)
        self.close()

    def close(self) -> None:
        """Take no part any more."""
        self.directory.close()


def _by(end: EndRecord) -> Finish:
    return Finish(end.status, str(end), event="job ended")


def _cause(outcome: OutcomeRecord) -> str:
    """Say in a line why a run failed; nothing if it did not."""
    if outcome.succeeded:
        return ""
    first = outcome.cause
    return outcome.reason if first is None else f"rank {first.rank} on {first.host}: {ending(first)}"
