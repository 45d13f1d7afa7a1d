"""Annotations are read when a codec is first needed, and say clearly when they can't be."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, Optional, TypeVar, Union

import pytest

from outlive.errors import DefinitionRefused
from outlive.journal.codec.hints import Registry, parameter_hints, reachable_classes, return_hint
from tests.values.specimens import Color, Order, Page, Point, Tag, Tree

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]  # on purpose

Bound = TypeVar("Bound", bound="Late")
Either = TypeVar("Either", Order, Point)
Nested = Union[Order, Optional["Late"]]  # noqa: UP007 - old code has them


def early(order: Order, late: Late, client: Missing, plain=1) -> Annotated[Late, "noted"]:
    """Annotated with a class that is defined further down, and with one that never is."""


def silent(a, b=1):  # type: ignore[no-untyped-def]
    """No annotation at all."""


@dataclass
class Late:
    tags: list[Tag]


@dataclass
class Chain(Generic[Bound]):
    next: Chain[Bound] | None
    held: Bound


class Called:
    def __call__(self, order: Order) -> Point:
        return Point(order, 0)

    def method(self, order: Order) -> Point:
        return Point(order, 0)


def reached(*hints: Any) -> set[type]:
    return set(reachable_classes(hints))


def test_names_defined_later_are_found() -> None:
    """A decorator may run before the classes exist; the codec is made after."""
    assert {"order": Order, "late": Late} == parameter_hints(early, ignore={"client"})
    assert Annotated[Late, "noted"] == return_hint(early)
    assert {Late, Tag} == reached(return_hint(early))


def test_a_name_that_does_not_exist_is_named() -> None:
    """The error says whose annotation, which name, and what to do."""
    with pytest.raises(DefinitionRefused) as refused:
        parameter_hints(early)

    assert (
        "the annotations of early name 'Missing', which is not defined where it is needed; "
        "import or define it at module level (and not under `if TYPE_CHECKING`)"
    ) == str(refused.value)


def test_no_annotation_reaches_nothing() -> None:
    """An un-annotated function has hints that allow builtins only."""
    assert {} == parameter_hints(silent)
    assert set() == reached(return_hint(silent))


def test_every_callable_can_be_asked() -> None:
    """Wrapped and partial functions, methods and objects with ``__call__`` have hints, too."""

    @functools.wraps(early)
    def wrapper(*args: Any) -> Any: ...

    for fn in (Called(), Called().method, functools.partial(Called().method), Called.method):
        assert ({"order": Order}, Point) == (parameter_hints(fn), return_hint(fn))
    assert Annotated[Late, "noted"] == return_hint(wrapper)


def test_local_classes_are_found() -> None:
    """A class defined beside the function that uses it, inside another function, works."""

    @dataclass
    class Leaf:
        parent: Branch | None

    @dataclass
    class Branch:
        leaves: list[Leaf]
        up: Branch | None = None

    def grow(branch: Branch) -> list[Leaf]:
        assert Branch
        return [Leaf(branch)]

    assert {"branch": Branch} == parameter_hints(grow)
    assert {Branch, Leaf} == reached(Leaf, Branch)


@pytest.mark.parametrize(
    ("hint", "classes"),
    [
        (int, set()),
        (None, set()),
        (Any, set()),
        (list[Order], {Order}),
        (Mapping[Color, tuple[Point, ...]], {Color, Point}),
        (Order | Point | None, {Order, Point}),
        (Nested, {Order, Late, Tag}),
        (Callable[[Order], Point], {Order, Point}),
        (AsyncIterator[Order], {Order}),
        (Either, {Order, Point}),
        (Bound, {Late, Tag}),
        (Chain, {Chain, Late, Tag}),
        (Chain[Late], {Chain, Late, Tag}),
        (Tree, {Tree}),
        (Page[Order], {Page[Order], Order}),
        (Annotated[Order, Point], {Order}),
    ],
)
def test_what_hints_reach(hint: Any, classes: set[type]) -> None:
    """Every class that a value of this hint could hold, and no other."""

    def fn(): ...  # type: ignore[no-untyped-def]

    fn.__annotations__["return"] = hint

    assert classes == reached(return_hint(fn))


class TypeAliasType:
    """As ``type Json = ...`` makes them from Python 3.12 on."""

    __name__ = "Json"

    @property
    def __value__(self) -> Any:
        return list[JSON] | dict[str, Order]


JSON: Any = TypeAliasType()

SYNTAX_OF_3_12 = """
from dataclasses import dataclass

@dataclass
class Node:
    parts: "Json"

type Json = dict[str, Json | Node] | list[Json] | int
type Pair[T] = tuple[T, T]

@dataclass
class Held[T]:
    held: Pair[T]

def swap[T: Node](pair: "Pair[T]") -> "Held[T]": ...
"""


def test_type_aliases_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alias, recursive or not, reaches what its value reaches."""
    assert {Order} == reached(JSON)
    if sys.version_info >= (3, 12):
        aliases: Any = types.ModuleType("aliases")
        monkeypatch.setitem(sys.modules, "aliases", aliases)
        exec(SYNTAX_OF_3_12, vars(aliases))
        assert {aliases.Node} == reached(aliases.Json)
        assert {aliases.Held, Order} == reached(aliases.Held[Order])
        assert {Order} == reached(aliases.Pair[Order])
        assert {aliases.Node} == reached(*parameter_hints(aliases.swap).values())
        assert {aliases.Held, aliases.Node} == reached(return_hint(aliases.swap))


def test_a_text_is_no_hint() -> None:
    """A forward reference that nobody can resolve is refused rather than skipped."""
    with pytest.raises(DefinitionRefused, match="can't be resolved"):
        reached(list["Order"])


def test_a_field_that_can_not_be_resolved_is_named() -> None:
    """The error says whose fields."""

    @dataclass
    class Broken:
        a: Missing

    with pytest.raises(DefinitionRefused, match=r"the fields of .*Broken name 'Missing'"):
        reached(Broken)


def test_a_class_defined_twice_says_so() -> None:
    """As happens in notebooks: the message is about that, not about names."""

    def define() -> type:
        @dataclass
        class Item:
            a: int

        return Item

    from outlive.journal.codec.codec import codec_for

    with pytest.raises(DefinitionRefused, match="was defined twice"):
        codec_for([define(), define()], Registry())
