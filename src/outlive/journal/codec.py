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
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.msgpack import Ext

from outlive.errors import ValueRefused
from outlive.journal.codec_allowed import Allowed
from outlive.journal.codec_bounds import VALUE_BYTES_MAX, Refusal
from outlive.journal.codec_read import Reader
from outlive.journal.codec_scalars import READERS, pack
from outlive.journal.codec_walk import FROZENSET, ITEMS, PLAIN, SET, TEXT_ONLY, Walk
from outlive.journal.hints import Registry, reachable_classes
from outlive.journal.parts import LEAF, LEAF_MIN, Leaf, Parted
from outlive.journal.redacting import same_but_for_marks

__all__ = ["VALUE_BYTES_MAX", "Codec", "Registry", "codec_for"]

#: What reading damaged bytes may raise below us.
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
    is_small_text = len(value) <= _SMALL and TEXT_ONLY.issuperset(map(type, value))
    if is_small_text and _FLAT.issuperset(map(type, value.values())):
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
