"""A worker of a gloo group: says who it is once the group works, then reduces until told to exit or a peer is gone."""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

folder = Path(sys.argv[1])
number, rank = os.environ["LATTICE_ROUND"], os.environ["LATTICE_RANK"]
dist.init_process_group("gloo", timeout=timedelta(minutes=10))  # the test that started it gives up sooner


def reduced(value: int) -> int:
    tensor = torch.tensor([value])
    dist.all_reduce(tensor)
    return int(tensor)


facts: dict[str, object] = {
    name: value for name, value in os.environ.items() if name.startswith(("LATTICE_", "MASTER_", "TORCHELASTIC_"))
}
facts |= {"pid": os.getpid(), "time": time.time(), "sum": reduced(dist.get_rank() + 1)}
name = f"{os.environ['LATTICE_AGENT']}-{number}-{rank}.json"
(folder / f".{name}").write_text(json.dumps(facts))
(folder / f".{name}").rename(folder / name)
while not reduced(int((folder / "exit").exists())):
    time.sleep(0.01)
dist.destroy_process_group()
