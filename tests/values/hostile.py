"""What may be thrown at the codec, by users' code or by a damaged store, and must only bounce.

Run as a script it tries every case and prints one line of JSON for each: how it was refused,
how much time that took, and how far memory grew meanwhile.
"""

from __future__ import annotations

import asyncio
import collections
import decimal
import enum
import functools
import io
import json
import pathlib
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import msgspec
from msgspec.msgpack import Ext

from tests.values.specimens import Model, Order, Point, Tag, Tree, codec

MEGABYTE = 1024 * 1024
pack = msgspec.msgpack.Encoder().encode
ALL = codec()


def deep(wrap: Callable[[Any], Any], levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


def cyclic_list() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def cyclic_dict() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value


def cyclic_object() -> Tree:
    value = Tree(1)
    value.children.append(value)
    return value


class Text(str):
    pass


class Number(int):
    pass


class Moment(datetime):
    pass


class Local(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=1)


class Liar:
    """Says that it is a dict."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override]
        return dict


class Shouting:
    def __repr__(self) -> str:
        raise RuntimeError("never ask for my repr")

    __hash__ = object.__hash__


class Undeclared(enum.Enum):
    A = 1


def half_made() -> Model:
    return Model.__new__(Model)


def extra_attribute() -> Order:
    order = Order(1)
    order.secret = 2  # type: ignore[attr-defined]
    return order


def unset_field() -> Order:
    order = Order(1)
    del order.id
    return order


def wrong_length() -> Any:
    return tuple.__new__(Point, (1, 2, 3))


#: Values that must not be written.
TO_WRITE: dict[str, Callable[[], Any]] = {
    "a list in itself": cyclic_list,
    "a dict in itself": cyclic_dict,
    "an object in itself": cyclic_object,
    "65 lists deep": lambda: deep(lambda v: [v], 65),
    "65 dicts deep": lambda: deep(lambda v: {"a": v}, 65),
    "65 tuples deep": lambda: deep(lambda v: (v,), 65),
    "65 frozensets deep": lambda: deep(lambda v: frozenset([v]), 65),
    "65 dicts with int keys deep": lambda: deep(lambda v: {1: v}, 65),
    "65 objects deep": lambda: deep(Order, 65),
    "100,000 lists deep": lambda: deep(lambda v: [v], 100_000),
    "2^60 shared lists": lambda: deep(lambda v: [v, v], 60),
    "2^60 shared dicts": lambda: deep(lambda v: {"a": v, "b": v}, 60),
    "2^60 shared tuples": lambda: deep(lambda v: (v, v), 60),
    "a shared text 1,000 times": lambda: ["x" * MEGABYTE] * 1_000,
    "a shared text in a flat dict": lambda: dict.fromkeys(map(str, range(1_000)), "x" * MEGABYTE),
    "shared bytes 1,000 times": lambda: [b"x" * MEGABYTE] * 1_000,
    "a shared bytearray 1,000 times": lambda: (bytearray(MEGABYTE),) * 1_000,
    "a shared key 1,000 times": lambda: [*map(dict.fromkeys, [("k" * MEGABYTE,)] * 1_000)],
    "a shared list of 100,000,000 parts": lambda: [[None] * 10_000] * 10_000,
    "NaN": lambda: float("nan"),
    "infinity": lambda: [float("-inf")],
    "a complex NaN": lambda: complex(float("nan"), 0),
    "NaN as a key": lambda: {float("nan"): 1},
    "a Decimal NaN": lambda: decimal.Decimal("sNaN"),
    "a lone surrogate": lambda: "\ud800",
    "a lone surrogate in a key": lambda: {"a": {"\udc00": 1}},
    "a lone surrogate in a set": lambda: {"\udc00"},
    "a lone surrogate in an object": lambda: Tag("\udc00"),
    "an int of 4,301 digits": lambda: 10**4300,
    "an int of a million bits": lambda: -(1 << 1_000_000),
    "a subclass of str": lambda: Text("x"),
    "a subclass of str as a key": lambda: {Text("x"): 1},
    "a subclass of int": lambda: Number(1),
    "an OrderedDict": lambda: collections.OrderedDict(a=1),
    "a defaultdict": lambda: collections.defaultdict(int),
    "a Counter": lambda: collections.Counter("a"),
    "a deque": collections.deque,
    "a subclass of datetime": lambda: Moment(2024, 1, 1, tzinfo=UTC),
    "a time zone of one's own": lambda: datetime(2024, 1, 1, tzinfo=Local()),
    "an object that lies about its class": Liar,
    "an object whose repr raises": lambda: {"a": [Shouting()]},
    "an object whose repr raises as a key": lambda: {Shouting(): 1},
    "an Enum that no hint reaches": lambda: Undeclared.A,
    "a class": lambda: Order,
    "a module": lambda: json,
    "a function": lambda: deep,
    "a partial": lambda: functools.partial(deep),
    "a bound method": lambda: [].append,
    "a generator": lambda: (n for n in ()),
    "an iterator": lambda: iter([]),
    "dict keys": lambda: {"a": 1}.keys(),
    "an exception": lambda: ValueError("x"),
    "a traceback's frame": lambda: sys._getframe(),
    "an open file": io.BytesIO,
    "a lock": threading.Lock,
    "a path": lambda: pathlib.PurePath("a"),
    "a memoryview": lambda: memoryview(b"x"),
    "a range": lambda: range(3),
    "a weak reference": lambda: weakref.ref(Order),
    "a namespace": lambda: types.SimpleNamespace(a=1),
    "a mapping proxy": lambda: types.MappingProxyType({}),
    "a lock of asyncio": asyncio.Lock,
    "Ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "a bare object": object,
    "an ext of msgpack": lambda: Ext(1, b"\x90"),
    "raw msgpack": lambda: msgspec.Raw(b"\xc1"),
    "msgspec's UNSET": lambda: msgspec.UNSET,
    "a half-made model": half_made,
    "an attribute that is no field": extra_attribute,
    "a field that was never set": unset_field,
    "a NamedTuple of the wrong length": wrong_length,
}


def ext(tag: int, payload: Any) -> bytes:
    return pack(Ext(tag, payload if isinstance(payload, bytes) else pack(payload)))


def nested_ext(tag: int, levels: int) -> bytes:
    """A tag in a tag in a tag; built from the inside, each with a 4-byte length."""
    data = b"\x90"
    for _ in range(levels):
        body = b"\x91" + data
        data = b"\xc9" + len(body).to_bytes(4, "big") + bytes([tag]) + body
    return data


def order(*parts: Any) -> bytes:
    return ext(32, list(parts))


PRINT = ALL.encode(Order(1))[12:16]

#: Bytes that are no value.
TO_READ: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "a reserved byte": lambda: b"\xc1",
    "a list of 2^32 announced": lambda: b"\xdd\xff\xff\xff\xff",
    "a list of 2^31 announced, some there": lambda: b"\xdd\x7f\xff\xff\xff" + b"\x01" * 1000,
    "a dict of 2^32 announced": lambda: b"\xdf\xff\xff\xff\xff",
    "a text of 2^32 announced": lambda: b"\xdb\xff\xff\xff\xff" + b"a" * 100,
    "bytes of 2^32 announced": lambda: b"\xc6\xff\xff\xff\xff",
    "an ext of 2^32 announced": lambda: b"\xc9\xff\xff\xff\xff\x01",
    "2^32 announced inside a tuple": lambda: ext(1, b"\xdd\xff\xff\xff\xff"),
    "1,000,000 lists deep": lambda: b"\x91" * 1_000_000,
    "1,000,000 dicts deep": lambda: b"\x81\xa1a" * 1_000_000,
    "1,000,000 dicts deep in their keys": lambda: b"\x81" * 1_000_000,
    "10,000 tuples deep": lambda: nested_ext(1, 10_000),
    "10,000 frozensets deep": lambda: nested_ext(3, 10_000),
    "a byte too many": lambda: b"\x01\x01",
    "a byte too many inside a tuple": lambda: ext(1, b"\x90\x01"),
    "a list cut short": lambda: b"\x93\x01\x02",
    "a text cut short": lambda: b"\xa5abc",
    "a text that is not UTF-8": lambda: b"\xa2\xff\xfe",
    "a surrogate in UTF-8": lambda: b"\xa3\xed\xa0\x80",
    "a key that is not UTF-8": lambda: b"\x81\xa1\xff\x01",
    "an unknown tag": lambda: ext(99, []),
    "a negative tag": lambda: ext(-5, []),
    "a tuple that is a number": lambda: ext(1, 5),
    "a tuple without bytes": lambda: ext(1, b""),
    "a set that is a dict": lambda: ext(2, {}),
    "a set with an element twice": lambda: ext(2, [1, 1]),
    "a set with an element twice in two types": lambda: ext(2, [1, True]),
    "a set of lists": lambda: ext(2, [[1]]),
    "a frozenset of dicts": lambda: ext(3, [{}]),
    "a dict with a key twice": lambda: ext(13, [1, "a", 1, "b"]),
    "a dict with a key twice in two types": lambda: ext(13, [1, "a", 1.0, "b"]),
    "a dict with a key and no value": lambda: ext(13, [1]),
    "a dict with a list as a key": lambda: ext(13, [[1], 1]),
    "a date that does not exist": lambda: ext(5, "2024-02-30"),
    "a date of a million digits": lambda: ext(5, "9" * 1_000_000),
    "a datetime that is a list of nothing": lambda: ext(4, []),
    "a datetime with a zone elsewhere": lambda: ext(4, ["2024-01-01", "../../etc/passwd", 0]),
    "a datetime with an absolute zone": lambda: ext(4, ["2024-01-01", "/etc/passwd", 0]),
    "a datetime with a zone that is a package": lambda: ext(
        4, ["2024-01-01", "tzdata.zoneinfo", 0]
    ),
    "a datetime with an unknown zone": lambda: ext(4, ["2024-01-01", "Nowhere/City", 0]),
    "a datetime with a zone that is a folder": lambda: ext(4, ["2024-01-01", "Europe", 0]),
    "a datetime with a zone of a million letters": lambda: ext(4, ["2024-01-01", "A" * 10**6, 0]),
    "a datetime with a huge offset": lambda: ext(4, ["2024-01-01", [2**60], 0]),
    "a datetime with fold 7": lambda: ext(4, ["2024-01-01", None, 7]),
    "a time that is a number": lambda: ext(6, 5),
    "a timedelta too long": lambda: ext(7, [10**18, 0, 0]),
    "a timedelta of text": lambda: ext(7, ["a", 0, 0]),
    "a Decimal that is not a number": lambda: ext(8, "NaN"),
    "a Decimal of words": lambda: ext(8, "ten"),
    "a Decimal beyond all exponents": lambda: ext(8, "1E+99999999999999999999"),
    "a UUID of 15 bytes": lambda: ext(9, b"\0" * 15),
    "a UUID with a strange mark": lambda: ext(9, b"\0" * 16 + b"\x07"),
    "an int of a million bytes": lambda: ext(10, b"\x7f" * 1_000_000),
    "a complex of 15 bytes": lambda: ext(11, b"\0" * 15),
    "an object that is a number": lambda: ext(32, 5),
    "an object of an unknown class": lambda: order("os.system", b"1234", {}),
    "an object of a builtin": lambda: order("dict", b"1234", {}),
    "an object of a dunder": lambda: order("__import__", b"1234", {}),
    "an object whose class is a list": lambda: order(["Order"], b"1234", {}),
    "an object of a name of a million letters": lambda: order("x" * 1_000_000, b"1234", {}),
    "an object without fields": lambda: order("Order", PRINT),
    "an object with a wrong fingerprint": lambda: order("Order", b"1234", {"id": 1, "lines": []}),
    "an object with fields that are not its own": lambda: order("Order", PRINT, {"__class__": 1}),
    "an object with a field of the class": lambda: order("Order", PRINT, {"__init__": 1, "id": 1}),
    "an object with int fields": lambda: order("Order", PRINT, {1: 1, 2: 2}),
    "an object that is an Enum": lambda: order("Color", b"1234", {}),
    "a model with fields given that it lacks": lambda: order(
        "Model", PRINT, {"id": 1, "lines": 1}, ["x"]
    ),
    "a member of no Enum": lambda: ext(33, ["Order", "id"]),
    "an unknown member": lambda: ext(33, ["Color", "__class__"]),
    "a member by value": lambda: ext(33, ["Color", 1]),
    "a Flag with unknown bits": lambda: ext(33, ["Rights", 4096]),
    "an Enum without a member": lambda: ext(33, ["Color"]),
    "a leaf kept elsewhere": lambda: ext(48, b"\0" * 16),
    "a list kept elsewhere": lambda: ext(49, b"\0" * 16),
    "a dict kept elsewhere": lambda: ext(50, b"\0" * 16),
}


def peak() -> int:
    """The most memory that this process held since the last call of ``forget_peak``."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LookupError("no VmHWM in /proc/self/status")


def forget_peak() -> None:
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def attempt(action: Callable[[Any], object], given: Any) -> dict[str, Any]:
    """How one case was refused; a slow one is tried again, for the machine may have been busy."""
    answer = _attempt(action, given)
    tries = 1
    while answer["seconds"] > 0.5 and tries < 4:
        answer["seconds"] = min(answer["seconds"], _attempt(action, given)["seconds"])
        tries += 1
    return answer


def _attempt(action: Callable[[Any], object], given: Any) -> dict[str, Any]:
    forget_peak()
    before = peak()
    began = time.process_time()
    refused, text = "not refused", ""
    try:
        action(given)
    except Exception as error:  # the test judges which
        refused, text = type(error).__name__, str(error)
    return {
        "refused": refused,
        "text": text[:400],
        "length": len(text),
        "seconds": time.process_time() - began,
        "bytes": peak() - before,
    }


def main() -> None:
    for name, make in TO_WRITE.items():
        print(json.dumps({"case": f"write {name}", **attempt(ALL.encode, make())}))
    for name, make in TO_READ.items():
        print(json.dumps({"case": f"read {name}", **attempt(ALL.decode, make())}))


CASES = [f"write {name}" for name in TO_WRITE] + [f"read {name}" for name in TO_READ]

if __name__ == "__main__":
    main()
