"""Keeps how each host of a launch stands, told by the threads that listen to them, for whoever asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from lattice.launching.display.states import HostStatus, entered, reported
from lattice.launching.hosts import HostSpec
from lattice.launching.supervisor import Finished, Greeted, Left, Lost, News, Node, Reported


class Overview:
    """All hosts of one launch."""

    def __init__(self) -> None:
        self._hosts: dict[int, HostStatus] = {}
        self._lock = threading.Lock()

    def begin(self, hosts: Sequence[HostSpec], nodes: Sequence[Node]) -> None:
        """
        Hear of a launch.

        :param hosts: all that take part: their agents are about to be started
        :param nodes: the agents that are there already
        """
        now = time.monotonic()
        with self._lock:
            self._hosts = {host.index: HostStatus(host.given, host.index, "connecting", now) for host in hosts}
            self._hosts |= {node.host.index: _greeted(node, now) for node in nodes}

    def hear(self, news: News) -> None:
        """Hear what happened, in any thread."""
        now = time.monotonic()
        with self._lock:
            host = self._hosts.get(news.host.index if isinstance(news, Left) else news.node.host.index)
            match news:
                case Greeted(node=node):
                    host = _greeted(node, now)
                case Reported(event=event, facts=facts) if host is not None:
                    host = reported(host, event, facts, now)
                case Finished() if host is not None:
                    host = entered(replace(host, pids=()), "ended", now)
                case Lost(reason=reason) if host is not None:
                    host = entered(replace(host, pids=()), "lost", now, reason)
                case _:
                    pass
            if host is not None:
                self._hosts[host.agent] = host

    def hosts(self) -> tuple[HostStatus, ...]:
        """Tell how each host stands, in the order of the launch."""
        with self._lock:
            return tuple(self._hosts[index] for index in sorted(self._hosts))


def _greeted(node: Node, now: float) -> HostStatus:
    return HostStatus(node.host.given, node.host.index, "connected", now, pid=node.facts.get("pid"))
