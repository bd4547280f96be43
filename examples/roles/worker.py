"""
A worker: finds the learner by its name, and tries points near the best one that the learner knows.

When the learner is gone it looks for it again; when the job ends it is asked to stop, and says what it did.
"""

import json
import os
import random
import signal
import socket
import sys
import time
from types import FrameType

import lattice


def loss(point: list[float]) -> float:
    """What a simulator, or a data set, would say; it takes its time."""
    time.sleep(0.02)
    return (point[0] - 3) ** 2 + (point[1] + 1) ** 2


class Worker:
    def __init__(self) -> None:
        self.name = f"pid {os.getpid()}"
        self.tries = 0
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, number: int, frame: FrameType | None) -> None:
        print(f"{self.name} was asked to stop after {self.tries} tries", flush=True)
        sys.exit(0)

    def work(self, place: str) -> None:
        host, _, port = place.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), timeout=30) as connection:
            talk = connection.makefile("rw")
            for line in talk:
                point = [x + random.gauss(0, 0.3) for x in json.loads(line)]
                talk.write(json.dumps([self.name, point, loss(point)]) + "\n")
                talk.flush()
                self.tries += 1


if __name__ == "__main__":
    worker = Worker()
    while True:
        (learner,) = lattice.peers("learner", at_least=1, timeout=60)
        try:
            worker.work(learner)
        except OSError:
            pass  # it is about to listen, or gone
        time.sleep(0.1)
