"""The etcd of a job asks for its password from the first moment on, and also when it comes up again on its own data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.scripts import require
from tests.waiting import patience

pytestmark = pytest.mark.lab
# Where it listens while it has no password is fixed: so this gets a network of its own.
PROGRAM = """
import os, subprocess, sys
from pathlib import Path
from lattice.jobs.protected_etcd import start

URL = "http://127.0.0.1:2379"

def ask(*words, user=""):
    given = {"ETCDCTL_USER": user} if user else {}
    line = ["etcdctl", "--endpoints", URL, "--command-timeout", "20s", *words]
    ended = subprocess.run(line, env={**os.environ, "ETCDCTL_API": "3", **given}, capture_output=True, text=True)
    return ended.stdout.split() if ended.returncode == 0 else ended.stderr.strip().splitlines()[-1]

for life in (1, 2):
    etcd = start(Path(sys.argv[1]), "token", "secret", URL, "--logger", "zap", "--log-outputs", "/dev/null")
    try:
        while "connection refused" in str(ask("endpoint", "health", user="root:secret")):
            pass
        print(life, ask("get", "kept", user="root:secret"), "user name is empty" in str(ask("get", "kept")))
        ask("put", "kept", "yes", user="root:secret")
    finally:
        etcd.terminate()
        etcd.wait()
"""


def test_it_comes_up_again_on_its_own_data(tmp_path: Path) -> None:
    require("etcd", "etcdctl", "unshare", "ip")
    program = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "-", sys.executable, "-c", PROGRAM]
    said = subprocess.run([*program, str(tmp_path)], capture_output=True, text=True, timeout=patience(200), check=False)
    assert (said.returncode, said.stdout) == (0, "1 [] True\n2 ['kept', 'yes'] True\n"), said.stderr[-3000:]
