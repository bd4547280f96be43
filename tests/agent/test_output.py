"""What workers write: all of it in files that nothing deletes, on the console as the user wished, and never a brake."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import Cluster, alive
from tests.waiting import eventually

SPEAKS = """
import os, sys
rank, number = os.environ["LATTICE_RANK"], os.environ["LATTICE_ROUND"]
print(f"out of {rank} in {number}", flush=True)
print(f"err of {rank} in {number}", file=sys.stderr, flush=True)
sys.exit(0 if number == "3" else 1 if rank == "0" else 0)
"""

SLOW_PUMP = """
import sys, threading
from lattice.cli import run
from lattice.telemetry.console import Console

reported = threading.Event()
say, show = Console.say, Console.show

def say_and_note(console, text, *arguments, **options):
    say(console, text, *arguments, **options)
    if "First to fail" in text:
        reported.set()

def show_late(console, stream, text, *arguments):
    if b"saved what there was" in text:
        reported.wait(2.0)  # an agent that does not wait for the pump reports meanwhile
    show(console, stream, text, *arguments)

Console.say, Console.show = say_and_note, show_late
sys.exit(run())
"""
SPEAKS_AT_THE_END = """
import os, signal, sys, time
from pathlib import Path

def stop(*_):
    print("saved what there was", flush=True)
    sys.exit(0)

ready = Path(sys.argv[1])
if os.environ["LATTICE_RANK"] == "1":
    while not ready.exists():
        time.sleep(0.01)
    sys.exit("rank 1 fails")
signal.signal(signal.SIGTERM, stop)
ready.touch()
while True:
    time.sleep(1)
"""


def test_every_round_of_every_worker_keeps_its_files(alone: Cluster) -> None:
    agent = alone.agent("--nproc_per_node", "2", "--max_restarts", "2", entry=[alone.script(SPEAKS)])
    assert agent.wait() == 0
    for number in (1, 2, 3):
        assert alone.log(number, 0) == f"out of 0 in {number}\n"
        assert alone.log(number, 0, "stderr") == f"err of 0 in {number}\n"


def test_console_lines_say_whose_they_are(alone: Cluster) -> None:
    agent = alone.agent("--nproc_per_node", "2", entry=[alone.script(SPEAKS.replace('"3"', '"1"'))])
    assert agent.wait() == 0
    lines = agent.output().splitlines()
    for rank in (0, 1):
        assert f"[rank {rank}] out of {rank} in 1" in lines
        assert f"[rank {rank}] err of {rank} in 1" in lines


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--redirects", "3"], set()),
        (["--redirects", "1"], {"err 0", "err 1"}),
        (["--redirects", "1:3"], {"out 0", "err 0"}),
        (["-r", "3", "-t", "0:1"], {"out 0"}),
        (["--local_ranks_filter", "1"], {"out 1", "err 1"}),
    ],
)
def test_streams_that_are_shown(alone: Cluster, options: list[str], shown: set[str]) -> None:
    program = alone.script(SPEAKS.replace('"3"', '"1"'))
    agent = alone.agent("--nproc_per_node", "2", *options, entry=[program])
    assert agent.wait() == 0
    found = {
        f"{kind} {rank}" for kind in ("out", "err") for rank in (0, 1) if f"{kind} of {rank} in 1" in agent.output()
    }
    assert found == shown
    assert alone.log(1, 0) and alone.log(1, 1, "stderr"), "files get everything whatever is shown"


def test_the_final_report_comes_after_all_that_workers_wrote(alone: Cluster) -> None:
    worker, program = alone.script(SPEAKS_AT_THE_END), alone.script(SLOW_PUMP, "slow_pump.py")
    agent = alone.agent("--nproc_per_node", "2", entry=[worker, str(alone.folder / "ready")], program=[program])
    assert agent.wait() == 1
    lines = agent.output().splitlines()
    report = next(at for at, line in enumerate(lines) if "First to fail" in line)
    assert lines.index("[rank 0] saved what there was") < report
    assert all(line.startswith("lattice: ") for line in lines[report:]), agent.output()


def test_a_worker_that_floods_does_not_slow_the_others(alone: Cluster) -> None:
    program = alone.script("""
