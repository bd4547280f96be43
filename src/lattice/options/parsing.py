"""Words and variables become values; everything after the entry point is left alone, to the byte."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from lattice.errors import UsageError
from lattice.options.option import Option
from lattice.options.table import FRAMEWORK, OPTIONS, RDZV_BACKEND

T = TypeVar("T")


class HelpAsked(Exception):
    """The user asked for help instead of a run."""


class VersionAsked(Exception):
    """The user asked which version this is."""


@dataclass(frozen=True)
class Dialect:
    """How one command reads its options."""

    command: str
    """what the user typed, for messages"""
    options: tuple[Option[object], ...] = OPTIONS
    defaults: Mapping[str, str] = field(default_factory=dict)
    """defaults that differ from the table, by name of the option"""
    torchrun: bool = False
    """whether it reads torchrun's variables and takes a file without a suffix for a script, as torchrun does"""
    environment: bool = True
    """whether options can be set by variables"""
    takes_entry: bool = True
    """whether words after the options are an entry point"""
    anywhere: bool = False
    """whether options may come after other words, too: those are names, and have no options of their own"""

    def default(self, option: Option[T]) -> str:
        """The text that holds where the user gave none."""
        return self.defaults.get(option.name, option.default)


RUN = Dialect("lattice run")
TORCHRUN = Dialect("lattice torchrun", defaults={FRAMEWORK.name: "pytorch", RDZV_BACKEND.name: "static"}, torchrun=True)


class Given(NamedTuple):
    """A text that the user gave, and where."""

    text: str
    source: str
    """the flag or variable"""


@dataclass(frozen=True)
class Parsed:
    """What the user said."""

    dialect: Dialect
    given: Mapping[str, Given]
    entry: tuple[str, ...]
    """the entry point and its arguments as on the command line"""

    def __getitem__(self, option: Option[T]) -> T:
        """Give the value of an option, its default if it was not given."""
        found = self.given.get(option.name)
        if found is None:
            return option.parse(self.dialect.default(option))
        try:
            return option.parse(found.text)
        except ValueError:
            raise UsageError(wrong(option, found, environment=self.dialect.environment)) from None

    def has(self, option: Option[T]) -> bool:
        """Tell whether the user gave this option; an empty text is nothing."""
        return option.name in self.given and self.given[option.name].text != ""


def parse(words: Sequence[str], environ: Mapping[str, str], dialect: Dialect = RUN) -> Parsed:
    """
    Read a command line and the variables beside it.

    :param words: the command line after the command's name
    :param environ: variables, of which an empty one counts as not set
    :param dialect: which options there are and what holds by default
    :return: what was given; every value in it is of an accepted form
    :raises UsageError: for an unknown option, a missing value or a wrong one
    """
    flags, entry = _split(words, dialect)
    parsed = Parsed(dialect, {**_from_variables(environ, dialect), **flags}, entry)
    for option in dialect.options:
        if option.name in parsed.given:
            parsed[option]
    return parsed


def wrong(option: Option[T], found: Given, *, environment: bool = True) -> str:
    """Say what is wrong with a text: the flag, the variable, the text and what is accepted."""
    shown = "***" if option.secret else hide_password(repr(found.text))
    beside = option.title if environment else f"--{option.name}"
    origin = "" if found.source == f"--{option.name}" else f", given as {found.source}"
    return f"{beside} is {shown}{origin}; accepted: {option.accepts}"


def hide_password(conf: str) -> str:
    """Take the password out of a text that may be an rdzv_conf."""
    before, key, after = conf.partition("password=")
    return f"{before}{key}***{after[after.find(',') :] if ',' in after else ''}" if key else conf


DECIMALS = tuple(f".{digit}" for digit in "0123456789")


def is_value(word: str) -> bool:
    """
    Tell whether a word can follow an option as its value: a forgotten one must not swallow the option after it.

    A lone dash is a value, and a negative number is left to the option's own check.
    """
    return word == "-" or not word.startswith("-") or word[1].isdigit() or word[1:3] in DECIMALS


def guess(name: str, known: Collection[str]) -> str:
    """Ask whether something known was meant; nothing if nothing is like it."""
    from difflib import get_close_matches  # only needed here, and slow to import

    bare = name.lstrip("-")
    near = get_close_matches(name, known, n=3, cutoff=0.6) if len(bare) > 1 else []
    near += [other for other in known if other.startswith(name) and other not in near and len(bare) > 1]
    return f"; did you mean {' or '.join(near[:3])}?" if near else ""


def _split(words: Sequence[str], dialect: Dialect) -> tuple[dict[str, Given], tuple[str, ...]]:
    known = _spellings(dialect)
    given: dict[str, Given] = {}
    entry: list[str] = []
    rest = list(words)
    while rest and (dialect.anywhere or _is_option(rest[0])):
        word = rest.pop(0)
        if not _is_option(word):
            entry.append(word)
            continue
        if word == "--":
            break
        if word in ("-h", "--help"):
            raise HelpAsked
        if word == "--version":
            raise VersionAsked
        spelling, value = _at_equals(word)
        option = known.get(_normal(spelling))
        if option is None:
            raise UsageError(_unknown(word.partition("=")[0], known, dialect))
        if value is None and not option.metavar:
            value = "1"
        elif value is None:
            value = _next(rest, option, spelling)
        given[option.name] = Given(value, "--" + option.name if spelling.startswith("--") else spelling)
    if rest and not dialect.takes_entry:
        raise UsageError(f"{dialect.command} takes no argument {rest[0]!r}; see {dialect.command} --help")
    return given, (*entry, *rest)


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _spellings(dialect: Dialect) -> dict[str, Option[object]]:
    known: dict[str, Option[object]] = {}
    for option in (option for option in dialect.options if option.flag):
        for name in (option.name, *option.aliases):
            known[f"--{name}"] = option
        if option.short:
            known[f"-{option.short}"] = option
    return known


def _normal(spelling: str) -> str:
    """Make dashes within a name underscores."""
    return spelling if not spelling.startswith("--") else "--" + spelling[2:].replace("-", "_")


def _at_equals(word: str) -> tuple[str, str | None]:
    if word.startswith("--"):
        spelling, equals, value = word.partition("=")
        return spelling, value if equals else None
    # -r3 and -r=3 are -r 3
    return word[:2], word[2:].removeprefix("=") if len(word) > 2 else None


def _next(rest: list[str], option: Option[object], spelling: str) -> str:
    if rest and (option.takes_flags or is_value(rest[0])):
        return rest.pop(0)
    after = f" before {rest[0]!r}" if rest else ""
    raise UsageError(f"{spelling} needs a value{after}: {spelling}={option.metavar}; accepted: {option.accepts}")


def _unknown(spelling: str, known: Mapping[str, Option[object]], dialect: Dialect) -> str:
    see = f"{dialect.command} --help lists all"
    program = dialect.takes_entry and not dialect.anywhere
    last = f"{see}, and options of the program go after its name" if program else see
    return f"unknown option {spelling}{guess(_normal('--' + spelling.lstrip('-')), known)} ({last})"


def _from_variables(environ: Mapping[str, str], dialect: Dialect) -> dict[str, Given]:
    if not dialect.environment:
        return {}
    given = {}
    for option in dialect.options:
        names = (option.variable, *(option.torchrun_variables if dialect.torchrun else ()))
        for name in names:
            if environ.get(name, "") != "":
                given[option.name] = Given(environ[name], name)
                break
    return given
