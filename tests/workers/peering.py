"""
A worker that deals with another role: `peering.py FOLDER HOW ROLE`, after saying who it is, as the scripted one does.

serves: greets whoever connects to its port, until it is told to exit. asks: connects to a worker of the role, says what
it heard, and fails when that worker is gone. saves: takes its time, SAVING seconds, to save when it is told to stop.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import lattice

folder, how, role = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
number, rank = os.environ["LATTICE_ROUND"], os.environ["LATTICE_RANK"]


def say(what: str, text: str) -> None:
    (folder / f".{what}").write_text(text)
    (folder / f".{what}").rename(folder / what)


def save(*_: object) -> None:
    time.sleep(float(os.environ.get("SAVING", "1")))
    say(f"saved-{rank}", "in time")
    sys.exit(0)


signal.signal(signal.SIGTERM, save if how == "saves" else lambda *_: sys.exit(0))
facts = {name: value for name, value in os.environ.items() if name.startswith("LATTICE_")} | {"pid": os.getpid()}
say(f"{os.environ['LATTICE_AGENT']}-{number}-{rank}.json", json.dumps(facts))
match how:
    case "serves":
        with socket.create_server(("", int(os.environ["LATTICE_WORKER_PORT"]))) as server:
            server.settimeout(0.05)
            kept = []
            while not any((folder / order).exists() for order in ("exit", f"exit-{rank}")):
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                connection.sendall(b"hello from " + rank.encode())
                kept.append(connection)
    case "asks":
        (place, *_) = lattice.peers(role, at_least=1, timeout=600)
        host, port = place.rsplit(":", 1)
        deadline = time.monotonic() + 600  # the test that started it gives up sooner
        while True:  # it has been announced, and may not listen yet
            try:
                connection = socket.create_connection((host, int(port)))
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        say(f"heard-{rank}", connection.recv(100).decode())
        sys.exit(7 if connection.recv(100) == b"" else 0)
    case _:
        while not (folder / "exit").exists():
            time.sleep(0.01)
