"""Leaves: large texts and bytes that are stored separately, and the references in their place.

A *leaf* is a text or bytes of ``LEAF_MIN`` and more, wherever in a value it is. A ``Parted`` is a
value's bytes with a reference in place of each leaf, a function of the value alone, and carries
the leaves. Whoever would write one like plain bytes is refused by msgpack: its leaves can't be
lost on the way.

    48 leaf: the BLAKE2b-128 of its own msgpack bytes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.msgpack import Ext

from outlive.journal.codec.scalars import READERS, pack
from outlive.model.checkpoints import CheckpointsBegan, SnapshotSaved
from outlive.model.events import (
    ChapterBegan,
    ChildEnded,
    ChildIntended,
    EffectDone,
    EffectIntended,
    Event,
    Forked,
    Replied,
    RunCompleted,
    RunStarted,
    SignalReceived,
    StepDone,
    StepRaised,
    Undoable,
)
from outlive.model.logs import LogAppended

LEAF: Final = 48
#: The length from which a text or bytes is stored separately. It must not depend on the context:
#: a message is stored once, whether it is an outcome or the hundredth of a list.
LEAF_MIN: Final = 512
ADDRESS_BYTES: Final = 16
#: The limit at which a memo starts anew.
MEMO_BYTES_MAX: Final = 64 * 1024 * 1024
MEMO_ENTRIES_MAX: Final = 100_000
MEMO_LISTS_MAX: Final = 64

_SETS: Final = (2, 3)
_DICTS: Final = frozenset((dict,))
_TEXTS: Final = frozenset((str,))

Leaf: TypeAlias = str | bytes


class Parted(bytes):
    """A value's bytes with references in place of its leaves, and the leaves."""

    leaves: Mapping[bytes, Leaf]

    def __new__(cls, form: bytes, leaves: Mapping[bytes, Leaf]) -> Parted:
        parted = super().__new__(cls, form)
        parted.leaves = leaves
        return parted


def address_of(payload: bytes) -> bytes:
    """The address of a node with this payload, in a family without a key."""
    return blake2b(payload, digest_size=ADDRESS_BYTES).digest()


class ListItem:
    """A text, or a dict of nothing but text, as it stands in a list, its leaves, and its size."""

    __slots__ = ("leaves", "raw", "size")

    def __init__(self, raw: Raw | Ext | str, leaves: Mapping[bytes, Leaf], size: int) -> None:
        self.raw, self.leaves, self.size = raw, leaves, size


