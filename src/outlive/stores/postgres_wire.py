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


def int8(value: int | None) -> Parameter:
    """A whole number."""
    return INT8, None if value is None else _INT8.pack(value)


def blob(value: bytes) -> Parameter:
    """Bytes as they are."""
    return BYTES, value


def texts(values: Sequence[str | None]) -> Parameter:
    """Texts that may hold NUL."""
    encoded = [None if value is None else writable(value).encode() for value in values]
    return TEXT_ARRAY, _packed(TEXT, encoded)


def blobs(values: Sequence[bytes | None]) -> Parameter:
    """Many bytes."""
    return BYTES_ARRAY, _packed(BYTES, values)


def int8s(values: Sequence[int | None]) -> Parameter:
    """Whole numbers."""
    if None in values:
        numbers = [None if value is None else _INT8.pack(value) for value in values]
        return INT8_ARRAY, _packed(INT8, numbers)
    count = len(values)
    head = _ARRAY.pack(_DIMENSIONS, 0, INT8, count, _FIRST)
    flat = [part for value in values for part in (_INT8.size, value)]
    return INT8_ARRAY, head + struct.pack("!" + "iq" * count, *flat)


def _packed(kind: int, values: Sequence[bytes | None]) -> bytes:
    has_nulls = _HAS_NULLS if None in values else 0
    parts = [_ARRAY.pack(_DIMENSIONS, has_nulls, kind, len(values), _FIRST)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(_SIZE.pack(len(value)))
            parts.append(value)
    return b"".join(parts)


def _whole(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


_READERS: Mapping[int, Callable[[bytes], Any]] = {
    BOOL: lambda value: value != b"\0",
    BYTES: bytes,
    INT8: _whole,
    INT4: _whole,
    TEXT: lambda value: readable(value.decode()),
    VOID: lambda value: None,
}


def rows_of(result: pq.abc.PGresult) -> list[Row]:
    """The rows of an answer in binary form; it holds only the types above."""
    columns = range(result.nfields)
    readers = [_READERS[result.ftype(column)] for column in columns]
    get = result.get_value
    rows = []
    for at in range(result.ntuples):
        values = [get(at, column) for column in columns]
        rows.append(
            tuple(
                None if value is None else read(value)
                for read, value in zip(readers, values, strict=True)
            )
        )
    return rows
