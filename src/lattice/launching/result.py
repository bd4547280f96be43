"""What a launch returns: the results of all workers, by rank and by host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

R = TypeVar("R")


class LaunchResult(Generic[R]):
    """The results of all workers, in the order of their ranks."""

    def __init__(self, hosts: Iterable[tuple[str, Sequence[R]]]) -> None:
        """
        Put results together.

        :param hosts: for each agent, in the order of ranks, its host and the results of its workers; a host may occur
            more than once
        """
        self._all: list[R] = []
        self._places: list[tuple[str, int]] = []
        self.results: dict[str, list[R]] = {}
        """results of each host, in the order of local ranks; those of its second agent follow those of its first"""
        for hostname, results in hosts:
            self._all += results
            self._places += [(hostname, local_rank) for local_rank in range(len(results))]
            self.results.setdefault(hostname, []).extend(results)

    def rank(self, i: int) -> R:
        """
        Give the result of one worker.

        :param i: its rank among all workers
        :raises IndexError: there is no such rank
        """
        if not 0 <= i < len(self._all):
            raise IndexError(f"there is no rank {i}: {len(self._all)} workers left results, ranks 0 to {len(self) - 1}")
        return self._all[i]

    def index(self, hostname: str, local_rank: int) -> R:
        """
        Give the result of one worker.

        :param hostname: as it was given to the launch
        :param local_rank: its rank among the workers of that host
        :raises KeyError: no such host took part
        :raises IndexError: it had fewer workers
        """
        if hostname not in self.results:
            raise KeyError(f"{hostname!r} took no part: {', '.join(map(repr, self.results))} did")
        of_host = self.results[hostname]
        if not 0 <= local_rank < len(of_host):
            raise IndexError(f"there is no local rank {local_rank} on {hostname!r}: it had {len(of_host)} workers")
        return of_host[local_rank]

    def all(self) -> list[R]:
        """Give the results of all workers in the order of their ranks."""
        return list(self._all)

    def places(self) -> list[tuple[str, int]]:
        """Give the host and the local rank of all workers in the order of their ranks."""
        return list(self._places)

    def __iter__(self) -> Iterator[R]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __repr__(self) -> str:
        counts = ", ".join(f"{hostname}: {len(results)}" for hostname, results in self.results.items())
        return f"<LaunchResult of {len(self)} workers ({counts})>"
