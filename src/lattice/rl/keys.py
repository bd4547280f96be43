"""
Who may talk to whom: keys that only the processes of one job can make.

Both sides make both key pairs from one secret, and accept nobody else: the learner knows the public key that a worker
must have, the worker the one of its learner. The secret itself is never sent.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lattice.core.roles import KEY
from lattice.errors import UsageError

OWN_KEY = "LATTICE_RL_KEY"
OWN_FILE = "LATTICE_RL_KEY_FILE"
SHORTEST = 16
"""characters of a secret, at least"""


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """Secret keys of curve 25519, 32 bytes each."""

    learner: bytes
    worker: bytes

    @staticmethod
    def of(secret: str) -> Keys:
        """Make the keys of a job."""
        return Keys(*(hmac.digest(secret.encode(), f"lattice.rl {who}".encode(), hashlib.sha256) for who in _SIDES))


_SIDES = ("learner", "worker")


def secret_of(given: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """
    Find the secret of the job.

    :param given: by the user's program, before all else
    :param environ: in place of this process's environment
    :raises UsageError: there is none, or one that is easily guessed
    """
    known = os.environ if environ is None else environ
    found = given or known.get(OWN_KEY, "")
    if not found and known.get(OWN_FILE):
        try:
            found = Path(known[OWN_FILE]).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise UsageError(f"{OWN_FILE} is {known[OWN_FILE]!r}: {error}") from None
    found = found or known.get(KEY, "")
    if not found:
        raise UsageError(
            "learner and workers have no common key: the job's store has no password that one could be made from. "
            f"Give each the same key=TEXT, {OWN_KEY} or {OWN_FILE}, say of `openssl rand -hex 32`."
        )
    if len(found) < SHORTEST:
        raise UsageError(f"the key of learner and workers has {len(found)} characters; it needs {SHORTEST} or more.")
    return found
