"""Recorded values for people: shown without their classes, so that none of their code runs.

``read_value`` turns a value's bytes into a tree of plain data; objects keep their class's name as
text. ``as_json`` and ``as_text`` render it. An unreadable value is shown as such: a view never
fails over a value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from outlive.journal.codec.bounds import Refusal
from outlive.journal.codec.parts import whole
from outlive.journal.codec.scalars import READERS
from outlive.journal.codec.walk import ENUM, FROZENSET, ITEMS, OBJECT, SET, TUPLE

#: The part of a value that a row of a table shows.
PREVIEW_CHARS = 80
_BYTES_SHOWN = 16
_INT_MAX = 2**63

#: Errors that decoding damaged or foreign bytes may raise.
_UNREADABLE: Final = (
    Refusal,
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class Group:
    """A tuple or a set."""

    brackets: str
    items: list[Any]


@dataclass(frozen=True, slots=True)
class Pairs:
    """A dict whose keys are not all text."""

    items: list[tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Thing:
    """An object of a class of which only the name is known."""

    name: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an Enum of which only the name is known."""

    enum: str
    member: object


@dataclass(frozen=True, slots=True)
class Unread:
    """A part that this release can't show."""

    why: str


def read_value(data: bytes) -> Any:
    """The value as plain data; never raises."""
    try:
        return _decode(whole(data))
    except _UNREADABLE as error:
        return Unread(f"{type(error).__name__}: {error}"[:200])


def _tagged(tag: int, payload: memoryview) -> Any:
    read = _TAGS.get(tag) or READERS.get(tag)
    if read is None:
        return Unread(f"tag {tag}, {len(payload)} bytes")
    try:
        return read(payload)
    except _UNREADABLE as error:
        return Unread(f"{type(error).__name__}: {error}"[:200])


def _object(payload: memoryview) -> Thing:
    name, _, fields, *_ = _decode(payload)
    if type(fields) is not dict:
        raise ValueError("an object without fields")
    return Thing(str(name), fields)


def _pairs(payload: memoryview) -> Pairs:
    flat = _list(payload)
    return Pairs(list(zip(flat[::2], flat[1::2], strict=True)))


def _list(payload: memoryview) -> list[Any]:
    parts = _decode(payload)
    if type(parts) is not list:
        raise ValueError("no list of parts")
    return parts


def _member(payload: memoryview) -> Member:
    name, member = _list(payload)
    return Member(str(name), member)


_decode = msgspec.msgpack.Decoder(ext_hook=_tagged).decode

_TAGS: Final[Mapping[int, Callable[[memoryview], Any]]] = {
    TUPLE: lambda payload: Group("()", _list(payload)),
    SET: lambda payload: Group("{}", _list(payload)),
    FROZENSET: lambda payload: Group("{}", _list(payload)),
    ITEMS: _pairs,
    OBJECT: _object,
    ENUM: _member,
}


def as_json(value: Any) -> Any:
    """Convert to JSON's types and those that msgspec writes as text."""
    match value:
        case dict():
            return {str(key): as_json(part) for key, part in value.items()}
        case list() | Group(items=list()):
            items = value.items if isinstance(value, Group) else value
            return [as_json(part) for part in items]
        case Pairs(items=items):
            return [[as_json(key), as_json(part)] for key, part in items]
        case Thing(fields=fields):
            return {name: as_json(part) for name, part in fields.items()}
        case Member(member=member):
            return as_json(member)
        case Unread(why=why):
            return f"(can't be shown: {why})"
        case complex():
            return str(value)
        case int() if not -_INT_MAX <= value < 2 * _INT_MAX:
            return str(value)
        case _:
            return value


def preview(data: bytes, chars: int = PREVIEW_CHARS) -> str:
    """A value on one line, cut to this length."""
    text = as_text(read_value(data), chars)
    return text if len(text) <= chars else text[: chars - 1] + "…"


def as_text(value: Any, chars: int) -> str:
    """The value as a programmer would write it; not much longer than ``chars``."""
    parts: list[str] = []
    _write(value, parts, chars)
    return "".join(parts)


def _write(value: Any, parts: list[str], room: int) -> int:
    """Append the value's text; return the room that is left. Nothing is written without room."""
    if room <= 0:
        return room
    match value:
        case list():
            return _write_items("[]", value, parts, room)
        case Group(brackets=brackets, items=items):
            return _write_items(brackets, items, parts, room)
        case dict():
            named = [(_text(key, room) + ": ", part) for key, part in value.items()]
            return _write_named("{", named, "}", parts, room)
        case Pairs(items=items):
            named = [(as_text(key, room) + ": ", part) for key, part in items]
            return _write_named("{", named, "}", parts, room)
        case Thing(name=name, fields=fields):
            named = [(f"{field}=", part) for field, part in fields.items()]
            return _write_named(f"{name}(", named, ")", parts, room)
        case _:
            text = _scalar(value, room)
            parts.append(text)
            return room - len(text)


def _write_items(brackets: str, items: list[Any], parts: list[str], room: int) -> int:
    named = [("", item) for item in items]
    return _write_named(brackets[0], named, brackets[1], parts, room)


def _write_named(
    before: str, named: list[tuple[str, Any]], after: str, parts: list[str], room: int
) -> int:
    parts.append(before)
    room -= len(before)
    for position, (name, value) in enumerate(named):
        lead = f"{', ' if position else ''}{name}"
        parts.append(lead)
        room = _write(value, parts, room - len(lead))
        if room <= 0:
            parts.append("…")
            return room
    parts.append(after)
    return room - len(after)


def _scalar(value: Any, room: int) -> str:
    match value:
        case str():
            return _text(value, room)
        case bytes() | bytearray():
            shown = bytes(value[:_BYTES_SHOWN])
            more = f"… {len(value)} bytes" if len(value) > _BYTES_SHOWN else ""
            return f"{shown!r}{more}"
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta() | Decimal() | UUID():
            return str(value)
        case Member(enum=enum, member=member):
            return f"{enum}.{member}"
        case Unread(why=why):
            return f"(can't be shown: {why})"
        case _:
            return repr(value)


def _text(text: str, room: int) -> str:
    """Quoted, with everything that is not printable escaped."""
    return json.dumps(text[: room + 1], ensure_ascii=False)
