"""Scripts of jobs with roles, as text, and the job files that name them."""

from __future__ import annotations

from pathlib import Path

SERVE = """\
import os, signal, socket, sys
import lattice

code, wanted = int(sys.argv[1]), int(sys.argv[2])
signal.signal(signal.SIGTERM, lambda *_: (print("learner saved", flush=True), sys.exit(0)))
seen, there = [], -1
with socket.create_server(("", int(os.environ["LATTICE_WORKER_PORT"]))) as server:
    server.settimeout(0.05)
    print("pid", os.getpid(), flush=True)
    while len(seen) < wanted:
        if len(lattice.peers("worker")) != there:
            there = len(lattice.peers("worker"))
            print("workers:", there, flush=True)
        try:
            connection, _ = server.accept()
        except TimeoutError:
            continue
        with connection, connection.makefile("rw") as talk:
            connection.settimeout(20)
            name = talk.readline().strip()
            talk.write("learner heard " + name + "\\n")
            talk.flush()
            if talk.readline():  # it has printed that: the last one would be told to stop before
                seen.append(name)
                print("heard", name, flush=True)
sys.exit(code)
"""
"""a learner: ends with a code when it has heard so many workers; shows how many it knows of"""

ASK = """\
import os, signal, socket, sys, time
import lattice

signal.signal(signal.SIGTERM, lambda *_: (print("worker saved", flush=True), sys.exit(0)))
(place,) = lattice.peers("learner", at_least=1, timeout=120)
host, _, port = place.rpartition(":")
for attempt in range(1200):
    try:
        connection = socket.create_connection((host, int(port)), timeout=20)
        break
    except ConnectionRefusedError:  # it has been announced, and may not listen yet
        time.sleep(0.05)
with connection, connection.makefile("rw") as talk:
    talk.write(f"{os.environ['LATTICE_WORKER_ROLE']} {os.getpid()}\\n")
    talk.flush()
    print(talk.readline().strip(), flush=True)
    talk.write("printed\\n")
    talk.flush()
time.sleep(1000)
"""
"""a worker: tells the learner its pid, and saves when it is told to stop"""

FAIL = """\
import sys
print("this is the end", file=sys.stderr, flush=True)
sys.exit(9)
"""

TELL = """\
import json, os
words = (os.environ[name] for name in ("LATTICE_WORKER_ROLE", "LATTICE_RANK", "LATTICE_WORLD_SIZE"))
print(json.dumps(list(words)), flush=True)
"""

RACE = """\
folder: project
rdzv_conf: lease_ttl=3
primary: learner
roles:
  worker: {{script: {worker}, {of_worker}}}
  learner: {{script: serve.py, args: [{code}, {wanted}]}}
"""
"""one learner, and workers"""


def race(folder: Path, *, of_worker: str = "size: 2", code: int = 0, wanted: int = 2, worker: str = "ask.py") -> str:
    """
    Write the files of a job with a learner and workers, and name its file.

    :param of_worker: what the file says of the workers besides
    :param code: of the learner's exit
    :param wanted: how many workers it wants to hear
    :param worker: the script of the workers
    """
    return written(folder, RACE.format(worker=worker, of_worker=of_worker, code=code, wanted=wanted))


def written(folder: Path, file: str) -> str:
    """Write a job file beside a folder with all scripts, and name it."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    for name, text in {"serve.py": SERVE, "ask.py": ASK, "fail.py": FAIL, "tell.py": TELL}.items():
        (project / name).write_text(text)
    (folder / "job.yaml").write_text(file)
    return "job.yaml"
