"""One class of every kind that can be recorded, and what it means for two values to be identical.

``==`` is too weak here: 1 == True == 1.0, 0.0 == -0.0, and dicts forget their order in it.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, time, tzinfo
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pydantic

from outlive.journal.codec.codec import Codec, Registry, codec_for

T = TypeVar("T")


class Color(enum.Enum):
    RED = 1
    GREEN = "g"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    A = "a"
    B = "b"


class Rights(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    RUN = enum.auto()


class Point(NamedTuple):
    x: Any
    y: Any = 0


class Place(NamedTuple):
    """The same fields as a point, another class."""

    x: Any
    y: Any = 0


@dataclass
class Order:
    id: Any
    lines: Any = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    id: Any
    lines: Any = None


@dataclass
class Tree:
    value: Any
    children: list[Tree] = field(default_factory=list)


@dataclass(frozen=True)
class Tag:
    name: str


class Job(msgspec.Struct):
    id: Any
    lines: Any = None


class Frozen(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    first_name: Any
    last_name: Any = None


class Model(pydantic.BaseModel):
    id: Any
    lines: Any = None


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]
    next: str | None = None


CLASSES = (
    Color, Level, Word, Rights, Point, Place, Order, Receipt, Tree, Tag, Job, Frozen, Model,
    Page[Model], Page[Tree],
)  # fmt: skip


def codec(*hints: Any) -> Codec:
    """A codec for these hints alone; for all specimens if none are given."""
    return codec_for(hints or CLASSES, Registry())


def identical(a: Any, b: Any) -> bool:
    """Same types, same values, same order, at every depth."""
    if type(a) is not type(b):
        return False
    match a:
        case dict():
            return len(a) == len(b) and all(
                identical(ka, kb) and identical(a[ka], b[kb]) for ka, kb in zip(a, b, strict=True)
            )
        case enum.Enum():
            return a is b
        case tuple() | list():
            return len(a) == len(b) and all(map(identical, a, b))
        case set() | frozenset():
            there = {part: part for part in b}
            return len(a) == len(b) and all(
                part in there and identical(part, there[part]) for part in a
            )
    return _same_atoms(a, b)


def _same_atoms(a: Any, b: Any) -> bool:
    match a:
        case float():
            return struct.pack("d", a) == struct.pack("d", b)
        case complex():
            return struct.pack("dd", a.real, a.imag) == struct.pack("dd", b.real, b.imag)
        case Decimal():
            return a.as_tuple() == b.as_tuple()
        case datetime() | time():
            return repr(a) == repr(b) and _same_zone(a.tzinfo, b.tzinfo)
        case pydantic.BaseModel():
            return a.model_fields_set == b.model_fields_set and identical(a.__dict__, b.__dict__)
        case msgspec.Struct():
            return all(identical(getattr(a, n), getattr(b, n)) for n in a.__struct_fields__)
    if is_dataclass(a):
        return all(identical(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return bool(a == b)


def _same_zone(a: tzinfo | None, b: tzinfo | None) -> bool:
    return type(a) is type(b) and repr(a) == repr(b)
