"""Values in PostgreSQL's binary form, both ways, and text that may hold NUL.

A batch of any size is a fixed number of arrays, so that one statement of one text does for all
sizes. Arrays are packed here: the driver's general way costs three times as much, and this is done
for every commit. PostgreSQL's text can't hold NUL, ids and names may (a key is whatever the user
says), so NUL is written as two other characters; all that begins with a text still begins with it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from psycopg import pq

#: PostgreSQL's numbers for types, and for arrays of them.
BOOL, BYTES, INT8, INT4, TEXT, VOID = 16, 17, 20, 23, 25, 2278
BYTES_ARRAY, INT8_ARRAY, TEXT_ARRAY = 1001, 1016, 1009

#: (type, value in binary form)
Parameter: TypeAlias = tuple[int, bytes | None]
Row: TypeAlias = tuple[Any, ...]

_ARRAY = struct.Struct("!iiIii")
_SIZE = struct.Struct("!i")
_INT8 = struct.Struct("!q")
_DIMENSIONS, _FIRST, _HAS_NULLS = 1, 1, 1
_NULL = _SIZE.pack(-1)
#: Most values are short.
_SIZES = tuple(_SIZE.pack(count) for count in range(1024))


def writable(text: str) -> str:
    """A text that PostgreSQL can keep: the same one, unless it holds NUL or its stand-in."""
    if "\0" in text or "\1" in text:
        return text.replace("\1", "\1\2").replace("\0", "\1\1")
    return text


def readable(text: str) -> str:
    """The text as it was before ``writable``."""
    if "\1" in text:
        return text.replace("\1\1", "\0").replace("\1\2", "\1")
    return text


def text(value: str | None) -> Parameter:
    """A text that may hold NUL."""
    return TEXT, None if value is None else writable(value).encode()


def boolean(value: bool) -> Parameter:
    """Yes or no."""
    return BOOL, b"\1" if value else b"\0"


def int8(value: int | None) -> Parameter:
    """A whole number."""
    return INT8, None if value is None else _INT8.pack(value)


def blob(value: bytes) -> Parameter:
    """Bytes as they are."""
    return BYTES, value


def texts(values: Sequence[str | None]) -> Parameter:
    """Texts that may hold NUL."""
    if _are_equal(values):
        encoded = [text(values[0])[1]] * len(values)
    elif _is_clean(values):
        encoded = [None if value is None else value.encode() for value in values]
    else:
        encoded = [text(value)[1] for value in values]
    return TEXT_ARRAY, _packed(TEXT, encoded)


def blobs(values: Sequence[bytes | None]) -> Parameter:
    """Many bytes."""
    return BYTES_ARRAY, _packed(BYTES, values)


def int8s(values: Sequence[int | None]) -> Parameter:
    """Whole numbers."""
    if None in values or _are_equal(values):
        pack = _INT8.pack
        return INT8_ARRAY, _packed(INT8, [None if each is None else pack(each) for each in values])
    count = len(values)
    head = _ARRAY.pack(_DIMENSIONS, 0, INT8, count, _FIRST)
    flat = [part for value in values for part in (_INT8.size, value)]
    return INT8_ARRAY, head + struct.pack("!" + "iq" * count, *flat)


def _are_equal(values: Sequence[object]) -> bool:
    """Most columns of a batch's headers are the same in every row."""
    return len(values) > 1 and values.count(values[0]) == len(values)


def _is_clean(values: Sequence[str | None]) -> bool:
    whole = "".join([value for value in values if value is not None])
    return "\0" not in whole and "\1" not in whole


def _packed(kind: int, values: Sequence[bytes | None]) -> bytes:
    head = _ARRAY.pack(_DIMENSIONS, _HAS_NULLS if None in values else 0, kind, len(values), _FIRST)
    if _are_equal(values):
        return head + _element(values[0]) * len(values)
    if None in values:
        return head + b"".join([_element(value) for value in values])
    sizes, packs = len(_SIZES), _SIZES
    return head + b"".join(
        [
            part
            for value in values
            if value is not None
            for part in (
                packs[len(value)] if len(value) < sizes else _SIZE.pack(len(value)),
                value,
            )
        ]
    )


def _element(value: bytes | None) -> bytes:
    return _NULL if value is None else _SIZE.pack(len(value)) + value


def _whole(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


_READERS: Mapping[int, Callable[[bytes], Any]] = {
    BOOL: lambda value: value != b"\0",
    INT8: _whole,
    INT4: _whole,
    TEXT: lambda value: readable(value.decode()),
    VOID: lambda value: None,
}


def rows_of(result: pq.abc.PGresult) -> list[Row]:
    """The rows of an answer in binary form; it holds only the types above."""
    if not result.ntuples:
        return []
    places, get = range(result.ntuples), result.get_value
    columns: list[list[Any]] = []
    for column in range(result.nfields):
        values: list[Any] = [get(place, column) for place in places]
        kind = result.ftype(column)
        if kind != BYTES:
            read = _READERS[kind]
            values = [None if value is None else read(value) for value in values]
        columns.append(values)
    return list(zip(*columns, strict=True))
