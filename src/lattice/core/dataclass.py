"""``dataclass`` as the standard library has it, but made in less than half of the time where it is frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    # An agent has some eighty of these classes, and making them was the largest part of its start: the standard
    # library compiles six functions for each. Three of them need no compiler.
    import dataclasses
    from operator import attrgetter

    MADE_HERE = ("__eq__", "__hash__", "__repr__")

    def dataclass(cls=None, /, **options):
        """Make a dataclass; see :func:`dataclasses.dataclass`."""

        def wrap(cls):
            if (
                set(options) - {"frozen", "slots"}
                or not options.get("frozen")
                or not vars(cls).keys().isdisjoint(MADE_HERE)
            ):
                return dataclasses.dataclass(cls, **options)
            made = dataclasses.dataclass(cls, eq=False, repr=False, **options)
            made.__eq__, made.__hash__ = _comparison([one.name for one in dataclasses.fields(made) if one.compare])
            made.__repr__ = _show
            return made

        return wrap if cls is None else wrap(cls)

    def _comparison(names):
        values = attrgetter(*names) if names else lambda _: ()

        def equal(self, other):
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        def digest(self):
            return hash(values(self))

        return equal, digest

    def _show(self):
        shown = [f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr]
        return f"{self.__class__.__qualname__}({', '.join(shown)})"
