"""``petctl``: jobs on AWS under the names that torchelastic gave its commands. It never asks anything."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lattice.cli import guarded
from lattice.errors import UsageError
from lattice.job_commands import job_command, print_quote, submit
from lattice.jobs import meaning
from lattice.jobs import options as rows
from lattice.jobs.aws import setup as stack
from lattice.jobs.aws import specs
from lattice.jobs.aws.shelf import put
from lattice.jobs.desk import home, unusable
from lattice.options import values
from lattice.options.help import plain_rows
from lattice.options.option import Option
from lattice.options.parsing import Dialect, Given, HelpAsked, Parsed, VersionAsked, parse
from lattice.options.table import FRAMEWORK, MAX_RESTARTS, NPROC_PER_NODE

OVERVIEW = """\
usage: petctl COMMAND ...

Runs training on AWS: instances that are made for a job, and end with it.

commands:
  setup       make what jobs need in an AWS account, and write a specs file
  configure   remember a specs file and a region for the other commands
  run_job     start a job: petctl run_job --size 2 --name me-job train.py
  kill_job    end a job, and delete what was made for it
  list_hosts  list the instances of a job
  upload      put a script or folder into S3

lattice status, logs, wait and scale know the jobs, too. petctl COMMAND --help
tells more of each.
"""
USAGES = {
    "run_job": """\
usage: petctl run_job [options] SCRIPT [-- ARGS...]
       petctl run_job [options] FOLDER SCRIPT [-- ARGS...]
       petctl run_job [options] s3://BUCKET/SCRIPT [-- ARGS...]
       petctl run_job [options] s3://BUCKET/FOLDER.tar.gz SCRIPT [-- ARGS...]
       petctl run_job [options] --no_upload PATH_IN_IMAGE [SCRIPT] [-- ARGS...]

Starts a job on instances that are made for it.
""",
    "kill_job": """\
usage: petctl kill_job [options] NAME
       petctl kill_job [options] --name NAME

Ends a job: SIGTERM first, so that workers can save; then all that was made for
it is deleted, but its logs.
""",
    "list_hosts": """\
usage: petctl list_hosts NAME

Lists the instances of a job.
""",
    "upload": """\
