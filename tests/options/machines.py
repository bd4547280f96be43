"""A machine that says what a test wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lattice.core.spec import AgentSpec
from lattice.options.facts import Machine
from lattice.options.meaning import agent_spec
from lattice.options.parsing import RUN, TORCHRUN, parse


class Stub(Machine):
    """A machine with known devices and names."""

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        devices: Mapping[str, int] | None = None,
        hosts: Sequence[str] = (),
    ) -> None:
        super().__init__({"PATH": "/usr/bin:/bin", **(environ or {})})
        self.interpreter = "/opt/python"
        self.system, self.release = "Linux", "6.1.0-18-amd64"
        self.counted, self.hosts = devices or {}, hosts

    def devices(self, kind: str) -> int:
        return self.counted[kind]

    def owns(self, host: str) -> bool:
        return host in self.hosts

    def made_up_name(self) -> str:
        return "made-up"


def spec(
    *words: str,
    machine: Stub | None = None,
    torchrun: bool = False,
    variables: Mapping[str, str] | None = None,
    **more: str,
) -> AgentSpec:
    """Read a command line and variables as the command would, up to the specification of its agent."""
    stub = machine or Stub()
    environ = {**stub.environ, **(variables or {}), **more}
    stub.environ = environ
    return agent_spec(parse(words, environ, TORCHRUN if torchrun else RUN), stub)
