"""Break the protocol on purpose: put a changed function in the place of the real one."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from types import ModuleType

import pytest

from lattice.core import rendezvous


@dataclass(frozen=True)
class Mutation:
    """One line of the protocol, and what it is changed to."""

    why: str
    module: ModuleType
    function: str
    line: str
    instead: str

    def apply(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Change it until the test ends."""
        original = getattr(self.module, self.function)
        source = textwrap.dedent(inspect.getsource(original))
        assert source.count(self.line) == 1, f"{self.function} has changed: {self.line!r} is not there once"
        names = dict(vars(self.module))
        exec(compile(source.replace(self.line, self.instead), f"<broken {self.function}>", "exec"), names)
        broken = names[self.function]
        # It has to see what the real one would see, later changes included.
        broken = type(original)(broken.__code__, vars(self.module), self.function, original.__defaults__)
        broken.__kwdefaults__ = original.__kwdefaults__
        monkeypatch.setattr(self.module, self.function, broken)
        rules = tuple(broken if rule is original else rule for rule in rendezvous.RULES)
        monkeypatch.setattr(rendezvous, "RULES", rules)
