"""
A worker that stamps the moments of its life into files, on the clock that all processes of a machine share.

``stamped.py FOLDER idle`` only runs; ``training`` forms a process group and does one all_reduce after another, so that
a lost peer is felt as in real life; ``computing`` forms one and then computes alone for long.
"""

import time

BEGAN = time.monotonic()

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

LONGEST_LIFE = 300.0
"""seconds after which a worker ends by itself, if everybody has forgotten it"""
STEP = 0.1


def stamp(kind: str, at: float) -> None:
    """Leave a stamp: ``line`` for the first line of the script, ``group`` for a process group that works."""
    facts = {"pid": os.getpid(), "rank": int(os.environ["RANK"]), "world": int(os.environ["WORLD_SIZE"]), "at": at}
    path = Path(sys.argv[1]) / f"{os.getpid()}.{kind}"
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(facts))
    draft.rename(path)


def meet(training: bool) -> None:
    """Form a process group, and use it once or again and again."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    stamped = False
    while not stamped or (training and time.monotonic() < BEGAN + LONGEST_LIFE):
        total = torch.ones(1)
        dist.all_reduce(total)
        assert int(total) == dist.get_world_size()
        if not stamped:
            stamp("group", time.monotonic())
            stamped = True
        time.sleep(STEP)


stamp("line", BEGAN)
if sys.argv[2] != "idle":
    meet(training=sys.argv[2] == "training")
time.sleep(max(BEGAN + LONGEST_LIFE - time.monotonic(), 0))
