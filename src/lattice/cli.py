"""The ``lattice`` command: it finds the subcommand, and turns every error into one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from lattice.core.spec import AgentSpec
from lattice.errors import LatticeError, UsageError

OVERVIEW = """\
usage: lattice COMMAND ...

Runs distributed training anywhere and keeps it running.

commands:
  run        run the workers of this node: lattice run train.py
  torchrun   the same with the defaults of torchrun: change the first word
  launch     run a function on many hosts: lattice launch train:main
  etcd       start an etcd for the nodes to meet at

  submit     start a job that goes on by itself, here or elsewhere
  status     tell how a job stands, or all jobs
  logs       show what a job wrote
  scale      have a job run with another number of nodes
  wait       wait for the end of a job
  kill       end a job
  list       list all jobs
  hosts      list the nodes of a job
  forget     delete all that is left of a job that has ended

  exec       run a program in a container of a job on Kubernetes
  describe   tell all that such a job is made of
  render     write such a job as manifests
  secret     keep variables for such jobs in their cluster
  install    make what such jobs share in their cluster
  image      build the image of a job, and push it

  rl         draw the results of reinforcement learning: lattice rl report

  version    print the version
  help       print this, or the help of a command: lattice help run
"""

JOB_COMMANDS = ("submit", "status", "logs", "scale", "wait", "kill", "list", "hosts", "forget")
CLUSTER_COMMANDS = ("exec", "describe", "render", "secret", "install")

Runner = Callable[[AgentSpec], int]


def main(argv: Sequence[str] | None = None, runner: Runner | None = None) -> int:
    """
    Run a subcommand.

    :param argv: the words after ``lattice``; those of this process if None
    :param runner: what to do with the specification of an agent; None for the agent itself
    :return: the exit code
    """
    return guarded(lambda: _dispatch(list(sys.argv[1:] if argv is None else argv), runner or _run_agent))


def run(argv: Sequence[str] | None = None, runner: Runner | None = None) -> int:
    """
    Run ``lattice run``, which ``python -m lattice.torch.run`` is.

    :param argv: options, entry point and arguments; those of this process if None
    :param runner: what to do with the specification of an agent; None for the agent itself
    :return: the exit code
    """
    return main(["run", *(sys.argv[1:] if argv is None else argv)], runner)


def guarded(command: Callable[[], int], name: str = "lattice") -> int:
    """
    Turn every error of a command into one line and an exit code.

    :param name: of the program, before the line
    """
    try:
        return command()
    except LatticeError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; without this the interpreter complains once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except Exception:
        import traceback

        traceback.print_exc()
        print(f"{name}: this is a fault of Lattice itself; please report it with the lines above", file=sys.stderr)
        return 70


def _dispatch(words: list[str], runner: Runner) -> int:
    match words:
        case [("run" | "torchrun") as name, *rest]:
            return _run(name, rest, runner)
        case ["launch", *rest]:
            from lattice.launch_command import launch_command

            return launch_command(rest)
        case ["etcd", *rest]:
            from lattice.etcd_command import etcd_command

            return etcd_command(rest)
        case ["image", *rest]:
            from lattice.image_command import image_command

            return image_command(rest)
        case ["rl", *rest]:
            from lattice.rl_command import rl_command

            return rl_command(rest)
        case [name, *rest] if name in CLUSTER_COMMANDS:
            from lattice.cluster_commands import cluster_command

            return cluster_command(name, rest)
        case [name, *rest] if name in JOB_COMMANDS:
            from lattice.job_commands import job_command

            return job_command(name, rest)
        case ["version" | "--version" | "-V", *_]:
            return _print_version()
        case ["help", name, *_]:
            return _dispatch([name, "--help"], runner)
        case ["help" | "--help" | "-h", *_]:
            print(OVERVIEW, end="", flush=True)
            return 0
        case []:
            print(OVERVIEW, end="", file=sys.stderr)
            return 2
        case [name, *_]:
            there_are = ", ".join(
                ("run", "torchrun", "launch", "etcd", *JOB_COMMANDS, *CLUSTER_COMMANDS, "image", "rl", "version")
            )
            raise UsageError(f"unknown command {name!r}; there are {there_are} and help")
    raise AssertionError(words)


def _run(name: str, words: list[str], runner: Runner) -> int:
    from lattice.options.parsing import RUN, TORCHRUN, HelpAsked, VersionAsked, parse

    dialect = TORCHRUN if name == "torchrun" else RUN
    try:
        parsed = parse(words, os.environ, dialect)
    except HelpAsked:
        from lattice.options.help import run_help

        print(run_help(dialect), end="", flush=True)
        return 0
    except VersionAsked:
        return _print_version()
    from lattice.options.facts import Machine
    from lattice.options.meaning import agent_spec

    return runner(agent_spec(parsed, Machine()))


def _run_agent(spec: AgentSpec) -> int:
    import gc

    gc.disable()  # nothing of what is loaded now is garbage; the agent switches it on again when it has begun
    from lattice.process.spawning import Guard, open_standard_descriptors

    open_standard_descriptors()
    guard = Guard()  # starts while the rest is loaded
    from lattice.agent.run import run as run_agent  # last, so that help and usage errors come at once

    return run_agent(spec, guard)


def _print_version() -> int:
    from lattice import __version__

    print(f"lattice {__version__}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
