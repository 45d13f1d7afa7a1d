"""Values as bytes and back, exactly or not at all.

msgpack in insertion order behind a strict walk. What msgpack does not know is tagged by ext
codes, so no user's dict can look like a tag:

    1 tuple  2 set  3 frozenset  4 datetime  5 date  6 time  7 timedelta  8 Decimal  9 UUID
    10 int beyond 64 bits  11 complex  12 bytearray  13 dict with keys that are not text
    32 object: class, fingerprint, fields (and for pydantic which of them were given)
    33 Enum: class, member          48 a big text or bytes that stands by itself (``parts``)

Reading never imports, never looks an attribute up by a name found in data, runs no validator.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.msgpack import Ext

from outlive.errors import ValueRefused
from outlive.journal.codec.bounds import VALUE_BYTES_MAX, Refusal
from outlive.journal.codec.hints import Allowed, Registry, reachable_classes
from outlive.journal.codec.parts import LEAF, LEAF_MIN, Leaf, Parted
from outlive.journal.codec.scalars import READERS, pack
from outlive.journal.codec.shapes import NO_DEFAULT, EnumShape, Shape, fingerprint
from outlive.journal.codec.walk import (
    ENUM,
    FROZENSET,
    ITEMS,
    OBJECT,
    PLAIN,
    SET,
    TEXT_ONLY,
    TUPLE,
    Walk,
)
from outlive.journal.redaction import same_but_for_marks


class Reader:
    """Reads the values of one codec."""

    def __init__(self, allowed: Allowed, leaves: Mapping[bytes, Leaf] | None = None) -> None:
        self._allowed = allowed
        self._leaves = leaves or {}
        self.read = msgspec.msgpack.Decoder(ext_hook=self._tagged).decode
        self._tags: Mapping[int, Callable[[memoryview], Any]] = {
            **READERS,
            TUPLE: self._tuple,
            SET: self._set,
            FROZENSET: lambda payload: frozenset(self._set(payload)),
            ITEMS: self._items,
            OBJECT: self._object,
            ENUM: self._enum,
            LEAF: self._leaf,
        }

    def _tagged(self, tag: int, payload: memoryview) -> Any:
        reader = self._tags.get(tag)
        if reader is not None:
            return reader(payload)
        raise Refusal(f"tag {tag} is unknown to this release")

    def _leaf(self, payload: memoryview) -> Leaf:
        """Never changed by anybody, so it need not be a copy."""
        leaf = self._leaves.get(bytes(payload))
        if leaf is None:
            raise Refusal(f"a part of it, {payload.hex()}, is not at hand")
        return leaf

    def _list(self, payload: memoryview) -> list[Any]:
        parts = self.read(payload)
        if type(parts) is not list:
            raise Refusal(f"a {type(parts).__name__} where a list of parts must be")
        return parts

    def _tuple(self, payload: memoryview) -> tuple[Any, ...]:
        return tuple(self._list(payload))

    def _set(self, payload: memoryview) -> set[Any]:
        parts = self._list(payload)
        found: set[Any] = _hashed(set, parts)
        if len(found) != len(parts):
            raise Refusal("a set with an element that occurs twice")
        return found

    def _items(self, payload: memoryview) -> dict[Any, Any]:
        flat = self._list(payload)
        found: dict[Any, Any] = _hashed(dict, zip(flat[::2], flat[1::2], strict=True))
        if 2 * len(found) != len(flat):
            raise Refusal("a dict with a key that occurs twice")
        return found

    def _enum(self, payload: memoryview) -> Any:
        name, member = self._list(payload)
        shape = self._shape(name)
        if not isinstance(shape, EnumShape):
            raise Refusal(f"recorded a member of Enum {name}, which is not an Enum now")
        return shape.make(member)

    def _object(self, payload: memoryview) -> Any:
        name, print_, fields, *rest = self._list(payload)
        shape = self._shape(name)
        if isinstance(shape, EnumShape):
            raise Refusal(f"recorded an object of class {name}, which is an Enum now")
        if type(fields) is not dict:
            raise Refusal(f"recorded {name} without fields")
        given = _given(fields, rest) if rest else None
        if print_ != shape.fingerprint or fields.keys() != shape.name_set:
            fields = _evolved(shape, fields, print_)
        try:
            return shape.make(fields, given)
        except Exception as exc:
            raise Refusal(f"{shape.name} refused its fields: {type(exc).__name__}: {exc}") from exc

    def _shape(self, name: object) -> Shape | EnumShape:
        shape = self._allowed.by_name(name) if type(name) is str else None
        if shape is None:
            raise Refusal(
                f"recorded class {name!s:.200}; allowed here: {self._allowed.names()}. "
                "Annotate with the class, or outlive.register(cls, name=...) under that name"
            )
        return shape


def _given(fields: dict[str, Any], rest: list[Any]) -> set[str]:
    given = set(rest[0])
    if len(rest) > 1 or not given <= fields.keys():
        raise Refusal("fields that were given but are not there")
    return given


def _evolved(shape: Shape, fields: dict[str, Any], recorded: object) -> dict[str, Any]:
    """The fields of a class that changed since: new ones take their defaults."""
    if recorded != fingerprint(fields) or recorded == shape.fingerprint:
        raise Refusal(f"recorded {shape.name} with fields that are not those of its fingerprint")
    missing = [name for name in shape.names if name not in fields]
    unknown = [name for name in fields if name not in shape.names]
    filled = {name: shape.default(name) for name in missing}
    required = [name for name in missing if filled[name] is NO_DEFAULT]
    if unknown or required:
        raise Refusal(
            f"recorded {shape.name}({', '.join(fields)}), the class is now {shape.render()}: "
            + "; ".join(
                [f"{name} is unknown" for name in unknown]
                + [f"{name} has no default" for name in required]
            )
        )
    return {name: fields[name] if name in fields else filled[name] for name in shape.names}


def _hashed(make: Callable[[Any], Any], parts: Any) -> Any:
    try:
        return make(parts)
    except Exception as exc:  # a recorded object's own __hash__ or __eq__ may raise anything
        raise Refusal(f"can't be hashed: {type(exc).__name__}: {exc}") from exc


__all__ = ["VALUE_BYTES_MAX", "Codec", "Registry", "codec_for"]

#: Errors that decoding damaged bytes may raise.
_DAMAGE: Final = (
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RecursionError,
    struct.error,
)


#: A dict of so few parts can't hold one text often enough to matter.
_SMALL: Final = 32
_FLAT: Final = PLAIN | {str}


def codec_for(hints: Iterable[Any], registry: Registry) -> Codec:
    """A codec whose data may name the classes that these hints or the registry reach.

    Raises:
        DefinitionRefused: two classes share a name, or a hint can't be resolved.
    """
    return Codec(Allowed(reachable_classes(hints), registry))


class Codec:
    """Writes and reads the values of one step or flow; safe to share between threads."""

    def __init__(self, allowed: Allowed) -> None:
        self._allowed = allowed
        self._read = Reader(allowed).read

    def encode(self, value: Any) -> bytes:
        """The value's bytes.

        Raises:
            ValueRefused: some part would not come back as it is; the path says which.
        """
        return self._encode(value, None)

    def write(self, value: Any) -> bytes:
        """The value's bytes as a journal keeps them: big texts and bytes stand by themselves.

        Raises:
            ValueRefused: as ``encode``.
        """
        kind = type(value)
        if kind in _FLAT or (kind is dict and _is_small_flat(value)):
            try:
                plain = pack(value)
            except (OverflowError, UnicodeEncodeError):
                pass  # the walk says what is wrong, or does it in another way
            else:
                if len(plain) < LEAF_MIN:
                    return plain
        leaves: dict[bytes, Leaf] = {}
        data = self._encode(value, leaves)
        return Parted(data, leaves) if len(data) >= LEAF_MIN or leaves else data

    def _encode(self, value: Any, leaves: dict[bytes, Leaf] | None) -> bytes:
        kind = type(value)
        try:
            try:
                data = b""
                if kind is str or (kind is dict and _is_flat(value)):
                    data = pack(value)
                if not data or (leaves is not None and len(data) >= LEAF_MIN):
                    data = pack(Walk(self._allowed, False, leaves).value(value))
            except (OverflowError, UnicodeEncodeError):
                if leaves is not None:
                    leaves.clear()
                data = pack(Walk(self._allowed, True, leaves).value(value))
        except Refusal as refusal:
            raise refusal.as_error() from None
        except RuntimeError as exc:
            raise ValueRefused(f"it changed while it was being recorded: {exc}") from exc
        if len(data) > VALUE_BYTES_MAX:
            raise ValueRefused(f"larger than {VALUE_BYTES_MAX} bytes when recorded")
        return data

    def decode(self, data: bytes) -> Any:
        """The value that these bytes are; a copy of its own each time.

        Raises:
            ValueRefused: they name a class that is not allowed here, its fields changed,
                or they are no value at all.
            WrongVersion: a later release wrote them.
        """
        if len(data) > VALUE_BYTES_MAX:
            raise ValueRefused(f"{len(data)} bytes are more than a value's {VALUE_BYTES_MAX}")
        try:
            if type(data) is Parted and data.leaves:
                return Reader(self._allowed, data.leaves).read(data)
            return self._read(data)
        except Refusal as refusal:
            raise refusal.as_error() from refusal.__cause__
        except _DAMAGE as exc:
            raise ValueRefused(f"no value: {type(exc).__name__}: {str(exc)[:200]}") from exc

    def same(self, a: bytes, b: bytes) -> bool:
        """Whether both are the same value but for the order of dicts, and what is redacted."""
        if a == b:
            return True
        try:
            return self.ordered(a) == self.ordered(b) or same_but_for_marks(a, b)
        except _DAMAGE:
            return False

    def ordered(self, data: bytes) -> bytes:
        """A value's bytes with its dicts and sets in order: the same for the same value."""
        return _ordered(_bare(data))


