"""A TLS connection as a stream of a channel."""

from __future__ import annotations

from lattice.launching.channel import is_writable
from lattice.stores.secured import Secured


class SecuredStream(Secured):
    """Takes an established connection over."""

    def writable(self) -> bool:
        """Tell whether something can be written without a wait."""
        return is_writable(self._connection.fileno())