class Messages:
    """The texts, or dicts of nothing but text, that a list began with, and how they were written.

    Their keys and their values, one after the other: a list that begins with the same, of exactly
    that type, begins with the same messages. That is seen at the speed of C.
    """

    __slots__ = ("_counts", "_keys", "_values", "leaves", "size", "written")

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._keys: list[str] = []
        self._values: list[str] = []
        self.written: list[Raw | Ext | str] = []
        self.leaves: dict[bytes, Leaf] = {}
        self.size = 0

    def begin(self, value: list[Any]) -> bool:
        """Whether a list begins with these."""
        head = value[: len(self.written)]
        if not self._keys:  # texts
            return _TEXTS.issuperset(map(type, head)) and head == self._values
        if not _DICTS.issuperset(map(type, head)) or list(map(len, head)) != self._counts:
            return False
        keys = list(chain.from_iterable(head))
        values = list(chain.from_iterable(map(dict.values, head)))
        # Types first: other types may not be compared with text.
        is_text = _TEXTS.issuperset(map(type, chain(keys, values)))
        return is_text and keys == self._keys and values == self._values

    def followed_by(self, more: list[tuple[tuple[str, ...], ListItem]]) -> Messages:
        """These and others, each as keys and values; a text has no key."""
        longer = Messages()
        longer._counts = self._counts + [len(key) // 2 for key, _ in more]
        longer._keys, longer._values = self._keys[:], self._values[:]
        longer.leaves, longer.size = dict(self.leaves), self.size
        for key, entry in more:
            longer._keys += key[: len(key) // 2]
            longer._values += key[len(key) // 2 :]
            longer.leaves.update(entry.leaves)
            longer.size += entry.size
        longer.written = self.written + [entry.raw for _, entry in more]
        return longer


class LeafMemo:
    """References of leaves that were met before: texts don't change, so each is hashed once.

    Looked up by value. A text caches its own hash and is itself first of all, so a list that is
    passed on again costs a look per message, however long the messages are.
    """

    def __init__(self) -> None:
        self._known: dict[Leaf, Ext] = {}
        #: By keys and values, of exactly that type: what equals a text need not be one.
        self.entries: dict[tuple[str, ...], ListItem] = {}
        #: By the identity of the first: a list that is passed on again mostly has the same.
        self._messages: dict[int, Messages] = {}
        self._room = MEMO_BYTES_MAX

    def reference(self, leaf: Leaf) -> Ext:
        """The placeholder of a leaf."""
        found = self._known.get(leaf)
        if found is None:
            found = Ext(LEAF, address_of(pack(leaf)))
            self._make_room(len(leaf))
            self._known[leaf] = found
        return found

    def keep(self, key: tuple[str, ...], entry: ListItem) -> ListItem:
        """Remember an entry."""
        self._make_room(entry.size)
        self.entries[key] = entry
        return entry

    def messages(self, value: Sequence[Any]) -> Messages:
        """The known beginning of a list."""
        found = self._messages.get(id(value[0]))
        is_known = found is not None and isinstance(value, list) and found.begin(value)
        return found if found is not None and is_known else Messages()

    def keep_messages(self, value: Sequence[Any], messages: Messages) -> None:
        """Remember what a list begins with."""
        if len(self._messages) >= MEMO_LISTS_MAX:
            self._messages.clear()
        self._messages[id(value[0])] = messages

    def _make_room(self, size: int) -> None:
        self._room -= size
        if self._room < 0 or len(self._known) + len(self.entries) >= MEMO_ENTRIES_MAX:
            self._known, self.entries, self._room = {}, {}, MEMO_BYTES_MAX
            self._messages = {}


def part(raw: bytes) -> bytes:
    """Split a whole value's bytes as the codec would have."""
    if len(raw) < LEAF_MIN or type(raw) is Parted:
        return raw
    splitter = _Splitter()
    try:
        form = pack(splitter.walk(_open(raw)))
    except (msgspec.MsgspecError, RecursionError):
        return raw  # whoever reads it will say what is wrong with it
    return Parted(form, splitter.leaves) if splitter.leaves else raw


def references(form: bytes) -> set[bytes]:
    """The addresses of a form's leaves, and nothing that only looks like one."""
    finder = _Finder()
    finder.walk(_open(form))
    return finder.found


def whole(raw: bytes) -> bytes:
    """A value's bytes with its leaves in place: for callers without access to the family."""
    if type(raw) is not Parted:
        return raw
    return pack(_Joiner(raw.leaves).walk(_open(raw)))


class _Splitter:
    """One walk over one value's bytes that takes the leaves out."""

    def __init__(self) -> None:
        self.leaves: dict[bytes, Leaf] = {}

    def walk(self, tree: Any) -> Any:
        kind = type(tree)
        if kind is str or kind is bytes:
            return tree if len(tree) < LEAF_MIN else self._take(tree)
        return _inside(tree, self.walk)

    def _take(self, leaf: Leaf) -> Ext:
        address = address_of(pack(leaf))
        self.leaves[address] = leaf
        return Ext(LEAF, address)


class _Joiner:
    """One walk over one value's bytes that puts the leaves back."""

    def __init__(self, leaves: Mapping[bytes, Leaf]) -> None:
        self._leaves = leaves

    def walk(self, tree: Any) -> Any:
        if type(tree) is Ext and tree.code == LEAF:
            return self._leaves[bytes(tree.data)]
        return _inside(tree, self.walk)


class _Finder:
    """One walk over one form that lists its leaves."""

    def __init__(self) -> None:
        self.found: set[bytes] = set()

    def walk(self, tree: Any) -> Any:
        if type(tree) is Ext and tree.code == LEAF:
            self.found.add(bytes(tree.data))
        return _inside(tree, self.walk)


def _inside(tree: Any, walk: Callable[[Any], Any]) -> Any:
    """Map each part of a tree."""
    kind = type(tree)
    if kind is dict:
        return {key: walk(each) for key, each in tree.items()}
    if kind is list:
        return [walk(each) for each in tree]
    if kind is not Ext or tree.code in READERS or tree.code == LEAF:
        return tree
    parts = walk(_open(bytes(tree.data)))
    if tree.code in _SETS:  # ordered by their elements' bytes
        parts = [Raw(each) for each in sorted(map(pack, parts))]
    return Ext(tree.code, pack(parts))


_open = msgspec.msgpack.Decoder().decode


Change: TypeAlias = Callable[[bytes], bytes]

_FIELDS: Final[dict[type, tuple[str, ...]]] = {
    StepDone: ("args", "value"),
    StepRaised: ("args",),
    EffectIntended: ("args",),
    EffectDone: ("value",),
    RunStarted: ("args",),
    SignalReceived: ("value",),
    Replied: ("value",),
    RunCompleted: ("value",),
    ChildIntended: ("args",),
    ChildEnded: ("value",),
    ChapterBegan: ("args",),
    Undoable: ("args",),
    CheckpointsBegan: ("metadata",),
    SnapshotSaved: ("state", "metadata"),
    LogAppended: ("value",),
}


def with_values(event: Event, change: Change) -> Event:
    """The event with each user value mapped; the same object if nothing changes."""
    changed: Event = _with(event, change)
    return changed


def _with(event: Any, change: Change) -> Any:
    if type(event) is SignalReceived and event.is_json:
        return event  # from someone who does not know our codec
    changed: dict[str, Any] = {}
    for name in _FIELDS.get(type(event), ()):
        value = getattr(event, name)
        other = change(value)
        if other is not value:
            changed[name] = other
    if type(event) in (ChapterBegan, Forked):
        changed["start"] = _with(event.start, change)
    if type(event) is ChapterBegan:
        changed["signals"] = [_with(each, change) for each in event.signals]
        changed["happened"] = [_with(each, change) for each in event.happened]
    elif type(event) is Undoable:
        changed["end"] = _with(event.end, change)
    return msgspec.structs.replace(event, **changed) if changed else event
