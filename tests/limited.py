"""An interpreter whose processes have little memory: a real memory cgroup, of whichever version is here."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lattice.process import cgroups
from tests.agents import ROOT
from tests.waiting import eventually


@contextlib.contextmanager
def limited(folder: Path, limit: int) -> Iterator[str]:
    """Give an interpreter whose processes share a group with so much memory."""
    name = f"lattice-test-{os.getpid()}-{folder.name}"
    version = 2 if Path(cgroups.ROOT, "cgroup.controllers").exists() else 1
    group = Path(cgroups.ROOT, name) if version == 2 else Path(cgroups.ROOT, "memory", name)
    try:
        group.mkdir()
        (group / cgroups.NAMES[version].limit).write_text(str(limit))
    except OSError as error:
        pytest.skip(f"needs to make a memory cgroup: {error}")
    program = folder / "python"
    program.write_text(f'#!/bin/sh\necho $$ > {group}/cgroup.procs\nPYTHONPATH={ROOT}/src exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    try:
        yield str(program)
    finally:
        eventually(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
