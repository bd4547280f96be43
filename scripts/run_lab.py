"""
Run tests; with ``--once_more``, as CI does in the lab, run each failed test a second time, alone, before it counts.

A lab of many machines on two cores is late now and then. A test that fails in the crowd and passes alone does not stop
every other change: it is printed as ``UNSTEADY``, the log of its failure is kept, and the run closes with a table of
all of them. A test that fails twice fails the run. So does everything that is not a failed test: a file that cannot be
imported, a test that was skipped although CI must run it, a session that broke off.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

KEPT_LOGS = Path(".cache/unsteady")
AT_MOST = 15
"""failed tests that are run once more; more of them are no accident, and would take longer than CI has"""
TESTS_FAILED = 1
"""exit code of pytest"""


@dataclass(frozen=True)
class Failures:
    """What a session left behind."""

    logs: dict[str, str]
    """of each test that failed"""
    final: list[str]
    """failures that are not those of a test, so that there is nothing to run once more"""


@dataclass(frozen=True)
class Unsteady:
    """A test that failed, and passed when it ran alone."""

    test: str
    log: Path


def run_session(words: list[str]) -> tuple[int, Failures]:
    """
    Run pytest.

    :return: its exit code, and what failed
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "failures.json")
        code = subprocess.run([sys.executable, "-m", "pytest", "--failures", str(path), *words], check=False).returncode
        if not path.exists():
            return code, Failures({}, ["the session broke off"])
        return code, Failures(**json.loads(path.read_text()))


def keep_log(folder: Path, test: str, log: str) -> Path:
    """Write the log of a test's first failure, and return where it is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"[^\w.-]+", "_", test)[-150:] + ".log")
    path.write_text(f"{test}\n{log}")
    return path


def run_once_more(failures: Failures, folder: Path) -> tuple[list[Unsteady], list[str]]:
    """
    Run each failed test again, alone.

    :return: those that passed now, and those that failed twice
    """
    unsteady, failed = [], []
    for test, log in failures.logs.items():
        path = keep_log(folder, test, log)
        print(f"\nonce more, alone: {test}", flush=True)
        code, _ = run_session([test])
        if code == 0:
            unsteady.append(Unsteady(test, path))
            print(f"UNSTEADY {test}", flush=True)
        else:
            failed.append(test)
            print(f"FAILED TWICE {test}", flush=True)
    return unsteady, failed


def close(unsteady: list[Unsteady], failed: list[str]) -> None:
    """Print the table of tests that were run once more."""
    width = max(len(test) for test in [*failed, *(one.test for one in unsteady)])
    print(f"\n{'test':{width}}  result        log of the first failure")
    for test in failed:
        print(f"{test:{width}}  failed twice  see above")
    for one in unsteady:
        print(f"{one.test:{width}}  UNSTEADY      {one.log}")
    print(f"{len(failed)} failed twice, {len(unsteady)} unsteady: find the cause of each.", flush=True)


def main(words: list[str]) -> int:
    """Run the session, and once more what failed in it."""
    parser = argparse.ArgumentParser(prog="python -m scripts.run_lab", description=__doc__.strip().partition("\n")[0])
    parser.add_argument("--once_more", action="store_true", help="run each failed test once more, alone")
    parser.add_argument("--logs", type=Path, default=KEPT_LOGS, help="folder for logs of first failures (%(default)s)")
    options, rest = parser.parse_known_args(words)
    code, failures = run_session(rest)
    if code != TESTS_FAILED or not options.once_more:
        return code
    if failures.final or not failures.logs:
        return code
    if len(failures.logs) > AT_MOST:
        print(f"{len(failures.logs)} tests failed, more than the {AT_MOST} that are run once more.")
        return code
    unsteady, failed = run_once_more(failures, options.logs)
    close(unsteady, failed)
    return TESTS_FAILED if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
