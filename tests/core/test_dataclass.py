"""Ours behaves as the standard library's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from lattice.core.dataclass import dataclass as ours
from lattice.core.dataclass import replace
from lattice.core.events import Ticked, Written
from lattice.core.records import Keys
from lattice.core.rendezvous import begin
from lattice.core.spec import NodeRange, Policy
from lattice.core.state import Identity, View
from lattice.core.topology import RosterEntry

Maker = Callable[..., Any]


@pytest.fixture(params=[ours, dataclasses.dataclass], ids=["ours", "standard"])
def make(request: pytest.FixtureRequest) -> Maker:
    maker: Maker = request.param
    return maker


def point(make: Maker, **options: Any) -> Any:
    class Point:
        x: int
        y: tuple[int, ...] = ()
        note: str = dataclasses.field(default="", compare=False, repr=False)

    Point.__qualname__ = "Point"
    return make(frozen=True, **options)(Point)


@pytest.mark.parametrize("slots", [True, False])
def test_values_are_compared_hashed_and_shown(make: Maker, slots: bool) -> None:
    cls = point(make, slots=slots)
    one, same, other = cls(1, (2,), "a"), cls(1, (2,), "b"), cls(1, (3,))
    assert one == same != other
    assert len({one, same, other}) == 2
    assert repr(one) == "Point(x=1, y=(2,))"
    assert dataclasses.replace(one, x=5) == cls(5, (2,))
    assert hasattr(one, "__dict__") is not slots
    match one:
        case cls(x, y):
            assert (x, y) == (1, (2,))


def test_a_value_does_not_change(make: Maker) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        point(make)(1).x = 2


def test_another_class_is_never_equal(make: Maker) -> None:
    class Child(point(make)):  # type: ignore[misc]
        z: int = 0

    cls = point(make)
    child = make(frozen=True, slots=True)(Child)
    assert point(make)(1) != cls(1)
    assert child(1, z=2) == child(1, z=2) != child(1, z=3)
    assert child(1) != cls(1)


def test_a_class_without_fields(make: Maker) -> None:
    class Nothing:
        pass

    cls = make(frozen=True, slots=True)(Nothing)
    assert cls() == cls()
    assert hash(cls()) == hash(cls())


def test_what_a_class_defines_itself_stays(make: Maker) -> None:
    class Named:
        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

    cls = make(frozen=True, slots=True)(Named)
    assert repr(cls("a")) == "<a>"
    assert cls("a") == cls("a")


def test_what_is_not_frozen_is_the_standard_one(make: Maker) -> None:
    class Counter:
        count: int = 0

    counter = make(slots=True)(Counter)()
    counter.count += 1
    assert counter.count == 1
    with pytest.raises(TypeError):
        hash(counter)


def test_a_copy_with_changes_is_what_the_standard_library_makes() -> None:
    entry = RosterEntry("a", 1, 2, 3, "host", "address", (4,))
    state = begin(Identity("job", "a", "host", "address", 1), Policy(NodeRange(1, 2)), (1,), 5.0)
    changed: tuple[tuple[Any, dict[str, Any]], ...] = (
        (entry, {"group_rank": 7}),
        (entry, {}),
        (state, {"now": 6.0, "view": state.view, "pending": frozenset({"x"})}),
        (Written(1.0, "tag", True, 2), {"at": 3.0}),  # a field of the class that it comes from
        (Ticked(1.0), {"at": 2.0}),  # one field only
        (Keys("job"), {"run_id": "other"}),  # computes some of its fields
    )
    for value, changes in changed:
        mine: object = replace(value, **changes)
        assert mine == dataclasses.replace(value, **changes)
        assert type(mine) is type(value) and mine is not value


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError):
        replace(RosterEntry("a", 1, 2, 3, "host", "address", (4,)), colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        replace(View(Keys("job")), colour="red")  # type: ignore[call-arg]


def test_values_can_be_copied_and_sent(make: Maker) -> None:
    import copy

    one = RosterEntry("a", 0, 0, 1, "h", "", (1,))
    assert copy.deepcopy(one) == copy.copy(one) == one


def test_fields_that_are_made_anew_or_not_asked_for(make: Maker) -> None:
    class Bag:
        name: str
        items: list[int] = dataclasses.field(default_factory=list)
        size: int = dataclasses.field(init=False, default=3)

    cls = make(frozen=True, slots=True)(Bag)
    one, other = cls("a"), cls(name="a", items=[])
    assert one == other and one.items is not other.items and one.size == 3
    with pytest.raises(TypeError):
        cls("a", [], 4)
    with pytest.raises(TypeError):
        cls()
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.name
