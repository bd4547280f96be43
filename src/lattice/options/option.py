"""One row of a table of options: everything that flag, variable, message, help and docs are made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)

PREFIX = "LATTICE_"
TORCHRUN_PREFIX = "PET_"


@dataclass(frozen=True, slots=True)
class Option(Generic[T_co]):
    """One thing that a user may set."""

    name: str
    parse: Callable[[str], T_co]
    """from text to value; a ValueError means that the text is not accepted"""
    default: str
    """the text that holds when nothing is given; empty for nothing"""
    help: str
    accepts: str
    """what parse accepts, for messages and the docs"""
    group: str
    metavar: str = ""
    """what the value is called in the help; empty for an option that takes none"""
    short: str = ""
    aliases: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    """further variables, read under ``lattice torchrun`` only"""
    torchrun: bool = True
    """whether torchrun has this option too, and so its own variable for it"""
    flag: bool = True
    """whether it can be given on the command line"""
    notice: str = ""
    """for options of torchrun without a purpose here: what is so instead"""
    secret: bool = False
    takes_flags: bool = False
    """whether its value may begin with a dash, as options of another program do"""

    @property
    def variable(self) -> str:
        """The environment variable that sets this option."""
        return PREFIX + self.name.upper()

    @property
    def torchrun_variables(self) -> tuple[str, ...]:
        """The variables by which torchrun knows this option."""
        return ((TORCHRUN_PREFIX + self.name.upper(),) if self.torchrun else ()) + self.variables

    @property
    def title(self) -> str:
        """How messages name this option: by flag and variable."""
        return f"--{self.name} ({self.variable})" if self.flag else self.variable