import os, sys, time
from pathlib import Path
here = Path(sys.argv[1])
if os.environ["LATTICE_RANK"] == "0":
    line = "x" * 199 + "\\n"
    while not (here / "enough").exists():
        sys.stdout.write(line * 50)
        (here / "flooded").touch()
else:
    while not (here / "flooded").exists():
        time.sleep(0.01)
    for number in range(200):
        print("tick", number, flush=True)
    (here / "enough").write_text("")
""")
    agent = alone.agent("--nproc_per_node", "2", "--redirects", "0:1", entry=[program, str(alone.folder)])
    assert agent.wait() == 0
    assert alone.log(1, 1).count("tick") == 200
    flooded = alone.log(1, 0)
    assert set(flooded.splitlines()) == {"x" * 199}, "a line was torn or lost"


def test_nothing_of_two_hundred_thousand_lines_is_lost(alone: Cluster) -> None:
    program = alone.script("import sys\nfor number in range(100_000):\n    print('line', number)")
    agent = alone.agent("--nproc_per_node", "2", entry=[program])
    assert agent.wait() == 0
    for rank in (0, 1):
        assert alone.log(1, rank) == "".join(f"line {number}\n" for number in range(100_000))


def test_a_stuck_terminal_does_not_stop_training(alone: Cluster) -> None:
    program = alone.script("""
import sys
from pathlib import Path
line = "y" * 999 + "\\n"
for _ in range(20_000):
    sys.stdout.write(line)
sys.stdout.flush()
Path(sys.argv[1]).write_text("")
""")
    read, write = os.pipe()  # nobody reads: like a terminal after Ctrl-S
    done = alone.folder / "done"
    try:
        redirect = ["sh", "-c", f'exec "$@" >/proc/{os.getpid()}/fd/{write} 2>&1', "sh"]
        agent = alone.agent(entry=[program, str(done)], prefix=redirect)
        eventually(done.exists)
        assert agent.wait() == 0
        assert len(alone.log(1, 0)) == 20_000_000
    finally:
        os.close(read)
        os.close(write)


def test_a_console_whose_reader_is_gone_does_not_stop_training(alone: Cluster) -> None:
    read, write = os.pipe()
    try:
        redirect = ["sh", "-c", f'exec "$@" >/proc/{os.getpid()}/fd/{write} 2>&1', "sh"]
        agent = alone.agent(prefix=redirect)
        alone.round_of(1)
    finally:
        os.close(read)
        os.close(write)
    alone.tell("exit", 6)
    assert agent.wait() == 6


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KB."""
    if os.geteuid() != 0:
        pytest.skip("a small disk needs root, to mount it")
    place = tmp_path / "tiny"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tiny", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_up_costs_bytes_and_not_the_run(alone: Cluster, tiny: Path) -> None:
    program = alone.script("for number in range(50_000):\n    print('line', number)")
    agent = alone.agent("--log_dir", str(tiny), "--redirects", "3", entry=[program])
    assert agent.wait() == 0
    assert "No space left on device" in agent.output()
    assert "LATTICE_LOG_DIR" in agent.output()
    assert "bytes of the workers' output are not in the log files" in agent.output()


def test_a_disk_that_is_full_at_the_start_is_an_error(alone: Cluster, tiny: Path) -> None:
    with (tiny / "full").open("wb") as file, pytest.raises(OSError, match="No space"):
        file.write(bytes(1 << 20))
    agent = alone.agent("--log_dir", str(tiny))
    assert agent.wait() == 2
    (line,) = agent.output().splitlines()
    assert "No space left" in line and "--log_dir" in line


def test_output_of_a_child_that_a_worker_leaves_does_not_hold_up_the_end(alone: Cluster) -> None:
    program = alone.script("""
import subprocess, sys
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(child.pid, flush=True)
""")
    agent = alone.agent(entry=[program])
    assert agent.wait() == 0
    assert not alive(int(alone.log(1, 0)))
