"""The options page of the docs, made from the tables: ``python -m lattice.options.document FILE`` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from lattice.options.conf import IGNORED as IGNORED_KEYS
from lattice.options.conf import KEYS, Key
from lattice.options.help import spelling
from lattice.options.option import Option
from lattice.options.parsing import TORCHRUN
from lattice.options.table import GROUPS, IGNORED, OPTIONS

PAGE = Path("docs/options.md")

INTRODUCTION = """\
# Options

<!-- Made by python -m lattice.options.document from the tables in lattice.options. Do not edit. -->

`lattice run [options] ENTRYPOINT [ARGS...]`, which is the same as `python -m lattice.torch.run`, is started once on
every node. `lattice torchrun` is the same with the defaults of torchrun, so that its command lines work with only the
first word changed.

- Options end at the entry point. Everything after it reaches it untouched, also words that look like options. A `--`
  before the entry point is accepted.
- `--name value` and `--name=value` are the same, and so are dashes and underscores in a name. Names are not guessed:
  an abbreviation is an error that names the nearest options.
- Every option has a variable. The flag wins; an empty variable counts as not set. A wrong value of either ends the
  command with exit code 2 and a line that says what is accepted.
- `lattice torchrun` also reads torchrun's own variables (`PET_NNODES` and so on), after those of Lattice.
- Workers do not inherit any of these variables, so an agent that is started inside a worker does not obey them.

## What happens without options

With one node and no address of a store, the store lives in the agent: there is nothing to set up, and the run id is
made up. One node with an address uses etcd there. More than one node needs `nnodes` and `rdzv_id`, and an etcd, by
`rdzv_endpoint` or by `rdzv_client_service_host` and `rdzv_client_service_port`; `lattice etcd` starts one.

With `--rdzv_backend embedded` (also `c10d` and `static`) no etcd is needed: one node serves the store. That is the
node with `is_host=1` in `rdzv_conf`; where that is not said, the one with `--node_rank 0`; without node ranks the one
that owns the host of the endpoint. Each role of a job (`job_roles`) has a rank 0, so that only `is_host` and the
endpoint say it there. The run ends when that node is lost, so use etcd for anything long. All nodes must have the same
`LATTICE_RDZV_PASSWORD`; without one the secret is made from the run id (the job id, if there is one), which is no
secret to speak of.

## The entry point

| written | what runs |
| --- | --- |
| `train.py ARGS` | the script, with the Python that runs Lattice |
| `-m package.module ARGS` | the module, with the Python that runs Lattice |
| `python train.py ARGS`, `python3.12 -X dev train.py ARGS` | that Python, found in `PATH` |
| `./binary ARGS`, `program ARGS` | the program, found in `PATH` if it has no `/` |
| `--no_python FILE ARGS` | the file as it is, which must be executable |

Python is always given `-u` (except with `--no_python`), so that no line is lost in a buffer.
"""


def page() -> str:
    """Make the page."""
    return "\n".join(_parts())


def _parts() -> Iterator[str]:
    yield INTRODUCTION
    for group in GROUPS:
        yield f"## {group}\n"
        rows = [option for option in OPTIONS if option.group == group]
        yield from _ignored(rows) if group == IGNORED else _rows(rows)
        yield ""
    yield "## Keys of rdzv_conf\n"
    yield "Written as `--rdzv_conf join_timeout=300,last_call=10`. An unknown key is an error.\n"
    yield "| key | default | accepted | meaning |\n| --- | --- | --- | --- |"
    yield from map(_key, KEYS)
    ignored = ", ".join(map(_code, IGNORED_KEYS))
    yield f"\nAccepted for the sake of torchrun, and without a purpose: {ignored}.\n"


def _rows(rows: list[Option[object]]) -> Iterator[str]:
    yield "| option | variable | default | accepted | meaning |\n| --- | --- | --- | --- | --- |"
    for option in rows:
        flag = _code(spelling(option)) if option.flag else "(variable only)"
        others = "".join(f", `--{alias}`" for alias in option.aliases)
        default = _code(option.default) if option.metavar and option.default else ""
        if option.name in TORCHRUN.defaults:
            default += f" ({_code(TORCHRUN.defaults[option.name])} under torchrun)"
        cells = (flag + others, _code(option.variable), default, _cell(option.accepts), _cell(option.help))
        yield f"| {' | '.join(cells)} |"


def _ignored(rows: list[Option[object]]) -> Iterator[str]:
    yield "One notice names those that were given.\n"
    yield "| option | variable | why |\n| --- | --- | --- |"
    for option in rows:
        yield f"| {_code(spelling(option))} | {_code(option.variable)} | {_cell(option.notice)} |"


def _key(key: Key) -> str:
    names = ", ".join(_code(name) for name in (key.name, *key.aliases))
    return f"| {names} | {_code(key.default) if key.default else ''} | {_cell(key.accepts)} | {_cell(key.help)} |"


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else PAGE).write_text(page(), encoding="utf-8")
