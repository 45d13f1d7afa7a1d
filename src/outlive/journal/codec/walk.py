"""The strict walk before encoding: from a value to a tree that msgpack holds without loss.

Exact types only: unknown ones are refused, with their path. The walk returns the value itself
where nothing had to change, so plain data is not copied. It counts parts, because a value that
shares its parts can be far larger encoded than in memory.

The first walk trusts text and ints to be what msgpack takes, which they almost always are. When
msgpack refuses, a second, careful one looks at each.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any, Final

from msgspec import Raw
from msgspec.msgpack import Ext

from outlive.journal.codec.bounds import (
    CONTAINER_PARTS,
    DEPTH_MAX,
    PARTS_MAX,
    VALUE_BYTES_MAX,
    Refusal,
    key_step,
)
from outlive.journal.codec.hints import Allowed, explain
from outlive.journal.codec.parts import LEAF_MIN, Leaf, ListItem
from outlive.journal.codec.scalars import WRITERS, pack, write_text
from outlive.journal.codec.shapes import EnumShape, Parts, Shape

TUPLE, SET, FROZENSET = 1, 2, 3
ITEMS = 13
OBJECT, ENUM = 32, 33

TEXT_ONLY: Final = frozenset((str,))
#: Exact types that msgpack takes as they are, or refuses.
PLAIN: Final = frozenset((int, bool, type(None)))
#: Keys count from here on: a few dicts can't share enough of them to matter.
_PARTS_WHILE_SMALL: Final = PARTS_MAX - 64 * CONTAINER_PARTS
_NO_LEAF: Final = 1 << 62
#: A list of this length is likely to be passed on again, one longer.
_MANY: Final = 8
_KEYS_OF_MESSAGE: Final = 8
_PLAIN_WHEN_CAREFUL: Final = frozenset((bool, type(None)))


class _Nothing:
    """A type that no value has."""


class Walk:
    """One walk over one value."""

    __slots__ = ("_allowed", "_careful", "_leaf_min", "_leaves", "_parts", "_room")

    def __init__(
        self, allowed: Allowed, careful: bool, leaves: dict[bytes, Leaf] | None = None
    ) -> None:
        self._allowed = allowed
        self._careful = careful
        self._leaves = {} if leaves is None else leaves
        self._leaf_min = _NO_LEAF if leaves is None else LEAF_MIN
        self._room = VALUE_BYTES_MAX
        self._parts = PARTS_MAX

    def value(self, value: Any, depth: int = 1) -> Any:
        """The value as msgpack shall encode it."""
        kind = type(value)
        if kind is dict:
            return self._dict(value, depth)
        if kind is list:
            return self._sequence(value, depth)
        if kind is str and not self._careful and len(value) >= self._leaf_min:
            return self._leaf(value)
        if kind is tuple:
            return Ext(TUPLE, pack(self._sequence(value, depth)))
        write = WRITERS.get(kind)
        if write is not None:
            written = write(value)
            if type(written) is Ext:
                self._charge(memoryview(written.data).nbytes)
            elif kind is str or kind is bytes:
                if len(value) >= self._leaf_min:
                    return self._leaf(value)
                self._charge(len(value))
            return written
        if kind is set or kind is frozenset:
            return Ext(SET if kind is set else FROZENSET, self._set(value, depth))
        return self._object(value, depth)

    def _leaf(self, leaf: Leaf) -> Ext:
        """Store a leaf separately."""
        self._charge(len(leaf))
        reference = self._allowed.memo.reference(leaf)
        self._leaves[bytes(reference.data)] = leaf
        return reference

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        if not TEXT_ONLY.issuperset(map(type, value)):
            return self._items(value, depth)
        text, plain = (_Nothing, _PLAIN_WHEN_CAREFUL) if self._careful else (str, PLAIN)
        self._enter(value, depth)
        size, leaf_min = len(value), self._leaf_min
        if self._careful or self._parts < _PARTS_WHILE_SMALL:
            size += self._check_keys(value)
        changed = None
        for key, part in value.items():
            kind = type(part)
            if kind is text and len(part) < leaf_min:
                size += len(part)
                continue
            if kind in plain or (kind is float and part - part == 0.0):
                continue
            try:
                written = self.value(part, depth + 1)
            except Refusal as refusal:
                refusal.under(key_step(key))
                raise
            if written is not part:
                if changed is None:
                    changed = dict(value)
                changed[key] = written
        self._charge(size)
        return value if changed is None else changed

    def _messages(self, value: Sequence[Any], depth: int) -> Sequence[Any]:
        """Walk a long list: texts, and dicts of only text, are cached."""
        self._enter(value, depth)
        if TEXT_ONLY.issuperset(map(type, value)) and max(map(len, value)) < LEAF_MIN:
            self._charge(len(value) + sum(map(len, value)))
            return value
        memo, leaves = self._allowed.memo, self._leaves
        known = memo.messages(value)
        leaves.update(known.leaves)
        written: list[Any] = known.written[:]
        entries, begin, size = memo.entries, len(written), len(value) + known.size
        met: list[tuple[tuple[str, ...], ListItem]] = []
        first = type(value[0])
        for index, part in enumerate(value[begin:] if begin else value, begin):
            kind, entry = type(part), None
            if kind is str:
                key, entry = (part,), self._text(part)
            elif kind is dict and len(part) <= _KEYS_OF_MESSAGE:
                key = (*part, *part.values())
                if TEXT_ONLY.issuperset(map(type, key)):
                    entry = entries.get(key) or self._message(key, part)
            if entry is not None:
                leaves.update(entry.leaves)
                size += entry.size
                written.append(entry.raw)
                if kind is first and begin + len(met) == index:
                    met.append((key, entry))
                continue
            try:
                written.append(self.value(part, depth + 1))
            except Refusal as refusal:
                refusal.under(f"[{index}]")
                raise
        if met:
            memo.keep_messages(value, known.followed_by(met))
        self._charge(size)
        return written

    def _text(self, text: str) -> ListItem:
        if len(text) < LEAF_MIN:
            return ListItem(text, {}, len(text))
        reference = self._allowed.memo.reference(text)
        return ListItem(reference, {bytes(reference.data): text}, len(text))

    def _message(self, key: tuple[str, ...], message: dict[str, str]) -> ListItem:
        """Cache a dict of only text."""
        memo, leaves = self._allowed.memo, {}
        written: dict[str, Any] = dict(message)
        for name, text in message.items():
            if len(text) >= LEAF_MIN:
                written[name] = reference = memo.reference(text)
                leaves[bytes(reference.data)] = text
        return memo.keep(key, ListItem(Raw(pack(written)), leaves, sum(map(len, key))))

    def _sequence(self, value: Sequence[Any], depth: int) -> Sequence[Any]:
        if len(value) >= _MANY and self._leaf_min == LEAF_MIN and not self._careful:
            return self._messages(value, depth)
        text, plain = (_Nothing, _PLAIN_WHEN_CAREFUL) if self._careful else (str, PLAIN)
        self._enter(value, depth)
        size, leaf_min = len(value), self._leaf_min
        changed = None
        for index, part in enumerate(value):
            kind = type(part)
            if kind is text and len(part) < leaf_min:
                size += len(part)
                continue
            if kind in plain or (kind is float and part - part == 0.0):
                continue
            try:
                written = self.value(part, depth + 1)
            except Refusal as refusal:
                refusal.under(f"[{index}]")
                raise
            if written is not part:
                if changed is None:
                    changed = list(value)
                changed[index] = written
        self._charge(size)
        return value if changed is None else changed

    def _set(self, value: set[Any] | frozenset[Any], depth: int) -> bytes:
        """Sort elements by their bytes: equal sets are encoded equally."""
        self._enter(value, depth)
        try:
            parts = sorted(pack(self.value(part, depth + 1)) for part in value)
        except Refusal as refusal:
            refusal.under("{}")
            raise
        return pack([Raw(part) for part in parts])

    def _items(self, value: dict[Any, Any], depth: int) -> Ext:
        """A dict with keys that are not text: key, value, key, value."""
        self._enter(value, depth)
        flat: list[Any] = []
        for key, part in value.items():
            try:
                flat += (self.value(key, depth + 1), self.value(part, depth + 1))
            except Refusal as refusal:
                refusal.under(key_step(key))
                raise
        return Ext(ITEMS, pack(flat))

    def _object(self, value: Any, depth: int) -> Ext:
        kind = type(value)
        shape = self._allowed.by_type(kind)
        if shape is None:
            raise Refusal(explain(kind, self._allowed))
        if isinstance(shape, EnumShape):
            return Ext(ENUM, pack(shape.take(value)))
        fields, given = _taken_apart(shape, value)
        payload = shape.prefix + pack(self._dict(fields, depth))
        if given is not None:
            payload += pack(sorted(given))
        return Ext(OBJECT, payload)

    def _check_keys(self, value: dict[str, Any]) -> int:
        """The size of the keys as text."""
        for key in value if self._careful else ():
            try:
                write_text(key)
            except Refusal as refusal:
                refusal.under(key_step(key))
                raise
        return sum(map(len, value))

    def _enter(self, container: Sized, depth: int) -> None:
        self._parts -= len(container) + CONTAINER_PARTS
        if depth > DEPTH_MAX:
            raise Refusal(f"deeper than {DEPTH_MAX} levels, or a cycle")
        if self._parts < 0:
            raise Refusal(
                f"more than {PARTS_MAX} parts (a list, dict or object is {CONTAINER_PARTS})"
            )

    def _charge(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise Refusal(f"larger than {VALUE_BYTES_MAX} bytes when recorded")


def _taken_apart(shape: Shape, value: Any) -> Parts:
    try:
        return shape.take(value)
    except Refusal:
        raise
    except Exception as exc:  # a half-made object may raise anything when it is looked at
        raise Refusal(f"{shape.name} can't be read: {type(exc).__name__}: {exc}") from exc
