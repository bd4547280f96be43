"""
ResNet on ImageNet, elastically: DDP, and checkpoints in a folder that all nodes share.

    lattice run --framework pytorch --nproc_per_node gpu --max_restarts 3 examples/imagenet/main.py

Whatever changes, every worker starts anew, loads the newest checkpoint and goes on with the batch after it. A batch is
the same however many workers share it, so a restart with more or fewer of them neither skips nor repeats an image. All
of it is in this one file, so that it can be submitted alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

Images = Dataset[tuple[Tensor, int]]

STAGES = {
    "resnet18": (False, (2, 2, 2, 2)),
    "resnet34": (False, (3, 4, 6, 3)),
    "resnet50": (True, (3, 4, 6, 3)),
    "resnet101": (True, (3, 4, 23, 3)),
    "resnet152": (True, (3, 8, 36, 3)),
}
"""whether blocks have a bottleneck, and how many of them each stage has"""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """Two convolutions of 3x3, or one between two of 1x1, and a way around them."""

    def __init__(self, inside: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        outside = width * 4 if bottleneck else width
        shapes = [(inside, width, 3, stride), (width, width, 3, 1)]
        if bottleneck:
            shapes = [(inside, width, 1, 1), (width, width, 3, stride), (width, outside, 1, 1)]
        layers: list[nn.Module] = []
        for shape in shapes:
            layers += [*convolution(*shape), nn.ReLU(inplace=True)]
        self.through = nn.Sequential(*layers[:-1])
        same = stride == 1 and inside == outside
        self.around = nn.Identity() if same else nn.Sequential(*convolution(inside, outside, 1, stride))

    def forward(self, images: Tensor) -> Tensor:
        return functional.relu(self.through(images) + self.around(images))


def convolution(inside: int, outside: int, size: int, stride: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(inside, outside, size, stride, size // 2, bias=False), nn.BatchNorm2d(outside)


def resnet(arch: str, classes: int) -> nn.Sequential:
    """Make a ResNet as in the paper (arXiv:1512.03385), its strides in the 3x3 convolutions."""
    bottleneck, stages = STAGES[arch]
    layers: list[nn.Module] = [*convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for stage, blocks in enumerate(stages):
        width = 64 * 2**stage
        for block in range(blocks):
            layers.append(Block(inside, width, 2 if stage and not block else 1, bottleneck=bottleneck))
            inside = width * 4 if bottleneck else width
    made = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))
    for module in made.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return made


class Folder(Images):
    """Images in a folder for each class."""

    def __init__(self, root: Path, size: int, *, training: bool) -> None:
        self.classes = sorted(path.name for path in root.iterdir() if path.is_dir())
        self.files = [
            (path, label) for label, name in enumerate(self.classes) for path in sorted((root / name).iterdir())
        ]
        self.size, self.training = size, training

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        path, label = self.files[index]
        with Image.open(path) as file:
            image = file.convert("RGB")
        width, height = image.size
        # A square of a random share of the image while training, the middle of it otherwise.
        share = 0.4 + 0.6 * torch.rand(1).item() if self.training else 0.875
        side = min(width, height) * share
        left, top = ((whole - side) * (torch.rand(1).item() if self.training else 0.5) for whole in (width, height))
        box = (left, top, left + side, top + side)
        image = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        pixels = pixels.reshape(self.size, self.size, 3).permute(2, 0, 1).float() / 255
        if self.training and torch.rand(1).item() < 0.5:
            pixels = pixels.flip(2)
        return (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(DEVIATION).view(3, 1, 1), label


class Synthetic(Images):
    """Images of noise on a ground by which their classes can be told: there is something to learn."""

    def __init__(self, count: int, size: int, *, classes: int, first: int = 0) -> None:
        self.classes = [str(label) for label in range(classes)]
        self.count, self.size, self.first = count, size, first

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        label = index % len(self.classes)
        ground = torch.randn(3, 1, 1, generator=torch.Generator().manual_seed(label))
        dice = torch.Generator().manual_seed(self.first + index)
        return ground + 0.5 * torch.randn(3, self.size, self.size, generator=dice), label


def main() -> None:
    options = arguments()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if options.batch_size < 2 * world:
        raise SystemExit(f"--batch_size {options.batch_size} gives some of {world} workers fewer than two images")

    training, held_back = datasets(options)
    steps = len(training) // options.batch_size  # of an epoch
    if not steps:
        raise SystemExit(f"{len(training)} images are less than one batch of --batch_size {options.batch_size}")
    torch.manual_seed(0)
    model = resnet(options.model_arch, len(training.classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), options.lr, momentum=0.9, weight_decay=1e-4)
    done = load(options, model, optimizer, device)
    replica = DistributedDataParallel(model, device_ids=[device.index] if cuda else None)
    if rank == 0:
        print(f"{options.model_arch}, {world} workers: begin at step {done} of {options.epochs * steps}", flush=True)

    while done < options.epochs * steps:
        epoch = done // steps
        for group in optimizer.param_groups:
            group["lr"] = options.lr * 0.1 ** (epoch // 30)
        model.train()
        began, since = time.monotonic(), done
        for images, labels in loader(training, shares(options, len(training), done), options.loaders):
            outputs = replica(images.to(device, non_blocking=True))
            # DDP takes the mean over workers, whose shares of a batch may differ by one.
            loss = functional.cross_entropy(outputs, labels.to(device), reduction="sum") * world / options.batch_size
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done % options.print_every == 0 or done % steps == 0:
                dist.all_reduce(mean := loss.detach().cpu() / world)
                speed = (done - since) * options.batch_size / (time.monotonic() - began)
                if rank == 0:
                    place = f"epoch {epoch} step {done}"
                    print(f"{place} loss {mean.item():.4f} {speed:.0f} images/s world {world}", flush=True)
            if rank == 0 and (done % options.save_every == 0 or done % steps == 0):
                save(options, done, model, optimizer)
        right = accuracy(model, held_back, options, device)
        if rank == 0:
            print(f"epoch {epoch} accuracy {right:.4f}", flush=True)
    dist.destroy_process_group()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a ResNet, elastically.")
    add = parser.add_argument
    add("--model_arch", "--model-arch", choices=STAGES, default="resnet18", help="which ResNet")
    add("--data", type=Path, default=Path("/mnt/efs1/imagenet"), help="folder with train/CLASS/* and val/CLASS/*")
    add("--synthetic", type=int, metavar="N", nargs="?", const=10_000, help="made-up images instead, so many of them")
    add("--checkpoint", type=Path, default=Path("/mnt/efs1/checkpoint"), help="folder that all nodes share")
    add("--epochs", type=int, default=90)
    add("--batch_size", type=int, default=256, help="images of a step, over all workers")
    add("--lr", type=float, default=0.1, help="learning rate; a tenth of it after each 30 epochs")
    add("--image_size", type=int, default=224, help="pixels of each side")
    add("--loaders", type=int, default=4, help="processes that read images, for each worker")
    add("--print_every", type=int, default=10, metavar="STEPS")
    add("--save_every", type=int, default=500, metavar="STEPS", help="besides after each epoch")
    options = parser.parse_args()
    if options.synthetic is None:
        if importlib.util.find_spec("PIL") is None:
            parser.error("reading images needs Pillow in the image or environment: pip install pillow (or --synthetic)")
        for part in ("train", "val"):
            if not (options.data / part).is_dir():
                parser.error(f"there is no folder {options.data / part}; --data names the one that holds it")
    return options


def datasets(options: argparse.Namespace) -> tuple[Any, Any]:
    """Give what is trained on, and what is held back to see how well it goes."""
    if options.synthetic is None:
        train, val = options.data / "train", options.data / "val"
        return Folder(train, options.image_size, training=True), Folder(val, options.image_size, training=False)
    seen, unseen = options.synthetic, max(options.synthetic // 10, 10)
    made = Synthetic(seen, options.image_size, classes=10)
    return made, Synthetic(unseen, options.image_size, classes=10, first=seen)


def shares(options: argparse.Namespace, images: int, done: int) -> Iterator[list[int]]:
    """Give this worker's share of each batch that is left of the epoch: worker r has images r, r + world, ..."""
    rank, world = dist.get_rank(), dist.get_world_size()
    steps = images // options.batch_size
    order = torch.randperm(images, generator=torch.Generator().manual_seed(done // steps)).tolist()
    for step in range(done % steps, steps):
        yield order[step * options.batch_size : (step + 1) * options.batch_size][rank::world]


def loader(images: Images, batches: Iterator[list[int]] | Sequence[list[int]], processes: int) -> DataLoader[Any]:
    pinned = torch.cuda.is_available()
    return DataLoader(images, batch_sampler=list(batches), num_workers=processes, pin_memory=pinned)


def accuracy(model: nn.Module, images: Any, options: argparse.Namespace, device: torch.device) -> float:
    """Tell for what share of the images the right class came first; every worker looks at its own."""
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = range(rank, len(images), world)
    batch = max(options.batch_size // world, 1)
    right = torch.zeros(1)
    model.eval()
    with torch.inference_mode():
        for some, labels in loader(images, [list(mine[i : i + batch]) for i in range(0, len(mine), batch)], 0):
            right += (model(some.to(device)).argmax(1).cpu() == labels).sum()
    dist.all_reduce(right)
    return right.item() / len(images)


def save(options: argparse.Namespace, done: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Replace the checkpoint in one move: who reads it finds a whole one, the old or the new."""
    options.checkpoint.mkdir(parents=True, exist_ok=True)
    # A worker of a round that is over may still be writing: everyone writes to a file of their own.
    unfinished = options.checkpoint / f"unfinished-{os.getpid()}-{time.time_ns()}"
    state = {"arch": options.model_arch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**state, "step": done}, unfinished)
    unfinished.replace(options.checkpoint / "newest.pt")


def load(options: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Take up the newest checkpoint; rank 0 says which step that is, so that nobody begins at another one."""
    newest = options.checkpoint / "newest.pt"
    state: list[Any] = [None]
    if dist.get_rank() == 0 and newest.exists():
        state = [torch.load(newest, weights_only=True, map_location="cpu")]
    dist.broadcast_object_list(state, src=0, device=torch.device("cpu"))
    if state[0] is None:
        return 0
    if state[0]["arch"] != options.model_arch:
        raise SystemExit(f"{newest} is of {state[0]['arch']}, not of {options.model_arch}: name another --checkpoint")
    model.load_state_dict(state[0]["model"])
    optimizer.load_state_dict(state[0]["optimizer"])
    return int(state[0]["step"])


if __name__ == "__main__":
    main()
