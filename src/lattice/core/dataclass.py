"""``dataclass`` and ``replace`` as the standard library has them, in less than half of the time where it is frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:
    # An agent has some eighty of these classes, and making them was the largest part of its start: the standard
    # library compiles six functions for each. Three of them need no compiler.
    import dataclasses
    from operator import attrgetter

    MADE_HERE = ("__eq__", "__hash__", "__repr__")
    _COPIES = {}
    """by class: what gives all values of an object, the place of each, and what sets them"""

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

    def replace(value, /, **changes):
        """
        Give a copy with some fields changed; see :func:`dataclasses.replace`.

        The state of an agent is copied a few times for every event: that is most of what the protocol costs.
        """
        cls = value.__class__
        copies = _COPIES.get(cls)
        if copies is None:
            copies = _COPIES[cls] = _copying(cls)
        if not copies:
            return dataclasses.replace(value, **changes)
        get, places, setters = copies
        values = list(get(value))
        for name, changed in changes.items():
            if name not in places:
                raise TypeError(f"{cls.__name__} has no field {name!r}")
            values[places[name]] = changed
        copy = object.__new__(cls)
        for put, one in zip(setters, values, strict=True):
            put(copy, one)
        return copy

    def _copying(cls):
        fields = dataclasses.fields(cls)
        names = [one.name for one in fields]
        plain = all(one.init for one in fields) and len(names) > 1 and not hasattr(cls, "__post_init__")
        # The descriptors of slots set them on frozen objects too; a class without slots has no such descriptors.
        setters = [getattr(getattr(cls, name, None), "__set__", None) for name in names]
        if not plain or None in setters:
            return None
        return attrgetter(*names), {name: place for place, name in enumerate(names)}, setters

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
