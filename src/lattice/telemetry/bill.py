"""The words for what a recovery cost and where the time went."""

from __future__ import annotations

from lattice.core.ledger import Bill, Totals

KINDS = {
    "worker": "worker failures",
    "hang": "hangs",
    "node": "lost nodes",
    "joined": "newcomers",
    "port": "a taken master port",
    "ended": "the end",
}
"""in the order in which they are told; anything else is told by its own name"""


def bill(bill: Bill) -> str:
    """Give the line for one recovery: milliseconds, as one wants to see them."""
    stages = ", ".join(f"{name} {1000 * seconds:.0f}" for name, seconds in bill.stages)
    return f"recovered in {1000 * bill.total:.0f} ms: {stages}"


def duration(seconds: float) -> str:
    """Give a time with the precision that it deserves."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def totals(totals: Totals) -> str:
    """Give the line for the end: what was training, and what was not, by cause."""
    parts = [f"trained {duration(totals.trained)} of {duration(totals.seconds)}"]
    known = [kind for kind in KINDS if kind in totals.losses]
    for kind in [*known, *(kind for kind in totals.losses if kind not in KINDS)]:
        loss = totals.losses[kind]
        facts = [str(loss.times)] if loss.times else []
        facts += [f"{loss.repeated} steps trained again"] if loss.repeated else []
        told = f" ({', '.join(facts)})" if facts else ""
        parts.append(f"lost {duration(loss.seconds)} to {KINDS.get(kind, kind)}{told}")
    parts.append(f"started in {duration(totals.starting)}")
    return f"goodput {100 * totals.goodput:.1f} %: {'; '.join(parts)}"