usage: petctl upload [options] SCRIPT|FOLDER [s3://BUCKET/PREFIX]

Puts a script, or a folder as NAME.tar.gz, below that prefix; without one below
s3_prefix/USER/scripts in the bucket of the specs file. Prints where it is.
""",
    "configure": """\
usage: petctl configure --specs_file FILE [--region REGION]

Remembers them for the other commands.
""",
    "setup": """\
usage: petctl setup [options]

Makes, as the CloudFormation stack lattice, a network with two subnets, a
security group, an instance profile, and a bucket and a file system unless they
are given; writes a specs file with them, and remembers it. What it makes costs
nothing while it is not used. If the stack is there, it only writes the file.
""",
}
REMEMBERED = "petctl.json"
AWS = "On AWS"
SIZE = Option("size", values.count, "", "instances to start with", "a number from 1", AWS, "N")
MIN_SIZE = Option("min_size", values.count, "", "instances that the job needs to go on [size]", "a number", AWS, "N")
MAX_SIZE = Option("max_size", values.count, "", "instances it may be scaled to [size]", "a number", AWS, "N")
S3_BUCKET = Option("s3_bucket", values.text, "", "a bucket that is there; without it one is made", "name", AWS, "NAME")
EFS_ID = Option("efs_id", values.text, "", "a file system that is there; without it one is made", "id", AWS, "ID")
DOCKER_IMAGE = Option("docker_image", values.text, "", "image of the workers, for the specs file", "name", AWS, "IMAGE")
TYPE = replace(rows.INSTANCE_TYPE, default="p3.2xlarge")
DEFAULTS = {FRAMEWORK.name: "pytorch", MAX_RESTARTS.name: "3"}
"""torchelastic's; each GPU gets a worker"""


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run a command of petctl.

    :param argv: the words after ``petctl``; those of this process if None
    :return: the exit code
    """
    return guarded(lambda: _dispatch(list(sys.argv[1:] if argv is None else argv)), "petctl")


def _dispatch(words: list[str]) -> int:
    match words:
        case [] | ["help" | "-h" | "--help"]:
            print(OVERVIEW, end="", flush=True, file=sys.stdout if words else sys.stderr)
            return 0 if words else 2
        case ["help", name]:
            return _dispatch([name, "--help"])
        case ["--version" | "version"]:
            return _print_version()
        case [name, *rest] if name in COMMANDS:
            dialect, command = COMMANDS[name]
        case [name, *_]:
            raise UsageError(f"unknown command {name!r}; there are {', '.join(COMMANDS)} and help")
    try:
        return command(_parse(rest, dialect))
    except HelpAsked:
        print(f"{USAGES[name]}\noptions:\n{plain_rows(dialect)}", end="", flush=True)
        return 0
    except VersionAsked:
        return _print_version()


def _print_version() -> int:
    from lattice import __version__

    print(f"petctl of lattice {__version__}", flush=True)
    return 0


def _parse(words: list[str], dialect: Dialect) -> Parsed:
    """Read the words; what comes after ``--`` is the script's."""
    cut = words.index("--") if "--" in words else len(words)
    parsed = parse(words[:cut], {}, dialect)
    return replace(parsed, entry=(*parsed.entry, *words[cut:]))


def _run_job(parsed: Parsed) -> int:
    if not parsed.entry or parsed.entry[0] == "--":
        raise UsageError("no script: petctl run_job --size 2 --name me-job train.py -- ARGS; see petctl run_job --help")
    if "--" not in parsed.entry and len(parsed.entry) > 2:
        raise UsageError(f"arguments of the script go after --: {parsed.entry[0]} -- {' '.join(parsed.entry[1:])}")
    if not parsed.has(SIZE):
        raise UsageError("--size is missing: the number of instances to start with")
    size = parsed[SIZE]
    least = parsed[MIN_SIZE] if parsed.has(MIN_SIZE) else size
    most = parsed[MAX_SIZE] if parsed.has(MAX_SIZE) else size
    if not 1 <= least <= size <= most:
        raise UsageError(
            f"--min_size {least}, --size {size}, --max_size {most}: each must be at least the one before, the first 1"
        )
    said = {
        **{name: Given(text, f"--{name}") for name, text in DEFAULTS.items()},
        **_remembered(),
        **{name: text for name, text in parsed.given.items() if name not in (MIN_SIZE.name, MAX_SIZE.name)},
        SIZE.name: Given(f"{least}:{most}", "--size"),
        rows.ON.name: Given("aws", "petctl"),
    }
    if rows.SPECS_FILE.name not in said:
        raise UsageError("--specs_file is missing; petctl configure --specs_file FILE remembers one")
    wanted = specs.parse(specs.of({name: said[name].text for name in specs.OPTIONS if name in said}))
    if wanted.worker.accelerator == "gpu":
        said.setdefault(NPROC_PER_NODE.name, Given("gpu", "accelerator"))
    job = meaning.job(Parsed(rows.SUBMIT, said, _with_delimiter(parsed.entry)), None)
    if size != most:
        job = replace(job, place_options={**job.place_options, specs.DESIRED: str(size)})
    print_quote(job)
    return submit(job)


def _with_delimiter(entry: tuple[str, ...]) -> tuple[str, ...]:
    return entry if "--" in entry else (*entry, "--")


def _kill_job(parsed: Parsed) -> int:
    names = [*parsed.entry, *([parsed[rows.NAME]] if parsed.has(rows.NAME) else [])]
    if len(names) != 1:
        raise UsageError("petctl kill_job takes the name of one job: petctl kill_job --name me-job")
    return job_command("kill", [f"--grace={parsed[rows.GRACE]:g}", *names])


def _list_hosts(parsed: Parsed) -> int:
    if len(parsed.entry) != 1:
        raise UsageError("petctl list_hosts takes the name of one job")
    return job_command("hosts", [*(["--json"] if parsed[rows.JSON] else []), *parsed.entry])


def _upload(parsed: Parsed) -> int:
    if not 1 <= len(parsed.entry) <= 2:
        raise UsageError(
            "petctl upload takes a script or folder, and perhaps where to: petctl upload train.py s3://b/a"
        )
    said = {**_remembered(), **parsed.given}
    options = {name: said[name].text for name in specs.OPTIONS if name in said}
    print(put(parsed.entry[0], parsed.entry[1] if len(parsed.entry) > 1 else "", options, _say), flush=True)
    return 0


def _configure(parsed: Parsed) -> int:
    if parsed.entry or not parsed.has(rows.SPECS_FILE):
        raise UsageError("petctl configure takes --specs_file FILE, and --region REGION if the file has none")
    content = {name: text.text for name, text in parsed.given.items()}
    path = Path(content[rows.SPECS_FILE.name]).expanduser().absolute()
    specs.parse(specs.of({**content, rows.SPECS_FILE.name: str(path)}))
    _remember({**content, rows.SPECS_FILE.name: str(path)})
    return 0


def _setup(parsed: Parsed) -> int:
    if parsed.entry:
        raise UsageError(f"petctl setup takes no argument {parsed.entry[0]!r}")
    given = parsed[rows.SPECS_FILE]
    path = Path(given).expanduser().absolute() if given else home(os.environ) / "specs.json"
    if path.exists():
        raise UsageError(f"{path} is there already: move it away, or name another by --specs_file")
    made = stack.setup(parsed[rows.REGION], parsed[S3_BUCKET], parsed[EFS_ID], _say)
    content = stack.specs_of(made, instance_type=parsed[TYPE], docker_image=parsed[DOCKER_IMAGE])
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    _remember({rows.SPECS_FILE.name: str(path)})
    if not parsed[DOCKER_IMAGE]:
        _say(f"name the image of the workers as worker.docker_image in {path}")
    return 0


def _remember(content: dict[str, Any]) -> None:
    path = home(os.environ) / REMEMBERED
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise unusable(path.parent, error) from None
    _say(f"{content[rows.SPECS_FILE.name]} is used from now on ({path})")


def _remembered() -> dict[str, Given]:
    path = home(os.environ) / REMEMBERED
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise unusable(path.parent, error) from None
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}; write it anew: petctl configure --specs_file FILE") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path} holds no settings; write it anew: petctl configure --specs_file FILE")
    return {name: Given(str(text), str(path)) for name, text in content.items()}


