"""A worker that says who it is and then does what the test tells it: `scripted.py FOLDER`; needs no framework."""

import json
import os
import signal
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])
number, rank = os.environ["LATTICE_ROUND"], os.environ["LATTICE_RANK"]
facts: dict[str, object] = {
    name: value for name, value in os.environ.items() if name.startswith(("LATTICE_", "MASTER_", "TORCHELASTIC_"))
}
facts |= {"pid": os.getpid(), "argv": sys.argv[2:], "time": time.time()}


def stop(*_: object) -> None:
    print(f"worker {rank} told to stop", flush=True)
    sys.exit(0)


if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, stop)
name = f"{os.environ['LATTICE_AGENT']}-{number}-{rank}.json"
(folder / f".{name}").write_text(json.dumps(facts))
(folder / f".{name}").rename(folder / name)
print(f"worker {rank} of round {number}", flush=True)
while True:
    for order in (
        folder / f"exit-{number}-{rank}",
        folder / f"exit-{rank}",
        folder / f"exit-{number}",
        folder / "exit",
    ):
        if order.exists():
            code = int(order.read_text() or 0)
            if code:
                print(f"worker {rank} fails as told", file=sys.stderr)
                raise SystemExit(code)
            sys.exit(0)
    time.sleep(0.01)
