"""A worker that counts, saves every number, and does what its plan says: ``saver.py WHERE PLAN``."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import lattice
from lattice.checkpoint import Checkpointer

where, plan = sys.argv[1], json.loads(sys.argv[2])
folder = Path(plan.get("folder", "."))
restarts = os.environ.get("LATTICE_RESTART_COUNT", "0")
saver = Checkpointer(where, **plan.get("settings", {}))
default: dict[str, Any] = {"count": np.zeros(plan.get("size", 10)), "words": ["kept"]}
state, step = saver.restore(default)
assert state["words"] == ["kept"] and (state["count"] == step).all(), (step, state)
print(f"rank {os.environ.get('LATTICE_RANK', '0')} from {step}", flush=True)
if plan.get("notice"):
    saver.save_on_notice(lambda: (step, state))
while step < plan["steps"]:
    step += 1
    state["count"] += 1
    lattice.heartbeat(step)
    if not plan.get("notice"):
        saver.save(step, state, metric=float(-abs(step - 2)))
    (folder / f"saved-{step}").touch()
    while plan.get("stored") == step and not saver.steps():
        time.sleep(0.01)
    if plan.get("kill", {}).get(restarts) == step:
        os.kill(os.getpid(), signal.SIGKILL)
    while plan.get("hold") == step and not (folder / "go").exists():
        time.sleep(0.01)  # may be interrupted by a signal, and goes on
