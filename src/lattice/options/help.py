"""What --help prints, made from the tables, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill

from lattice.options.conf import IGNORED as IGNORED_KEYS
from lattice.options.conf import KEYS
from lattice.options.option import Option
from lattice.options.parsing import Dialect
from lattice.options.table import IGNORED

WIDTH = 79

RUN_EXAMPLES = """\
examples:
  # one node: nothing to set up
  lattice run train.py --lr 0.1
  lattice run --nproc_per_node 2 --framework pytorch python train.py

  # two to eight nodes that meet at an etcd; the same line on every node
  lattice run --nnodes 2:8 --rdzv_endpoint etcd.example:2379 --rdzv_id run7 \\
      --framework pytorch --nproc_per_node gpu --max_restarts 3 train.py

  # the same by variables
  LATTICE_NNODES=2:8 LATTICE_RDZV_ID=run7 LATTICE_ENTRYPOINT=train.py \\
      LATTICE_RDZV_CLIENT_SERVICE_HOST=etcd.example lattice run

  # a torchrun command line: change its first word
  lattice torchrun --nnodes 2 --nproc_per_node 8 --rdzv_id 1 \\
      --rdzv_backend c10d --rdzv_endpoint head:29500 train.py
"""

USAGE = """\
usage: {command} [options] ENTRYPOINT [ARGS...]
       {command} [options] -m MODULE [ARGS...]

Runs the workers of this node and keeps them running, together with the other
nodes of the run. The entry point is a Python script (run with this Python), or
any program with its arguments: train.py, python train.py, ./binary. Whatever
follows it reaches it untouched.

Every option can be set by the variable named beside it; the flag wins. Dashes
and underscores in flags are the same. --help and --version do as they say.
"""


def run_help(dialect: Dialect) -> str:
    """
    Explain the options of a run.

    :param dialect: whose defaults hold
    """
    parts = [USAGE.format(command=dialect.command)]
    if dialect.torchrun:
        parts.append("torchrun's own variables (PET_NNODES, ...) are read too, after those below.\n")
    for group in dict.fromkeys(option.group for option in dialect.options):
        rows = [option for option in dialect.options if option.group == group]
        parts.append(f"{group}:\n" + "".join(_ignored(rows) if group == IGNORED else _rows(rows, dialect)))
    parts.append("Keys of --rdzv_conf:\n" + "".join(_keys()))
    parts.append(RUN_EXAMPLES)
    return "\n".join(parts)


def plain_rows(dialect: Dialect) -> str:
    """Explain options that are in no group and have no variables."""
    return "".join(_rows(dialect.options, dialect))


def spelling(option: Option[object]) -> str:
    """Write an option as in a usage line: all its flags, and what its value is called."""
    if not option.flag:
        return option.variable
    flags = ", ".join(([f"-{option.short}"] if option.short else []) + [f"--{option.name}"])
    return f"{flags} {option.metavar}".rstrip()


def _rows(options: Sequence[Option[object]], dialect: Dialect) -> Iterator[str]:
    for option in options:
        default = dialect.default(option) if option.metavar else ""
        aside = [option.variable] if option.flag and dialect.environment else []
        aside += [f"default {default}"] if default else []
        yield f"  {spelling(option)}\n"
        yield wrapped(option.help + (f" [{', '.join(aside)}]" if aside else ""), 6)


def _ignored(options: Sequence[Option[object]]) -> Iterator[str]:
    yield wrapped(", ".join(f"--{option.name}" for option in options), 2)


def _keys() -> Iterator[str]:
    for key in KEYS:
        yield f"  {key.name}\n"
        yield wrapped(key.help + (f" [default {key.default}]" if key.default else ""), 6)
    yield wrapped("accepted, and without a purpose here: " + ", ".join(IGNORED_KEYS), 2)


def wrapped(text: str, indent: int) -> str:
    """Break a text into lines of the help."""
    inset = " " * indent
    return fill(text, WIDTH, initial_indent=inset, subsequent_indent=inset, break_on_hyphens=False) + "\n"