def _is_flat(value: dict[Any, Any]) -> bool:
    """Whether a dict of text keys holds nothing but text and plain scalars, and little of it."""
    if _is_small_flat(value):
        return True
    size = 0
    for key, part in value.items():
        kind = type(part)
        if type(key) is not str:
            return False
        if kind is str:
            size += len(part)
        elif kind not in PLAIN and not (kind is float and part - part == 0.0):
            return False
    return size <= VALUE_BYTES_MAX


def _is_small_flat(value: dict[Any, Any]) -> bool:
    """Whether it is what most arguments are: a few names, with text and plain scalars."""
    is_small_text = len(value) <= _SMALL and TEXT_ONLY.issuperset(map(type, value))
    return is_small_text and _FLAT.issuperset(map(type, value.values()))


_ordered = msgspec.msgpack.Encoder(order="sorted").encode


def _order_tagged(tag: int, payload: memoryview) -> Ext:
    """A tagged part with every dict inside it in order, still tagged: needs no class."""
    if tag in READERS or tag == LEAF:
        return Ext(tag, bytes(payload))
    parts = _bare(payload)
    if tag in (SET, FROZENSET):
        parts = [Raw(part) for part in sorted(map(_ordered, parts))]
    elif tag == ITEMS:
        keys, values = map(_ordered, parts[::2]), map(_ordered, parts[1::2])
        pairs = sorted(zip(keys, values, strict=True))
        parts = [Raw(part) for pair in pairs for part in pair]
    return Ext(tag, _ordered(parts))


_bare = msgspec.msgpack.Decoder(ext_hook=_order_tagged).decode
