"""Where gloo listens: it follows the machine's own name, which often leads to the loopback, where no other node is."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from lattice.process.addresses import LOOPBACK, interface_of, is_loopback, of_own_name

INTERFACE = "GLOO_SOCKET_IFNAME"
PATIENCE = 1.0
"""seconds that a name server has to answer before the first workers start without its answer"""


class Gloo:
    """Looks this machine's own name up, in the background: a silent name server must not hold an agent up."""

    def __init__(self) -> None:
        self._found = LOOPBACK
        self._looking = threading.Thread(target=self._look, name="own name", daemon=True)
        self._looking.start()

    def _look(self) -> None:
        self._found = of_own_name()

    def variables(self, address: str, environ: Mapping[str, str]) -> dict[str, str]:
        """
        Have gloo use the interface that others reach, where the machine's own name would lead it to the loopback.

        :param address: under which others find this node
        :param environ: variables of its workers; what they say about it stands
        """
        if INTERFACE in environ or is_loopback(address):
            return {}
        self._looking.join(PATIENCE)
        name = interface_of(address) if is_loopback(self._found) else None
        return {INTERFACE: name} if name else {}
