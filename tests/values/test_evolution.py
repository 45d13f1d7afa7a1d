"""Classes change and get names; what was recorded before is read rightly or refused by name."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

from outlive.errors import DefinitionRefused, ValueRefused
from outlive.journal.codec.codec import Codec, Registry, codec_for
from tests.values.specimens import Color, Job, Model, Order, Point, Tag, codec, identical


def rewritten(old: type, new: type, value: Any) -> Any:
    """A value written when a class was ``old``, read now that it is ``new``."""
    writer, reader = Registry(), Registry()
    writer.register(old, "thing")
    reader.register(new, "thing")
    return codec_for([], reader).decode(codec_for([], writer).encode(value))


def test_new_fields_take_their_defaults() -> None:
    """A class that got fields with defaults still reads what was recorded before."""

    @dataclass
    class NewOrder:
        lines: Any
        id: Any
        note: str = "none"
        tags: list[str] = field(default_factory=lambda: ["new"])

    class NewJob(msgspec.Struct):
        id: Any
        lines: Any
        tags: list[str] = []

    class NewPoint(NamedTuple):
        x: Any
        y: Any
        z: Any = 9

    class NewModel(pydantic.BaseModel):
        id: Any
        lines: Any = None
        tags: list[str] = pydantic.Field(default_factory=list)

    assert NewOrder(2, 1, "none", ["new"]) == rewritten(Order, NewOrder, Order(1, 2))
    assert NewJob(1, 2, []) == rewritten(Job, NewJob, Job(1, 2))
    assert (1, 2, 9) == rewritten(Point, NewPoint, Point(1, 2))
    read = rewritten(Model, NewModel, Model(id=1))
    assert (NewModel(id=1), {"id"}) == (read, read.model_fields_set)


def test_each_reading_has_its_own_defaults() -> None:
    """A default made by a factory is not shared between two readings."""

    @dataclass
    class NewOrder:
        id: Any
        lines: Any
        tags: list[str] = field(default_factory=list)

    one, two = (rewritten(Order, NewOrder, Order(1, 2)) for _ in range(2))
    one.tags.append("a")

    assert [] == two.tags


def test_other_changes_name_both_shapes() -> None:
    """A field that is gone, or new without a default, is an error with both sides."""

    @dataclass
    class Shorter:
        id: Any

    @dataclass
    class Longer:
        id: Any
        lines: Any
        owner: str

    class Renamed(pydantic.BaseModel):
        id: Any
        rows: Any

    for new, text in (
        (Shorter, "recorded thing(id, lines), the class is now thing(id): lines is unknown"),
        (Longer, "the class is now thing(id, lines, owner): owner has no default"),
        (Renamed, "thing(id, rows): lines is unknown; rows has no default"),
    ):
        with pytest.raises(ValueRefused) as refused:
            rewritten(Order, new, Order(1, 2))
        assert text in str(refused.value)


def test_a_member_that_is_gone_is_named() -> None:
    """An Enum that lost a member says which, and what it has."""

    class NewColor(enum.Enum):
        RED = 1
        BLUE = 2

    assert NewColor.RED is rewritten(Color, NewColor, Color.RED)
    with pytest.raises(ValueRefused, match=r"recorded thing\.GREEN; the Enum now has: RED, BLUE"):
        rewritten(Color, NewColor, Color.GREEN)


def test_a_class_that_is_no_longer_allowed_is_named() -> None:
    """Reading says which class was recorded and which are allowed now."""
    data = codec(Order).encode(Order(1))

    with pytest.raises(ValueRefused, match="recorded class Order; allowed here: Point, Tag"):
        codec(Point | Tag).decode(data)
    with pytest.raises(ValueRefused, match="recorded class Order; allowed here: no class"):
        codec(int).decode(data)


def test_a_class_may_change_its_kind() -> None:
    """The same fields under the same name are the same thing, whatever holds them."""
    assert Model(id=1, lines=2) == rewritten(Order, Model, Order(1, 2))
    assert Job(1, 2) == rewritten(Model, Job, Model(id=1, lines=2))


def namesakes() -> tuple[type, type]:
    @dataclass
    class Item:
        a: int

    one = Item

    @dataclass
    class Item:  # type: ignore[no-redef]  # on purpose
        a: int

    Item.__module__ = "elsewhere"
    return one, Item


def test_two_classes_of_one_name_are_refused() -> None:
    """One name can't mean two classes in one codec, until one gets a name of its own."""
    one, other = namesakes()
    registry = Registry()

    with pytest.raises(
        DefinitionRefused, match=r"would both be recorded as .*register\(cls, name="
    ):
        codec_for([one, other], registry)

    registry.register(other, "other item")
    both = codec_for([one, other], registry)

    assert type(both.decode(both.encode(one(1)))) is one
    assert type(both.decode(both.encode(other(1)))) is other


def test_a_registration_works_at_once() -> None:
    """A codec that exists already sees what is registered later, and what that reaches."""

    @dataclass
    class Outer:
        inner: Order

    registry = Registry()
    existing = codec_for([], registry)
    with pytest.raises(ValueRefused):
        existing.encode(Outer(Order(1)))

    registry.register(Outer)

    assert Outer(Order(1)) == existing.decode(existing.encode(Outer(Order(1))))


def test_a_late_registration_of_a_taken_name_is_refused() -> None:
    """A name that a hint's class has is not taken over by a registered one."""
    one, other = namesakes()
    registry = Registry()
    existing = codec_for([one], registry)
    data = existing.encode(one(1))

    registry.register(other)

    for attempt in (lambda: existing.encode(one(1)), lambda: existing.decode(data)):
        with pytest.raises(DefinitionRefused, match="would both be recorded"):
            attempt()


def test_a_name_given_later_reads_what_was_written_before() -> None:
    """Registering a class under a name of its own does not orphan its recorded values."""
    registry = Registry()
    chosen = codec_for([Order], registry)
    before = chosen.encode(Order(1))

    registry.register(Order, "order")

    assert before != chosen.encode(Order(1))
    assert Order(1) == chosen.decode(before) == chosen.decode(chosen.encode(Order(1)))


def test_registering_twice_is_harmless_and_names_are_unique() -> None:
    """The same class again, or its definition executed again, replaces; another is refused."""
    registry = Registry()
    registry.register(Order, "thing")
    registry.register(Order, "thing")

    with pytest.raises(DefinitionRefused, match="would both be recorded as 'thing'"):
        registry.register(Point, "thing")

    again = dataclass(type("Order", (), {"__module__": Order.__module__, "__annotations__": {}}))
    registry.register(again, "thing")

    assert "thing" == registry.name_of(again)


@pytest.mark.parametrize("bad", [int, dict, object, list[int], "Order", Order(1)])
def test_only_recordable_classes_can_be_registered(bad: Any) -> None:
    """What can't be recorded is refused when it is registered, not when it is needed."""
    with pytest.raises(DefinitionRefused, match="can't be registered"):
        Registry().register(bad)


def test_builtins_need_no_hint() -> None:
    """An un-annotated function may return any plain data."""
    bare: Codec = codec_for([], Registry())
    value = {"a": (1, {2}, frozenset("x")), 3: [b"y", None, 1.5], ("k",): bytearray(b"z")}

    assert identical(value, bare.decode(bare.encode(value)))
