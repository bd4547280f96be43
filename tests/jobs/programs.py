"""Scripts that the tests submit, as text: a job runs a copy of what it is given."""

TELL = """\
import json, os, sys
print(json.dumps([int(os.environ["LATTICE_RANK"]), int(os.environ["LATTICE_WORLD_SIZE"]), sys.argv[1:]]), flush=True)
"""

FAIL = """\
import os, sys
if os.environ["LATTICE_RANK"] == "1":
    print("this is the end", file=sys.stderr, flush=True)
    sys.exit(7)
"""

FAIL_ONCE = """\
import os, sys
if os.environ["LATTICE_RESTART_COUNT"] == "0" and os.environ["LATTICE_RANK"] == "1":
    sys.exit(7)
print("fine", flush=True)
"""

SAVE = """\
import os, signal, subprocess, sys, time
child = subprocess.Popen(["sleep", "1000"])
def save(*_):
    print("saved", flush=True)
    time.sleep(0.5)  # a second signal would come into this
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(1000)
"""
