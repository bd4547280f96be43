"""
The learner: hands the best point that it knows to whoever asks, and hears who found a better one.

Workers find it as ``lattice.peers("learner")``; it listens where Lattice told it to.
"""

import json
import os
import socketserver
import sys
import threading
import time

import lattice

SECONDS = float(os.environ.get("SECONDS", "10"))


class Best:
    """The best point so far, whoever found it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.point = [0.0, 0.0]
        self.loss = float("inf")
        self.tries: dict[str, int] = {}


class Talk(socketserver.StreamRequestHandler):
    """One worker: it gets the best point, and answers with another and its loss, again and again."""

    def handle(self) -> None:
        while True:
            self.wfile.write(json.dumps(best.point).encode() + b"\n")
            line = self.rfile.readline()
            if not line:
                return
            who, point, loss = json.loads(line)
            with best.lock:
                best.tries[who] = best.tries.get(who, 0) + 1
                if loss < best.loss:
                    best.point, best.loss = point, loss


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


best = Best()

if __name__ == "__main__":
    with Server(("", int(os.environ["LATTICE_WORKER_PORT"])), Talk) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        there: list[str] = []
        until = time.monotonic() + SECONDS
        while time.monotonic() < until or not best.tries:
            if (now := lattice.peers("worker")) != there:
                there = now
                print(f"{len(there)} workers are there: {' '.join(there)}", flush=True)
            time.sleep(0.2)
        server.shutdown()
    tries = ", ".join(f"{count} by {who}" for who, count in sorted(best.tries.items()))
    print(f"best: {best.point[0]:.3f} {best.point[1]:.3f}, loss {best.loss:.5f}; tries: {tries}", flush=True)
    sys.exit(0 if best.loss < 1 else 1)
