"""Scalars that msgpack does not know: each has a tag and a payload.

A writer returns the value itself when msgpack holds it exactly, else an ``Ext``. A reader gets
the payload. Both refuse what can't be restored exactly.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, Final
from uuid import UUID, SafeUUID

import msgspec
from msgspec.msgpack import Ext

from outlive.journal.codec.bounds import INT_DIGITS_MAX, Refusal

DATETIME, DATE, TIME, TIMEDELTA, DECIMAL, UUID_, BIGINT, COMPLEX, BYTEARRAY = range(4, 13)

pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode
_unpack_text = msgspec.msgpack.Decoder(str).decode
_unpack_ints = msgspec.msgpack.Decoder(tuple[int, int, int]).decode

_INT_BOUND = 10**INT_DIGITS_MAX
_INT_BYTES_MAX = _INT_BOUND.bit_length() // 8 + 1
_TWO_DOUBLES = struct.Struct(">dd")
_ZONE_KEY = re.compile(r"[A-Za-z0-9_+\-]+(/[A-Za-z0-9_+\-]+)*")
_ZONE_KEY_CHARS_MAX = 64
_MICROSECOND = timedelta(microseconds=1)


def write_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise Refusal(f"lone surrogate at character {exc.start}: it is not valid text") from None
    return value


def write_int(value: int) -> int | Ext:
    if -(2**63) <= value < 2**64:
        return value
    if not -_INT_BOUND < value < _INT_BOUND:
        raise Refusal(f"an int of more than {INT_DIGITS_MAX} digits")
    return Ext(BIGINT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def read_int(payload: memoryview) -> int:
    if len(payload) > _INT_BYTES_MAX:
        raise Refusal(f"an int of more than {INT_DIGITS_MAX} digits")
    return int.from_bytes(payload, "big", signed=True)


def write_float(value: float) -> float:
    if value - value != 0.0:
        raise Refusal(f"{value} is not a finite number")
    return value


def write_complex(value: complex) -> Ext:
    return Ext(COMPLEX, _TWO_DOUBLES.pack(write_float(value.real), write_float(value.imag)))


def read_complex(payload: memoryview) -> complex:
    return complex(*_TWO_DOUBLES.unpack(payload))


def write_decimal(value: Decimal) -> Ext:
    if not value.is_finite():
        raise Refusal(f"Decimal {value} is not a finite number")
    return Ext(DECIMAL, pack(str(value)))


def read_decimal(payload: memoryview) -> Decimal:
    value = Decimal(_unpack_text(payload))
    if not value.is_finite():
        raise Refusal("a Decimal that is not finite")
    return value


def write_uuid(value: UUID) -> Ext:
    safe = value.is_safe.value
    return Ext(UUID_, value.bytes if safe is None else value.bytes + bytes((safe & 255,)))


def read_uuid(payload: memoryview) -> UUID:
    raw = bytes(payload)
    if len(raw) == 16:
        return UUID(bytes=raw)
    safe = {b"\x00": SafeUUID.safe, b"\xff": SafeUUID.unsafe}[raw[16:]]
    return UUID(bytes=raw[:16], is_safe=safe)


def write_timedelta(value: timedelta) -> Ext:
    return Ext(TIMEDELTA, pack((value.days, value.seconds, value.microseconds)))


def read_timedelta(payload: memoryview) -> timedelta:
    days, seconds, microseconds = _unpack_ints(payload)
    return timedelta(days, seconds, microseconds)


def write_datetime(value: datetime) -> Ext:
    zone = value.tzinfo
    if not value.fold and _iso_tells(zone):
        return Ext(DATETIME, pack(value.isoformat()))
    wall = value.replace(tzinfo=None).isoformat()
    return Ext(DATETIME, pack((wall, _write_zone(zone, value), value.fold)))


def read_datetime(payload: memoryview) -> datetime:
    parts = _unpack(payload)
    if type(parts) is str:
        return datetime.fromisoformat(parts)
    wall, zone, fold = parts
    return datetime.fromisoformat(wall).replace(tzinfo=_read_zone(zone), fold=fold)


def write_time(value: time) -> Ext:
    zone = value.tzinfo
    if not value.fold and _iso_tells(zone):
        return Ext(TIME, pack(value.isoformat()))
    wall = value.replace(tzinfo=None).isoformat()
    return Ext(TIME, pack((wall, _write_zone(zone, None), value.fold)))


def read_time(payload: memoryview) -> time:
    parts = _unpack(payload)
    if type(parts) is str:
        return time.fromisoformat(parts)
    wall, zone, fold = parts
    return time.fromisoformat(wall).replace(tzinfo=_read_zone(zone), fold=fold)


def _iso_tells(zone: tzinfo | None) -> bool:
    if zone is None or zone is UTC:
        return True
    if type(zone) is not timezone:
        return False
    offset, *name = _timezone_arguments(zone)
    # Python treats an offset of less than a second as no offset.
    return not name and not offset.microseconds


def _timezone_arguments(zone: timezone) -> tuple[Any, ...]:
    """The offset, and the zone's name if it has one."""
    arguments: tuple[Any, ...] = zone.__getinitargs__()  # type: ignore[attr-defined]  # in no stub
    return arguments


