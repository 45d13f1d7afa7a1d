"""Classes come back as themselves, by the name under which a hint or a registration allows them."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections import namedtuple
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, Generic, Literal, NewType, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from outlive.errors import ValueRefused
from tests.values.specimens import (
    Color,
    Frozen,
    Job,
    Level,
    Model,
    Order,
    Page,
    Place,
    Point,
    Receipt,
    Rights,
    Tree,
    Word,
    codec,
    identical,
)

T = TypeVar("T")
OrderId = NewType("OrderId", Order)


@dataclass
class Box(Generic[T]):
    content: T


class Row(TypedDict, total=False):
    order: Order
    at: tuple[int, Point]


class Crate(msgspec.Struct, Generic[T]):
    content: T | None = None


class Numbers(pydantic.RootModel[list[int]]):
    pass


@dataclass
class Counted:
    """Its fields depend on what ``__post_init__`` saw; reading must not run it again."""

    a: int
    doubled: int = field(init=False)
    calls: list[int] = field(default_factory=list)
    kind: int = field(init=False, default=7)

    def __post_init__(self) -> None:
        self.doubled = 2 * self.a
        self.calls.append(self.a)


@dataclass(slots=True)
class Slotted(Counted):
    extra: Any = None


class Corrected(msgspec.Struct, frozen=True):
    a: int

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "a", self.a + 1)


class Checked(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(validate_assignment=True, frozen=True)
    a: int = pydantic.Field(alias="the a", ge=10)
    b: str = "x"

    def model_post_init(self, context: Any) -> None:
        if self.b == "refuse":
            raise ValueError("validators must not run on reading")


class Cached(pydantic.BaseModel):
    a: int

    @functools.cached_property
    def twice(self) -> int:
        return 2 * self.a


class Private(pydantic.BaseModel):
    a: int
    _secret: int = 1


class Open(pydantic.BaseModel, extra="allow"):
    a: int


class Shape(ABC):
    @abstractmethod
    def area(self) -> int: ...


@dataclass
class Square(Shape):
    side: int

    def area(self) -> int:
        return self.side**2


OldPoint = namedtuple("OldPoint", "x y", defaults=[0])


def comes_back(value: Any, *hints: Any) -> Any:
    """The value after a round trip through a codec for these hints; it must be identical."""
    chosen = codec(*hints)
    back = chosen.decode(chosen.encode(value))
    assert identical(value, back)
    return back


def refusal(value: Any, *hints: Any) -> ValueRefused:
    with pytest.raises(ValueRefused) as refused:
        codec(*hints or (None,)).encode(value)
    return refused.value


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Order, Order(1, [2])),
        (Receipt, Receipt(id=1)),
        (Tree, Tree(1, [Tree(2, [Tree(3)])])),
        (Point, Point(1)),
        (OldPoint, OldPoint(1, 2)),
        (Job, Job((1, 2))),
        (Frozen, Frozen(first_name="a")),
        (Model, Model(id=1)),
        (Page[Model], Page[Model](items=[Model(id=1)])),
        (Page[Page[Model]], Page[Page[Model]](items=[Page[Model](items=[])])),
        (Numbers, Numbers([1, 2])),
        (Color, Color.RED),
        (Level, Level.HIGH),
        (Word, Word.B),
        (Rights, Rights.READ | Rights.WRITE),
        (Literal[Color.RED], Color.GREEN),
        (list[Order], [Order(1)]),
        (dict[Color, list[Point]], {Color.RED: [Point(1)]}),
        (Order | None, Order(1)),
        (Annotated[Order, "noted", Tree], Order(1)),
        (OrderId, Order(1)),
        (Box[Order], Box(Order(1))),
        (Box[Order], Box(None)),
        (Crate[Point], Crate(Point(1))),
        (Row, {"order": Order(1), "at": (1, Point(2))}),
        (tuple[Order, ...], (Order(1), Order(2))),
        (type[Order] | Order, Order(1)),
        (Square, Square(3)),
    ],
)
def test_what_a_hint_reaches_comes_back(hint: Any, value: Any) -> None:
    """A class is found through unions, aliases, generics, fields and members."""
    comes_back(value, hint)
    comes_back({"deep": [(value, {1: value})]}, hint)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Order(1, 2), Receipt(id=1, lines=2)),
        (Point(1, 2), Place(1, 2)),
        (Job(1, 2), Model(id=1, lines=2)),
        (Level.LOW, 1),
        (Word.A, "a"),
        (Page[Model](items=[]), Page[Tree](items=[])),
    ],
)
def test_a_union_is_never_guessed(one: Any, other: Any) -> None:
    """Of two classes of the same shape, the one that was written comes back."""
    hint = type(one) | type(other)

    assert type(one) is type(comes_back(one, hint))
    assert type(other) is type(comes_back(other, hint))


def test_reading_runs_no_constructor() -> None:
    """Fields come back as they were, not as a constructor or validator would make them."""
    counted = Counted(1)
    counted.doubled = 100
    slotted = Slotted(2)
    checked = Checked.model_construct(a=1)
    checked.__dict__["b"] = "refuse"

    assert (100, [1], 7) == ((b := comes_back(counted, Counted)).doubled, b.calls, b.kind)
    assert [2] == comes_back(slotted, Slotted).calls
    assert 1 == comes_back(checked, Checked).a
    assert 2 == comes_back(Corrected(1), Corrected).a


def test_what_was_given_to_a_model_is_kept() -> None:
    """A pydantic model still knows which of its fields were set, and dumps the same."""
    model = Model(id=1)

    back = comes_back(model, Model)

    assert {"id"} == back.model_fields_set
    assert {"id": 1} == back.model_dump(exclude_unset=True)
    assert model == back
    assert Model(id=1, lines=None).model_fields_set != back.model_fields_set


def test_a_read_model_is_a_whole_one() -> None:
    """What comes back can be changed, copied, dumped and validated like any other."""
    back = comes_back(Open(a=1), Open)
    back.b = 2
    back.a = 3

    assert {"a": 3, "b": 2} == back.model_dump()
    assert back == back.model_copy(deep=True) == Open.model_validate(back.model_dump())


def test_cached_properties_are_computed_again() -> None:
    """They are derived from the fields, so nothing is lost without them."""
    model = Cached(a=1)
    assert 2 == model.twice

    chosen = codec(Cached)

    assert 2 == chosen.decode(chosen.encode(model)).twice


@pytest.mark.parametrize(
    ("value", "hint", "text"),
    [
        (Order(1), None, "no annotation reaches the dataclass Order"),
        (Order(1), None, "annotate the return type"),
        (Order(1), None, "outlive.register(Order)"),
        (Order(1), Point, "allowed here: Point"),
        (Model(id=1), None, "no annotation reaches the pydantic model Model"),
        (Job(1), Any, "no annotation reaches the Struct Job"),
        (Point(1), list[Any], "no annotation reaches the NamedTuple Point"),
        (Color.RED, int, "no annotation reaches the Enum Color"),
        (Square(1), Shape, "no annotation reaches the dataclass Square"),
        (Private(a=1), Private, "_secret is a private attribute of Private"),
        (Open(a=1, b=2), Open, "b is an extra attribute of Open"),
        (Model.model_construct(lines=1), Model, "field id of Model was never set"),
        (type("Late", (Order,), {})(1), Order, "no annotation reaches the dataclass Late"),
        (type("Text", (str,), {})("x"), str, "Text would come back as a plain str"),
        (ValueError("x"), ValueError, "an exception (ValueError) is not a value"),
        (object(), object, "a value of type builtins.object can't be recorded"),
    ],
)
def test_a_refusal_says_what_to_do(value: Any, hint: Any, text: str) -> None:
    """Whoever wrote the step can mend it from the text alone."""
    refused = refusal({"a": [value]}, hint)

    assert text in refused.reason
    assert "$.a[0]" == refused.path


def test_dataclasses_that_keep_more_than_fields_are_refused() -> None:
    """State that is no field would be lost, so it is not written at all."""

    @dataclass
    class Initial:
        a: int
        seed: InitVar[int] = 0

    @dataclass
    class Failure(Exception):
        a: int

    class Hidden:
        __slots__ = ("hidden",)

    @dataclass
    class Half(Hidden):
        a: int

    assert "has an InitVar (seed)" in refusal(Initial(1), Initial).reason
    assert "built on a type that keeps state of its own" in refusal(Failure(1), Failure).reason
    assert "has a slot that is not a field (hidden)" in refusal(Half(1), Half).reason
