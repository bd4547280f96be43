"""The ImageNet example as a user runs it: one file, two workers, one of them killed on the way."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from examples.imagenet import main as imagenet
from tests.agents import ROOT, cluster
from tests.waiting import eventually, patience

MAIN = ROOT / "examples" / "imagenet" / "main.py"
TINY = ("--synthetic", "64", "--image_size", "16", "--batch_size", "16", "--lr", "0.02", "--loaders", "0")
EPOCH = 4
"""steps of such an epoch"""


def begun(text: str) -> list[tuple[int, int]]:
    """Give workers and first step of each time that it began."""
    return [(int(a), int(b)) for a, b in re.findall(r"resnet18, (\d+) workers: begin at step (\d+) of", text)]


def steps(text: str) -> list[int]:
    return [int(step) for step in re.findall(r"epoch \d+ step (\d+) loss", text)]


@pytest.mark.parametrize(
    ("arch", "parameters"),
    [
        ("resnet18", 11_689_512),
        ("resnet34", 21_797_672),
        ("resnet50", 25_557_032),
        ("resnet101", 44_549_160),
        ("resnet152", 60_192_808),
    ],
)
def test_models_are_as_large_as_those_of_the_paper(arch: str, parameters: int) -> None:
    with torch.device("meta"):
        model = imagenet.resnet(arch, 1000)
    assert sum(one.numel() for one in model.parameters()) == parameters


@pytest.mark.long
def test_it_goes_on_after_a_killed_worker_and_with_another_number_of_workers(tmp_path: Path) -> None:
    # The file alone, elsewhere: that is how it is submitted.
    alone = tmp_path / "alone" / "main.py"
    alone.parent.mkdir()
    shutil.copy(MAIN, alone)
    newest = tmp_path / "checkpoint" / "newest.pt"
    entry = [str(alone), *TINY, "--checkpoint", str(newest.parent), "--print_every", "1"]
    with cluster(tmp_path, "--framework", "pytorch", "--max_restarts", "1") as run:
        first = run.agent("--nproc_per_node", "2", entry=[*entry, "--epochs", "1000"], environ={"LATTICE_PRELOAD": ""})
        eventually(newest.exists, within=120)
        os.kill(first.events("workers started")[0]["pids"][1], signal.SIGKILL)
        eventually(lambda: begun(first.output())[1:] and steps(first.output())[-1] > begun(first.output())[1][1], 120)
        first.signal(signal.SIGTERM)
        first.wait(60)
        done = torch.load(newest, weights_only=True)["step"]
        epochs = max(done // EPOCH, 2) + 1
        second = run.agent("--nproc_per_node", "3", entry=[*entry, "--epochs", str(epochs)])
        assert second.wait(240) == 0, second.output()
    before, again = begun(first.output())
    assert before == (2, 0)
    assert again[0] == 2 and again[1] > 0, "it goes on from a checkpoint"
    told = steps(first.output())
    assert sorted(set(told)) == list(range(1, max(told) + 1)), "no step is left out"
    assert begun(second.output()) == [(3, done)]
    assert steps(second.output()) == list(range(done + 1, epochs * EPOCH + 1))
    assert re.search(rf"epoch {epochs - 1} accuracy [01]\.", second.output())


@pytest.mark.long
def test_there_is_something_to_learn_and_a_model_learns_it() -> None:
    torch.manual_seed(0)
    made = imagenet.Synthetic(12, 16, classes=2)
    images = torch.stack([made[index][0] for index in range(12)])
    labels = torch.tensor([made[index][1] for index in range(12)])
    model = imagenet.resnet("resnet18", 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    losses = []
    for _ in range(6):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_workers_share_each_batch_whatever_their_number(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    options = argparse.Namespace(batch_size=8)

    def batches(done: int) -> list[set[int]]:
        shares = []
        for rank in range(world):
            monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
            monkeypatch.setattr(dist, "get_world_size", lambda: world)
            shares.append(list(imagenet.shares(options, 35, done)))
        return [{image for share in step for image in share} for step in zip(*shares, strict=True)]

    whole = batches(0)
    assert [len(batch) for batch in whole] == [8] * 4
    assert len(set.union(*whole)) == 32, "no image comes twice in an epoch"
    order = torch.randperm(35, generator=torch.Generator().manual_seed(0)).tolist()
    assert whole == [set(order[at : at + 8]) for at in range(0, 32, 8)]
    assert batches(3) == whole[3:], "the rest of an epoch is the rest of its batches"
    assert batches(4) != whole


def test_what_is_wrong_is_told_before_anything_begins(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(MAIN), "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
    )
    assert done.returncode == 2
    if importlib.util.find_spec("PIL") is None:
        assert "pip install pillow" in done.stderr
    else:
        assert f"there is no folder {tmp_path / 'train'}" in done.stderr


def test_images_are_read_from_a_folder_for_each_class(tmp_path: Path) -> None:
    pil = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for name, color in (("cat", (255, 0, 0)), ("dog", (0, 0, 255))):
        (tmp_path / name).mkdir()
        for number, mode in enumerate(("RGB", "L", "RGBA")):
            pil.new("RGB", (40, 30), color).convert(mode).save(tmp_path / name / f"{number}.png")
    for training in (True, False):
        images = imagenet.Folder(tmp_path, 16, training=training)
        assert images.classes == ["cat", "dog"]
        assert [images[index][1] for index in range(len(images))] == [0, 0, 0, 1, 1, 1]
        pixels, _ = images[0]
        assert pixels.shape == (3, 16, 16)
        red = [
            (value - mean) / deviation
            for value, mean, deviation in zip((1, 0, 0), imagenet.MEAN, imagenet.DEVIATION, strict=True)
        ]
        assert torch.allclose(pixels.mean((1, 2)), torch.tensor(red), atol=1e-4)
