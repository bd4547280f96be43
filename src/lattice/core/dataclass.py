"""``dataclass`` and ``replace`` as the standard library has them, in less than half of the time where it is frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:
    # An agent has some ninety of these classes, and making them was the largest part of its start: the standard
    # library compiles six functions for each. Five of them need no compiler.
    import dataclasses
    from operator import attrgetter

    MADE_HERE = ("__eq__", "__hash__", "__repr__", "__init__", "__setattr__", "__delattr__")
    _COPIES = {}
    """by class: what copies an object of it with some fields changed"""

    def dataclass(cls=None, /, **options):
        """Make a dataclass; see :func:`dataclasses.dataclass`."""

        def wrap(cls):
            simple = options == {"frozen": True, "slots": True} and vars(cls).keys().isdisjoint(MADE_HERE)
            if not simple or any(_is_standard(base) for base in cls.__mro__[1:]):
                return dataclasses.dataclass(cls, **options)
            made = dataclasses.dataclass(cls, init=False, eq=False, repr=False, slots=True)
            fields = dataclasses.fields(made)
            made.__init__ = _beginning(made, fields)
            made.__eq__, made.__hash__ = _comparison([one.name for one in fields if one.compare])
            made.__repr__, made.__setattr__, made.__delattr__ = _show, _refuse, _refuse
            made.__getstate__, made.__setstate__ = _give, _take
            made.__match_args__ = tuple(one.name for one in fields if one.init)
            return made

        return wrap if cls is None else wrap(cls)

    def _is_standard(base):
        return dataclasses.is_dataclass(base) and base.__dataclass_params__.frozen

    def _beginning(made, fields):
        # The descriptors of slots set them on frozen objects too.
        names = {"_factory": _factory}
        parameters, lines = ["self"], []
        for one in fields:
            names[f"_set_{one.name}"] = getattr(made, one.name).__set__
            value = one.name
            if one.default_factory is not dataclasses.MISSING:
                names[f"_make_{one.name}"] = one.default_factory
                made_new = f"_make_{one.name}()"
                value = f"{made_new} if {one.name} is _factory else {one.name}" if one.init else made_new
                parameters += [f"{one.name}=_factory"] if one.init else []
            elif one.default is not dataclasses.MISSING:
                names[f"_default_{one.name}"] = one.default
                value = one.name if one.init else f"_default_{one.name}"
                parameters += [f"{one.name}=_default_{one.name}"] if one.init else []
            elif one.init:
                parameters.append(one.name)
            else:
                continue
            lines.append(f" _set_{one.name}(self, {value})")
        if hasattr(made, "__post_init__"):
            lines.append(" self.__post_init__()")
        exec(f"def __init__({', '.join(parameters)}):\n" + ("\n".join(lines) or " pass"), names)
        return names["__init__"]

    _factory = object()

    def _refuse(self, name, *_):
        raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")

    def _give(self):
        return [getattr(self, one.name) for one in dataclasses.fields(self)]

    def _take(self, values):
        for one, value in zip(dataclasses.fields(self), values, strict=True):
            object.__setattr__(self, one.name, value)

    def replace(value, /, **changes):
        """
        Give a copy with some fields changed; see :func:`dataclasses.replace`.

        The state of an agent is copied a few times for every event: that is most of what the protocol costs.
        """
        cls = value.__class__
        copy = _COPIES.get(cls)
        if copy is None:
            copy = _COPIES[cls] = _copying(cls)
        return copy(value, changes)

    def _copying(cls):
        fields = dataclasses.fields(cls)
        names = [one.name for one in fields]
        if not all(one.init for one in fields) or len(names) < 2 or hasattr(cls, "__post_init__"):
            return lambda value, changes: dataclasses.replace(value, **changes)
        setters = [getattr(getattr(cls, name, None), "__set__", None) for name in names]
        return _copying_all(cls) if None in setters else _copying_each(cls, names, setters)

    def _copying_all(cls):
        # Without slots: one copy of the dictionary, however many fields there are.
        new, put = object.__new__, object.__setattr__

        def copy(value, changes):
            before = value.__dict__
            fields = before | changes
            if len(fields) != len(before):
                raise TypeError(f"{cls.__name__} has no field {(changes.keys() - before.keys()).pop()!r}")
            made = new(cls)
            put(made, "__dict__", fields)
            return made

        return copy

    def _copying_each(cls, names, setters):
        # The descriptors of slots set them on frozen objects too.
        get, places = attrgetter(*names), {name: place for place, name in enumerate(names)}

        def copy(value, changes):
            values = list(get(value))
            for name, changed in changes.items():
                if name not in places:
                    raise TypeError(f"{cls.__name__} has no field {name!r}")
                values[places[name]] = changed
            made = object.__new__(cls)
            for put, one in zip(setters, values, strict=True):
                put(made, one)
            return made

        return copy

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
