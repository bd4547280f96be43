"""What a try leaves behind is ended, and its processor time is counted with that try."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.waiting import patience

SCRIPT = """
import os, resource, subprocess, sys
from benchmarks import processes

ORPHANS = '''
import os, time
read, write = os.pipe()
for _ in range(3):
    if os.fork() == 0:
        while time.process_time() < 0.1:
            pass
        os.write(write, b"!")
        time.sleep(600)
left = 3
while left:
    left -= len(os.read(read, left))
'''
processes.become_subreaper()
kept = subprocess.Popen(["sleep", "600"])
subprocess.run([sys.executable, "-c", ORPHANS], check=True)
processes.kill_descendants(keep=[kept.pid])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
assert processes.descendants(os.getpid(), ended=True) == [kept.pid]
assert used.ru_utime + used.ru_stime > 0.25, used
kept.kill()
kept.wait()
"""


def test_what_a_try_leaves_is_ended_and_counted() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, check=False, timeout=patience(120)
    )
    assert done.returncode == 0, done.stderr