def _say(text: str) -> None:
    print(f"petctl: {text}", file=sys.stderr, flush=True)


def _dialect(command: str, *options: Option[object]) -> Dialect:
    return Dialect(f"petctl {command}", options, DEFAULTS, environment=False, anywhere=True)


_RUN = tuple(option for option in rows.RUN_OPTIONS if not option.name.startswith("rdzv_"))
COMMANDS: dict[str, tuple[Dialect, Callable[[Parsed], int]]] = {
    "run_job": (
        _dialect(
            "run_job",
            *(rows.NAME, SIZE, MIN_SIZE, MAX_SIZE, rows.SPECS_FILE, rows.INSTANCE_TYPE, rows.REGION),
            *(rows.NO_UPLOAD, rows.ENV, *_RUN),
        ),
        _run_job,
    ),
    "kill_job": (_dialect("kill_job", rows.NAME, rows.GRACE), _kill_job),
    "list_hosts": (_dialect("list_hosts", rows.JSON), _list_hosts),
    "upload": (_dialect("upload", rows.SPECS_FILE, rows.REGION), _upload),
    "configure": (_dialect("configure", rows.SPECS_FILE, rows.REGION), _configure),
    "setup": (
        _dialect("setup", rows.REGION, S3_BUCKET, EFS_ID, DOCKER_IMAGE, TYPE, rows.SPECS_FILE),
        _setup,
    ),
}

if __name__ == "__main__":
    sys.exit(main())
