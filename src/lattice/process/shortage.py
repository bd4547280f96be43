"""Tells whether a process was killed because memory ran out: by what the kernel counts, and by what it logs."""

from __future__ import annotations

import os

from lattice.process.cgroups import memory_groups

LOG = "/dev/kmsg"
LONGEST_RECORD = 8192
MOST_RECORDS = 10_000


def victims(log: str) -> frozenset[int]:
    """Give the pids that the kernel's log says were killed for their memory."""
    import re  # most agents never ask

    found = re.finditer(r"Killed process (\d+)|oom-kill:.*\bpid=(\d+)", log)
    return frozenset(int(match[1] or match[2]) for match in found)


class Shortage:
    """Takes notice of what happens from its making on."""

    def __init__(self) -> None:
        # Inside first: where a limit further out is hit, the victim's own group counts it too.
        self._group = next((group for group in memory_groups() if group.kills() is not None), None)
        self._kills = self._counted()
        self._victims: frozenset[int] = frozenset()
        self._log = -1
        try:
            self._log = os.open(LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._log, 0, os.SEEK_END)
        except OSError:
            self.close()  # not everybody may read it

    def struck(self, pid: int) -> bool:
        """
        Tell whether a process that was killed was likely killed for this.

        :param pid: its own; in a container the kernel's log knows it by another, and only the count tells
        """
        self._victims |= victims(self._logged())
        return self._counted() > self._kills or pid in self._victims

    def close(self) -> None:
        """Look no more."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _counted(self) -> int:
        return (self._group.kills() or 0) if self._group is not None else 0

    def _logged(self) -> str:
        records = []
        for _ in range(MOST_RECORDS if self._log >= 0 else 0):
            try:
                records.append(os.read(self._log, LONGEST_RECORD).decode(errors="replace"))
            except BrokenPipeError:
                continue  # some were overwritten before they were read
            except OSError:
                break  # that was all
        return "\n".join(records)