def _write_zone(zone: tzinfo | None, when: datetime | None) -> object:
    if zone is None:
        return None
    if type(zone) is timezone:
        offset, *name = _timezone_arguments(zone)
        return (offset // _MICROSECOND, *name)
    zoneinfo = sys.modules.get("zoneinfo")
    if zoneinfo is None or type(zone) is not zoneinfo.ZoneInfo:
        raise Refusal(
            f"a time zone of type {type(zone).__name__}: use datetime.timezone or zoneinfo.ZoneInfo"
        )
    key: str | None = getattr(zone, "key", None)
    if key is None or _find_zone(key).utcoffset(when) != zone.utcoffset(when):
        raise Refusal(f"the time zone {key!r} is not the one that this machine knows by that key")
    return key


def _read_zone(zone: object) -> tzinfo | None:
    if zone is None:
        return None
    if isinstance(zone, str):
        return _find_zone(zone)
    if not isinstance(zone, list):
        raise Refusal("a time zone that is neither a key nor an offset")
    offset, *name = zone
    return timezone(timedelta(microseconds=offset), *name)


def _find_zone(key: str) -> tzinfo:
    from zoneinfo import ZoneInfo  # here: most processes never see a zone

    if len(key) > _ZONE_KEY_CHARS_MAX or not _ZONE_KEY.fullmatch(key):
        raise Refusal(f"{key[:40]!r} is not a time zone's key")
    try:
        return ZoneInfo(key)
    except (ValueError, LookupError, OSError):
        raise Refusal(f"this machine does not know the time zone {key!r}") from None


def _itself(value: Any) -> Any:
    return value


#: By exact type: a subclass is never a scalar.
WRITERS: Final[Mapping[type, Callable[[Any], Any]]] = {
    str: write_text,
    int: write_int,
    float: write_float,
    bool: _itself,
    type(None): _itself,
    bytes: _itself,
    bytearray: lambda value: Ext(BYTEARRAY, value),
    complex: write_complex,
    datetime: write_datetime,
    date: lambda value: Ext(DATE, pack(value.isoformat())),
    time: write_time,
    timedelta: write_timedelta,
    Decimal: write_decimal,
    UUID: write_uuid,
}

READERS: Final[Mapping[int, Callable[[memoryview], Any]]] = {
    DATETIME: read_datetime,
    DATE: lambda payload: date.fromisoformat(_unpack_text(payload)),
    TIME: read_time,
    TIMEDELTA: read_timedelta,
    DECIMAL: read_decimal,
    UUID_: read_uuid,
    BIGINT: read_int,
    COMPLEX: read_complex,
    BYTEARRAY: bytearray,
}
