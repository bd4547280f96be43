"""Starts the program of a node inside a SLURM allocation: one srun step per node, whose streams are its first ones."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from lattice.launching.hosts import HostSpec
from lattice.launching.transports.child import Child, Command, Ending
from lattice.launching.transports.reasons import of_srun

# Most variables that a job is given are options of srun, too: with --gpus-per-task of the job a step of one task
# would see one GPU. So only those that lead to the job stay.
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTERS", "SLURM_JWT")

OPTIONS = (
    "--overlap",  # beside the step that runs the launcher
    "--nodes=1",
    "--ntasks=1",
    "--mem=0",  # all that the job has there, and
    "--cpu-bind=none",  # all of its CPUs: the workers share them out
    "--mpi=none",
    "--unbuffered",  # SLURM else waits for the end of a line
    "--input=all",
    "--export=ALL",
)

REMARKS = ("srun: cluster configuration lacks support for cpu binding",)


class SrunTransport:
    """One step per node; its standard input and output, authenticated by SLURM, serve until it has called back."""

    def __init__(self, program: tuple[str, ...], srun: str = "srun") -> None:
        self._program = program
        self._srun = srun

    def start(self, host: HostSpec) -> Child:
        """
        Begin to start the step.

        :param host: a node of the allocation
        """
        return Child(_Plan(host.given, self._srun, self._program))


class _Plan:
    # Two processes, one of which ends the step when the other is killed: with the group both would be gone at once.
    tidies_up = True

    def __init__(self, given: str, srun: str, program: tuple[str, ...]) -> None:
        self._given = given
        self._srun = srun
        self._program = program

    def command(self, stopped: threading.Event) -> Command:
        return Command(arguments(self._srun, self._given, self._program), variables(os.environ))

    def line(self, text: str) -> bool:
        return not text.startswith(REMARKS)

    def ended(self, ending: Ending) -> bool:
        return False

    def explain(self, ending: Ending) -> str:
        return of_srun(self._given, os.environ.get("SLURM_JOB_ID", "?"), self._program, ending)

    def wake(self) -> None:
        pass


def arguments(srun: str, node: str, program: tuple[str, ...]) -> tuple[str, ...]:
    """Give the command line of a step."""
    return (srun, *OPTIONS, f"--nodelist={node}", "--", *program)


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Give the environment of a step: the launcher's, without what would be taken for options of srun."""
    return {
        name: value
        for name, value in environ.items()
        if name in KEPT or not name.startswith(("SLURM_", "SLURMD_", "SRUN_", "PMI_", "PMIX_"))
    }


def make(program: tuple[str, ...], ssh_config_file: str | Path | None) -> SrunTransport:
    """Make the transport; SSH has no part in it."""
    return SrunTransport(program)
