"""How many workers a node has room for: its GPUs or its CPUs, counted without importing a framework."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from lattice.errors import UsageError

DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")
SMI_TIMEOUT = 30.0


def count(
    kind: str,
    environ: Mapping[str, str],
    driver_folder: Path = DRIVER_FOLDER,
    option: str = "--nproc_per_node (LATTICE_NPROC_PER_NODE)",
) -> int:
    """
    Count what a number of workers asks for by name.

    :param kind: ``cpu``, ``gpu``, or ``auto`` for GPUs if there are any, else CPUs
    :param environ: where CUDA_VISIBLE_DEVICES and PATH are read
    :param driver_folder: where the driver has an entry per GPU
    :param option: by which the user asked
    :return: at least 1
    :raises UsageError: GPUs were asked for and there are none
    """
    if kind not in ("auto", "cpu", "gpu"):
        raise ValueError(kind)
    gpus = 0 if kind == "cpu" else count_gpus(environ, driver_folder)
    if kind == "gpu" and not gpus:
        visible = environ.get("CUDA_VISIBLE_DEVICES")
        why = "there is no NVIDIA GPU on this node" if visible is None else f"CUDA_VISIBLE_DEVICES is {visible!r}"
        raise UsageError(f"{option} is 'gpu', but {why}. Give a number, or 'auto' or 'cpu'.")
    return gpus or len(os.sched_getaffinity(0))


def count_gpus(environ: Mapping[str, str], driver_folder: Path = DRIVER_FOLDER) -> int:
    """
    Count the GPUs that a CUDA program started with this environment would see.

    :param environ: where CUDA_VISIBLE_DEVICES and PATH are read
    :param driver_folder: where the driver has an entry per GPU
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return count_visible(visible)
    try:
        found = sum(1 for _ in driver_folder.iterdir())
    except OSError:
        found = 0
    return found or _count_listed(environ)


def count_visible(visible: str) -> int:
    """
    Count the devices of a CUDA_VISIBLE_DEVICES value as CUDA does: the first invalid entry ends the list.

    :param visible: indices, or GPU and MIG identifiers, separated by commas
    :return: how many are named; none if one is named twice
    """
    names: list[str] = []
    for entry in visible.split(","):
        name = entry.strip()
        if name.isdecimal():
            name = str(int(name))
        elif not name.startswith(("GPU-", "MIG-")):
            break
        if name in names:
            return 0
        names.append(name)
    return len(names)


def _count_listed(environ: Mapping[str, str]) -> int:
    program = shutil.which("nvidia-smi", path=environ.get("PATH", os.defpath))
    if program is None:
        return 0
    import subprocess  # slow to import, and only needed here

    try:
        listing = subprocess.run(
            [program, "-L"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SMI_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    # MIG instances are listed indented below their GPU.
    return sum(line.startswith("GPU ") for line in listing.stdout.splitlines()) if listing.returncode == 0 else 0
