"""``python -m benchmarks.peer``: installs torchrunx in an environment of its own, which shares torch with this one."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from benchmarks.jobs import ROOT

FOLDER = ROOT / ".venv" / "torchrunx"
PYTHON = FOLDER / "bin" / "python"
REQUIREMENTS = ROOT / "requirements" / "torchrunx.txt"


def main() -> None:
    """Make the environment anew."""
    venv.create(FOLDER, clear=True)
    own = sysconfig.get_path("purelib", "venv", {"base": str(FOLDER)})
    # Not a plain path: what this environment finds through files of that kind, the other one shall find too.
    shared = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    Path(own, "shared.pth").write_text(shared)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "--python", str(PYTHON)]
    # Without dependencies: some of them would bring a torch of their own, and gigabytes along.
    subprocess.run([*pip, "install", "--no-deps", "-r", str(REQUIREMENTS)], check=True)
    subprocess.run([PYTHON, "-c", "import fabric, paramiko, torch, torchrunx"], check=True)


def version() -> str:
    """Tell which torchrunx is there; empty if there is none."""
    if not PYTHON.exists():
        return ""
    ask = "from importlib.metadata import version; print(version('torchrunx'))"
    found = subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True, check=False)
    return found.stdout.strip()


if __name__ == "__main__":
    main()
