"""
A worker that stamps the moments of its life into files, on the clock that all processes of a machine share.

``stamped.py FOLDER idle`` only runs. All else imports torch at its top, as scripts do, and forms a process group:
``training`` then does one all_reduce after another, so that a lost peer is felt as in real life; ``computing`` computes
alone for long; ``stepping N`` trains a small model for N steps.
"""

import time

BEGAN = time.monotonic()

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

LONGEST_LIFE = 300.0
"""seconds after which a worker ends by itself, if everybody has forgotten it"""
PAUSE = 0.1
FIRST_STEPS = 100
"""steps that are not measured: memory is laid out, caches fill"""
STEPS_PER_LINE = 20


def stamp(kind: str, at: float) -> None:
    """Leave a stamp: ``line`` for the first line of the script, ``group`` for a process group that works."""
    facts = {"pid": os.getpid(), "rank": int(os.environ["RANK"]), "world": int(os.environ["WORLD_SIZE"]), "at": at}
    path = Path(sys.argv[1]) / f"{os.getpid()}.{kind}"
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(facts))
    draft.rename(path)


stamp("line", BEGAN)
if sys.argv[2] != "idle":
    import torch
    import torch.distributed as dist


def meet() -> None:
    """Form a process group and use it once."""
    dist.init_process_group("gloo")
    _reduce()
    stamp("group", time.monotonic())


def train() -> None:
    """Reduce again and again."""
    while time.monotonic() < BEGAN + LONGEST_LIFE:
        time.sleep(PAUSE)
        _reduce()


def step(count: int) -> None:
    """Train a small model: forward, backward, gradients averaged over all workers, and now and then a line."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 16))
    parameters = list(model.parameters())
    inputs, targets = torch.randn(64, 256), torch.randn(64, 16)
    for number in range(-FIRST_STEPS, count):
        if number == 0:
            dist.barrier()
            stamp("begin", time.monotonic())
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = torch.cat([parameter.grad.flatten() for parameter in parameters if parameter.grad is not None])
        dist.all_reduce(gradients)
        with torch.no_grad():
            position = 0
            for parameter in parameters:
                part = gradients[position : position + parameter.numel()].view_as(parameter)
                parameter.sub_(part, alpha=0.01 / dist.get_world_size())
                parameter.grad = None
                position += parameter.numel()
        if number % STEPS_PER_LINE == 0:
            print(f"step {number}: loss {float(loss):.6f}", flush=True)
    stamp("end", time.monotonic())


def _reduce() -> None:
    total = torch.ones(1)
    dist.all_reduce(total)
    assert int(total) == dist.get_world_size()


if sys.argv[2] != "idle":
    meet()
if sys.argv[2] == "training":
    train()
elif sys.argv[2] == "stepping":
    step(int(sys.argv[3]))
time.sleep(max(BEGAN + LONGEST_LIFE - time.monotonic(), 0))
