"""What the kernel says of memory: read from what it wrote on machines of either kind."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from lattice.process import cgroups, shortage
from lattice.process.cgroups import MemoryGroup, groups_of
from lattice.process.shortage import Shortage, victims
from tests.limited import limited
from tests.waiting import eventually, patience

LOGGED = """\
6,1201,88150900,-;python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
6,1240,88150977,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,task=python3,pid=4711,uid=0
3,1241,88150980,-;Memory cgroup out of memory: Killed process 4711 (python3) total-vm:412kB, anon-rss:393216kB
6,1242,88151001,-;oom_reaper: reaped process 4711 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB
"""
OLDER = """\
3,9,1,-;Out of memory: Kill process 812 (trainer) score 905 or sacrifice child
3,10,1,-;Killed process 812 (trainer) total-vm:81228kB, anon-rss:80000kB, file-rss:0kB
6,11,1,-;audit: pid=99 uid=0
"""


def test_whom_the_log_names() -> None:
    assert victims(LOGGED) == {4711}
    assert victims(OLDER) == {812}
    assert victims("6,1,1,-;eth0: link becomes ready\n") == frozenset()


@pytest.mark.parametrize(
    ("version", "events", "stat"),
    [
        (1, ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"), "total_inactive_file"),
        (2, ("memory.events", "low 0\nhigh 0\nmax 317\noom 2\noom_kill {}\noom_group_kill 0\n"), "inactive_file"),
    ],
)
def test_what_a_group_says(
    version: int, events: tuple[str, str], stat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = cgroups.NAMES[version]
    group = MemoryGroup(str(tmp_path), version)
    assert (group.limit(), group.used(), group.kills()) == (None, None, None)
    (tmp_path / events[0]).write_text(events[1].format(1))
    (tmp_path / names.limit).write_text("1000000\n")
    (tmp_path / names.usage).write_text("900000\n")
    (tmp_path / "memory.stat").write_text(f"cache 400000\n{stat} 300000\n")
    assert (group.limit(), group.used(), group.kills()) == (1000000, 600000, 1)
    (tmp_path / names.limit).write_text("max\n")
    assert group.limit() is None
    monkeypatch.setattr(shortage, "memory_groups", lambda: (group,))
    seen = Shortage()
    try:
        assert not seen.struck(-1)
        (tmp_path / events[0]).write_text(events[1].format(2))
        assert seen.struck(-1)
    finally:
        seen.close()


def test_where_groups_lie() -> None:
    first = ["11:cpu,cpuacct:/a", "4:memory:/jobs/x:y", "0::/unified"]
    assert [(group.folder, group.version) for group in groups_of(first)] == [
        ("/sys/fs/cgroup/memory/jobs/x:y", 1),
        ("/sys/fs/cgroup/memory/jobs", 1),
        ("/sys/fs/cgroup/memory", 1),
        ("/sys/fs/cgroup/unified", 2),
        ("/sys/fs/cgroup", 2),
    ]
    assert [group.folder for group in groups_of(["0::/"])] == ["/sys/fs/cgroup"]


def test_the_kernel_s_log_tells_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        os.close(os.open(shortage.LOG, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        pytest.skip(f"needs to read the kernel's log: {error}")
    monkeypatch.setattr(shortage, "memory_groups", lambda: ())  # as on a machine that counts nothing
    with limited(tmp_path, 50 << 20) as python:
        seen = Shortage()
        try:
            hungry = subprocess.Popen([python, "-c", "x = []\nwhile True: x.append(b'x' * (1 << 20))"])
            assert hungry.wait(patience(60)) == -signal.SIGKILL
            eventually(lambda: seen.struck(hungry.pid))
            assert not seen.struck(os.getpid())
        finally:
            seen.close()
