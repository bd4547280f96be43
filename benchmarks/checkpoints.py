"""``python -m benchmarks.checkpoints``: how long a save stops training, beside a memory copy and torch's own ways."""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

from lattice.checkpoint import Checkpointer

EXPECTED = 1.3
"""times one memory copy of the same bytes"""


class Contender:
    """One way to save, with what it cost."""

    def __init__(self, name: str, save: Callable[[int], object], settle: Callable[[], None]) -> None:
        self.name = name
        self.save = save
        self.settle = settle
        self.walls: list[float] = []
        self.cpus: list[float] = []

    def go(self, step: int) -> None:
        """Save once, and then wait, unmeasured, until nothing goes on any more."""
        wall, cpu = time.perf_counter(), time.process_time()
        self.save(step)
        self.walls.append(time.perf_counter() - wall)
        self.cpus.append(time.process_time() - cpu)
        self.settle()


def contenders(state: dict[str, Any], folder: Path) -> list[Contender]:
    """Make all of them, on the same state and disk."""
    copies = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    running: list[Any] = []

    def copy(step: int) -> None:
        for name, tensor in state.items():
            copies[name].copy_(tensor)

    def write(step: int) -> None:
        torch.save(state, folder / "torch.pt")

    def write_behind(step: int) -> None:
        running.append(dcp.async_save(state, checkpoint_id=str(folder / f"dcp-{step}"), no_dist=True))

    def settle() -> None:
        while running:
            running.pop().result()
        for old in folder.glob("dcp-*"):
            shutil.rmtree(old)

    ours = Checkpointer(folder / "lattice", keep_last=1)
    return [
        Contender("one memory copy", copy, lambda: None),
        Contender("lattice.checkpoint", lambda step: ours.save(step, state), lambda: _wait(ours)),
        Contender("torch.save", write, lambda: None),
        Contender("DCP async_save", write_behind, settle),
    ]


def _wait(saver: Checkpointer) -> None:
    saver.wait()


def main() -> int:
    """
    Measure.

    :return: 0, or 1 if a save took longer than expected
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1024, help="of state (1024)")
    parser.add_argument("--tensors", type=int, default=64, help="that it consists of (64)")
    parser.add_argument("--tries", type=int, default=7, help="after one that is not counted (7)")
    options = parser.parse_args()
    torch.set_num_threads(1)  # one copy is one core's work, for all of them
    each = options.megabytes * (1 << 20) // 4 // options.tensors
    state = {f"layer{number}": torch.rand(each) for number in range(options.tensors)}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        made = contenders(state, Path(folder))
        for step in range(1, options.tries + 3):
            for one in made:
                one.go(step)
        made[0].settle()
        first = [one.walls[0] for one in made]
        for one in made:  # memory is new at first, and the second buffer is when there is a second save
            one.walls, one.cpus = one.walls[2:], one.cpus[2:]
        least = statistics.median(made[0].walls)
        print(
            f"state of {options.megabytes} MB in {options.tensors} tensors, one thread, medians of {options.tries}:\n"
        )
        print("| training stands still for | seconds | CPU seconds | times a memory copy | the first time |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for one, begun in zip(made, first, strict=True):
            wall, cpu = statistics.median(one.walls), statistics.median(one.cpus)
            spread = f"{min(one.walls):.3f}-{max(one.walls):.3f}"
            print(f"| {one.name} | {wall:.3f} [{spread}] | {cpu:.3f} | {wall / least:.2f} | {begun:.2f} |")
        ratio = statistics.median(made[1].walls) / least
        print(
            f"\nexpected: at most {EXPECTED} times one memory copy: {'yes' if ratio <= EXPECTED else 'no'}, {ratio:.2f}"
        )
    return 0 if ratio <= EXPECTED else 1


if __name__ == "__main__":
    raise SystemExit(main())
