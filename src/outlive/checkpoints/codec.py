"""States as bytes and back: exactly, or refused with the path to what would not come back."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from outlive.engine.definitions import registry
from outlive.errors import CorruptRecord, ValueRefused
from outlive.journal.codec import codec_for
from outlive.journal.parts import Parted
from outlive.model.ids import digest as digest_of

_codec = codec_for([], registry)
#: A dict without anything in it.
NOTHING: Final = _codec.write({})


def encode(value: Any, what: str) -> bytes:
    """A state or its metadata as it is now; what becomes of it later changes nothing.

    Raises:
        ValueRefused: it is no dict, or a part of it would not come back as it is.
    """
    if type(value) is not dict:
        raise ValueRefused(f"{what} is a dict, not {type(value).__name__}")
    return _codec.write(value)


def decode(raw: bytes, run_id: str, seq: int) -> dict[str, Any]:
    """A copy of its own."""
    value = _codec.decode(raw)
    if not isinstance(value, dict):
        raise CorruptRecord(run_id, seq, f"its state is a {type(value).__name__}")
    return value


def digest(value: Any) -> str:
    """What a value is compared by: the same in every process, whatever the order of its dicts.

    Raises:
        ValueRefused: a part of it could not be saved.
    """
    return digest_of(_codec.ordered(_codec.encode(value))).hex()


def json_size(value: dict[str, Any], raw: bytes) -> int:
    """Bytes of a value as compact JSON in UTF-8; where JSON can't have it, as it is stored."""
    try:
        return len(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return size_of(raw)


def size_of(raw: bytes) -> int:
    """Bytes of a whole value."""
    if type(raw) is not Parted:
        return len(raw)
    leaves: Any = raw.leaves.values()
    try:
        if all(map(str.isascii, leaves)):
            return len(raw) + sum(map(len, leaves))
    except TypeError:
        pass  # some are bytes
    sizes = (len(leaf) if isinstance(leaf, bytes) else len(leaf.encode()) for leaf in leaves)
    return len(raw) + sum(sizes)
