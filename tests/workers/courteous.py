"""A worker that gives heartbeats and heeds notices: `courteous.py FOLDER HOW [SIGNAL]`."""

import os
import signal
import sys
import time
from pathlib import Path

import lattice

folder, how = Path(sys.argv[1]), sys.argv[2]
number, rank = os.environ["LATTICE_ROUND"], os.environ["LATTICE_RANK"]


def say(what: str) -> None:
    print(f"{what} in round {number}", flush=True)
    (folder / f"{what.split()[0]}-{number}-{rank}").write_text(what)


def save(notice: lattice.Notice) -> None:
    say(f"saved because of {notice.reason}, {notice.seconds > 0}")


def note(notice: lattice.Notice) -> bool:
    say("noted")
    return False


def stop(*_: object) -> None:
    say("terminated")
    sys.exit(0)


match how:
    case "calls":
        lattice.on_notice(save, getattr(signal, sys.argv[3]) if len(sys.argv) > 3 else signal.SIGUSR1)
    case "notes":
        lattice.on_notice(note)
    case "ignores":
        lattice.on_notice(lambda notice: False)
    case "file":
        signal.signal(signal.SIGUSR2, lambda *_: say("signalled"))
signal.signal(signal.SIGTERM, stop)
step = 0
lattice.heartbeat(step)  # before anybody is told: only who has given one can be found to hang
say("began")
while not (folder / "exit").exists():
    lattice.heartbeat(step)
    step += 1
    while (folder / f"hang-{number}-{rank}").exists():
        time.sleep(0.01)
    if how in ("polls", "notes") and (notice := lattice.notice()) is not None:
        if not (folder / f"saved-{number}-{rank}").exists():
            save(notice)
        notice.ready()
    if how == "file" and Path(os.environ["LATTICE_NOTICE_FILE"]).exists():
        say("saved " + Path(os.environ["LATTICE_NOTICE_FILE"]).read_text())
        Path(os.environ["LATTICE_NOTICE_FILE"]).unlink()
    time.sleep(0.01)
