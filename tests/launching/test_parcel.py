"""Images: nothing is copied on the way in or out, and what cannot be sent is refused with its name."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

from lattice.errors import NotPickled, TooLarge
from lattice.launching import parcel
from lattice.launching.task import Task, pack
from tests.launching.functions import change
from tests.launching.workers import ROOT, one, run_script

MEGABYTE = 1 << 20


def image_of(value: object) -> memoryview:
    image = bytearray()
    made = parcel.dump(value)
    for chunk in made.chunks():
        assert 0 < chunk.nbytes <= MEGABYTE
        image += chunk
    assert len(image) == made.size
    return memoryview(image)


def address(image: memoryview) -> int:
    return int(np.frombuffer(image, np.uint8).ctypes.data)


def test_arrays_and_tensors_are_views_of_the_image() -> None:
    shared = torch.arange(1000.0)
    value = {
        "array": np.arange(300_000).reshape(3, -1),
        "fortran": np.asfortranarray(np.ones((30, 40))),
        "strided": np.arange(100)[::3],
        "empty": np.zeros((0, 3)),
        "objects": np.array([{"a": 1}, None], dtype=object),
        "tensor": torch.nn.Parameter(torch.ones(5, 5, dtype=torch.bfloat16)),
        "shared": (shared, shared[10:20]),
        "none": torch.zeros(0),
        "meta": torch.ones(3, device="meta"),
        "sparse": torch.eye(3).to_sparse(),
        "bytes": b"x" * MEGABYTE,
        "text": "\udcff é",
    }
    image = image_of(value)
    back = parcel.load(image)
    begin, end = address(image), address(image) + image.nbytes
    for name in ("array", "fortran"):
        assert begin <= back[name].ctypes.data < end
        assert (back[name].ctypes.data - begin) % 64 == 0
        np.testing.assert_array_equal(back[name], value[name])
        back[name][0] = 7
    np.testing.assert_array_equal(back["strided"], value["strided"])
    assert back["empty"].shape == (0, 3)
    assert back["objects"].tolist() == [{"a": 1}, None]
    assert isinstance(back["tensor"], torch.nn.Parameter)
    assert begin <= back["tensor"].data_ptr() < end
    assert back["tensor"].equal(torch.ones(5, 5, dtype=torch.bfloat16))
    whole, part = back["shared"]
    whole[10] = -1
    assert part[0] == -1, "tensors that shared memory still do"
    assert shared[10] == 10
    assert back["none"].numel() == 0
    assert back["meta"].device.type == "meta"
    assert back["sparse"].to_dense().equal(torch.eye(3))
    assert back["bytes"] == value["bytes"]
    assert back["text"] == value["text"]


def test_nothing_large_is_copied() -> None:
    value = [np.ones(20 * MEGABYTE, np.uint8), torch.ones(20 * MEGABYTE, dtype=torch.uint8), b"x" * (20 * MEGABYTE)]
    descriptor = os.memfd_create("image")
    tracemalloc.start()
    try:
        parcel.dump(value).write(descriptor)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert os.fstat(descriptor).st_size > 60 * MEGABYTE
    os.close(descriptor)
    assert peak < 5 * MEGABYTE


def test_many_small_pieces_are_few_chunks() -> None:
    made = parcel.dump([np.arange(5) for _ in range(5000)])
    assert len(list(made.chunks())) < 10


def test_what_is_read_only_stays_so_and_tensors_of_a_read_only_image_are_copies() -> None:
    fixed = np.arange(10)
    fixed.flags.writeable = False
    image = image_of([fixed, torch.ones(3)])
    array, tensor = parcel.load(image)
    assert not array.flags.writeable
    array, tensor = parcel.load(image.toreadonly())
    tensor[0] = 5
    assert parcel.load(image)[1][0] == 1


def test_more_than_half_of_the_memory_is_refused_before_it_is_taken() -> None:
    view = np.zeros(10 * MEGABYTE, np.uint8)
    with pytest.raises(TooLarge, match=r"train with its arguments takes 0\.0.* GiB or more.*half of the memory"):
        pack(Task(train, (view,)), limit=5 * MEGABYTE)
    with pytest.raises(TooLarge):
        parcel.dump([b"x" * MEGABYTE] * 2 + [bytes(2 * MEGABYTE)], limit=2 * MEGABYTE)
    parcel.dump(view, limit=11 * MEGABYTE)


def train(*args: object, **kwargs: object) -> None:
    pass


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(NotPickled, match=r"argument 2 of .*train \(_thread.lock\).*cannot pickle"):
        pack(Task(train, (1, threading.Lock())))
    with pytest.raises(NotPickled, match=r"argument model= of .*train"):
        pack(Task(train, (), {"model": threading.Lock()}))
    lock = threading.Lock()
    with pytest.raises(NotPickled, match=r"the function .*<lambda>"):
        pack(Task(lambda: lock))


def test_a_worker_may_write_into_its_arguments_and_returns_arrays() -> None:
    array, tensor = np.arange(1000), torch.arange(1000.0)
    back = one(change, array, tensor).value()
    assert back[0][:2].tolist() == [99, 1]
    assert back[1][:2].tolist() == [198, 2]
    back[0][0] = 5
    assert array[0] == 0 == tensor[0]


def test_a_worker_imports_no_framework_by_itself(tmp_path: Any) -> None:
    out = run_script(
        tmp_path,
        """
import sys
from tests.launching.workers import one
def seen():
    import sys
    return [name for name in ("numpy", "torch", "asyncio") if name in sys.modules]
print(one(seen).value(), [name for name in ("numpy", "torch") if name in sys.modules])
""",
    )
    assert out == "[] []\n"


def test_without_cloudpickle_the_error_says_what_to_install(tmp_path: Any) -> None:
    (tmp_path / "cloudpickle.py").write_text("raise ImportError('not here')\n")
    code = "from lattice.launching import parcel\nparcel.dump(1)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}/src"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'pip install "lattice-addons-pytorch[launch]"' in done.stderr
