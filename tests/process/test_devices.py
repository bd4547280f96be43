from __future__ import annotations

import os
from pathlib import Path

import pytest

from lattice.errors import UsageError
from lattice.process.devices import count, count_gpus, count_visible

CPUS = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("visible", "devices"),
    [
        ("", 0),
        ("0", 1),
        ("3,1, 2", 3),
        ("-1", 0),
        ("0,-1,1", 1),
        ("0,1,nonsense,2", 2),
        ("NoDevFiles", 0),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-aaaa", 2),
        ("MIG-GPU-8932f937/1/2,MIG-3d4b", 2),
        ("0,,1", 1),
        ("1,1", 0),
        ("1,01", 0),
    ],
)
def test_visible_devices_are_counted_as_cuda_does(visible: str, devices: int, tmp_path: Path) -> None:
    assert count_visible(visible) == devices
    (tmp_path / "0000:00:1e.0").mkdir()
    assert count_gpus({"CUDA_VISIBLE_DEVICES": visible}, tmp_path) == devices, "the variable outranks the driver"


def test_without_the_variable_the_driver_is_asked(tmp_path: Path) -> None:
    for name in ("0000:00:1b.0", "0000:00:1c.0", "0000:00:1d.0"):
        (tmp_path / name).mkdir()
    assert count("gpu", {}, tmp_path) == count("auto", {}, tmp_path) == 3


def test_without_the_drivers_folder_nvidia_smi_is_asked(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        '#!/bin/sh\n[ "$*" = -L ] || exit 9\n'
        "echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)'\necho '  MIG 1g.5gb Device 0: (UUID: MIG-1)'\n"
        "echo 'GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-2)'\n"
    )
    smi.chmod(0o755)
    nowhere = tmp_path / "nowhere"
    assert count("auto", {"PATH": str(tmp_path)}, nowhere) == 2
    smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\necho 'GPU 0: not really'\nexit 9\n")
    assert count("auto", {"PATH": str(tmp_path)}, nowhere) == CPUS


def test_without_gpus(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    environ = {"PATH": str(tmp_path)}
    assert count("cpu", {"CUDA_VISIBLE_DEVICES": "0,1"}) == CPUS
    assert count("auto", environ, nowhere) == CPUS
    with pytest.raises(UsageError, match=r"--nproc_per_node \(LATTICE_NPROC_PER_NODE\).*no NVIDIA GPU"):
        count("gpu", environ, nowhere)
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES is ''"):
        count("gpu", {"CUDA_VISIBLE_DEVICES": ""}, nowhere)
