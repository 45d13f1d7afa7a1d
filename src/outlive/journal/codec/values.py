"""Storing values once: large values become nodes, and records reference them.

In memory a value is whole bytes, or ``Parted``: a *form* with references, and its leaves. A record
holds one of

    the form itself, if it has no leaves and is short
    49  a short form with references
    50  a long form as a delta: the address of the form it is based on, pieces, new references
    51  the address of a node that holds such a delta

Leaves are nodes. Long forms that are similar follow one another in a *line*: the i-th is
written as a delta of number ``i & (i - 1)``, so that reading it takes as many nodes as i has bits
set. Forms with odd numbers are never a base and stay in their record.

A driver does not write again what it has written; what it does not know of is sent once more, and
the store keeps the first copy. A line starts anew with each driver, and with a chapter once it is
long: continuing from a chapter takes few nodes, however many there were before it.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import filterfalse
from typing import Any, Final

from msgspec.msgpack import Ext

from outlive.errors import StoreUnavailable
from outlive.journal.codec.deltas import Atom, difference
from outlive.journal.codec.parts import (
    ADDRESS_BYTES,
    LEAF,
    LEAF_MIN,
    Leaf,
    Parted,
    address_of,
    part,
    references,
    with_values,
)
from outlive.journal.codec.scalars import pack
from outlive.journal.record import PARTED
from outlive.model.defaults import ZSTD_LEVEL
from outlive.model.events import ChapterBegan, EffectDone, Event, StepDone, encode_events
from outlive.stores.types import Node

_PLAIN, _ZSTD = b"\0", b"\1"
#: The size from which nodes are compressed, and the share that must be saved.
_COMPRESSED_FROM: Final = 512
_SHARE_MAX: Final = 15 / 16
#: The largest node: the largest value, and what msgpack adds.
PAYLOAD_BYTES_MAX: Final = 64 * 1024 * 1024 + 64

#: Each thread's compressor.
_own = threading.local()


class Damaged(Exception):
    """The content of a node does not match its address."""


def node_of(payload: bytes, address: bytes | None = None) -> Node:
    """Make the node of these bytes."""
    body = _PLAIN + payload
    if len(payload) >= _COMPRESSED_FROM and _zstd() is not None:
        packed = _compressed(payload)
        if len(packed) <= _SHARE_MAX * len(payload):
            body = _ZSTD + packed
    return Node(address or address_of(payload), body)


def _compressed(payload: bytes) -> bytes:
    compressor = getattr(_own, "compressor", None)
    if compressor is None:  # making one takes a third of the time
        compressor = _own.compressor = _zstd().ZstdCompressor(ZSTD_LEVEL)
    packed: bytes = compressor.compress(payload, compressor.FLUSH_FRAME)
    return packed


def payload_of(address: bytes, body: bytes) -> bytes:
    """The content of a node, verified.

    Raises:
        Damaged: its content does not match its address.
        StoreUnavailable: it was compressed, and this process has no zstd.
    """
    payload = opened(body)
    if address_of(payload) != address:
        raise Damaged("it does not match its address")
    return payload


def opened(body: bytes) -> bytes:
    """The content of a node, unverified: for code that only looks for references."""
    kept, rest = body[:1], body[1:]
    if kept == _PLAIN:
        return rest
    if kept != _ZSTD:
        raise Damaged(f"it is kept in a way unknown to this release ({kept.hex()})")
    zstd = _zstd()
    if zstd is None:
        raise StoreUnavailable(
            "values here are compressed by zstd, which this Python does not have: "
            "pip install backports.zstd wherever this store is read"
        )
    try:
        opened: bytes = zstd.ZstdDecompressor().decompress(rest, PAYLOAD_BYTES_MAX)
    except zstd.ZstdError as error:
        raise Damaged(f"it can't be decompressed: {error}") from None
    return opened


@cache
def _zstd() -> Any:
    """Python's own zstd module from 3.14 on, or its backport; None: not installed."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


SHORT, DELTA, KEPT = 49, 50, 51
#: Forms up to this size stay in their record.
FORM_SHORT: Final = 1024
#: A delta that saves less starts a new line.
_DELTA_SHARE_MAX: Final = 0.7
LINES_MAX: Final = 16
#: Forms kept in memory as bases; beyond that the oldest lines start anew.
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
#: The share of a form that is searched for in another to tell whether they are alike.
_PLACE: Final = 24
#: The number of similar chapters that build on one another.
CHAPTERS_MAX: Final = 32
_REFERENCE: Final = pack(Ext(LEAF, bytes(ADDRESS_BYTES)))
REFERENCE: Final = Atom(_REFERENCE[:-ADDRESS_BYTES], len(_REFERENCE))


def parted_body(events: Sequence[Event], values: Values) -> tuple[bytes, tuple[Node, ...], int]:
    """Encoded events, the nodes that their values need and nobody wrote yet, and the flags."""
    if type(events[0]) is ChapterBegan:
        values.turn_page()
    stored = values.stored
    written = [e if _is_small(e) else with_values(e, stored) for e in events]
    is_parted = any(one is not other for one, other in zip(events, written, strict=True))
    return encode_events(written), values.take_nodes(), PARTED if is_parted else 0


def _is_small(event: Event) -> bool:
    """Whether an event of the most frequent kinds surely has no value to store separately."""
    kind = type(event)
    if kind is StepDone:
        args, value = event.args, event.value  # type: ignore[union-attr]  # exact type
        return len(args) + len(value) < LEAF_MIN and type(args) is bytes and type(value) is bytes
    if kind is EffectDone:
        value = event.value  # type: ignore[union-attr]  # exact type, as above
        return len(value) < LEAF_MIN and type(value) is bytes
    return False


class _Line:
    """A line of similar forms: the newest, and those that later ones may be based on."""

    __slots__ = ("bases", "count", "newest")

    def __init__(self) -> None:
        #: Number, form, address; each a base of those after it.
        self.bases: list[tuple[int, bytes, bytes]] = []
        self.count = 0
        self.newest = b""

    @property
    def size(self) -> int:
        return sum(len(form) for _, form, _ in self.bases)

    def resembles(self, form: bytes) -> bool:
        """Whether most samples of the newest form are found in this one, too."""
        newest, quarter = self.newest, len(self.newest) // 4
        found = 0
        for at in (quarter, 2 * quarter, 3 * quarter):
            place = newest[at : at + _PLACE]
            # Usually it is where it was.
            found += form.startswith(place, at) or place in form
            if found > 1:
                return True
        return False

    def delta(self, form: bytes) -> bytes | None:
        """The next form as a delta of its base; None: it saves too little."""
        base = self.count & (self.count - 1)
        while self.bases[-1][0] != base:
            self.bases.pop()
        _, old, address = self.bases[-1]
        payload = pack([address, *difference(old, form, REFERENCE)])
        return payload if len(payload) <= _DELTA_SHARE_MAX * len(form) else None


class Values:
    """Writes the values of one run, for one driver."""

    def __init__(self, known: Iterable[bytes] = (), *, short: int = FORM_SHORT) -> None:
        self._short = short
        #: Addresses that the family has, or that this and earlier entries carry.
        self.known = set(known)
        #: The newest last.
        self._lines: list[_Line] = []
        #: Nodes that the next entry has to carry.
        self._fresh: list[Node] = []

    def take_nodes(self) -> tuple[Node, ...]:
        """Take the nodes that were referenced since the last call and are not stored yet."""
        fresh, self._fresh = tuple(self._fresh), []
        return fresh

    def turn_page(self) -> None:
        """Start a chapter: later values build on little that came before."""
        self._lines = [line for line in self._lines if line.count < CHAPTERS_MAX]

    def forget_but(self, addresses: Iterable[bytes]) -> None:
        """Limit the known stored addresses to these."""
        self.known.intersection_update(addresses)

    def lean_on(self, form: bytes, address: bytes) -> None:
        """Start a line with a form that the store has: later values may resemble it."""
        line = _Line()
        line.bases.append((0, form, address))
        # The next one is a base itself: the next driver builds on that.
        line.count, line.newest = 2, form
        self._lines.append(line)
        self.known |= {address, *references(form)}

    def stored(self, raw: bytes) -> bytes:
        """The bytes that a record has for this value."""
        if len(raw) < LEAF_MIN and type(raw) is bytes:
            return raw
        form = part(raw)
        leaves: Mapping[bytes, Leaf] = form.leaves if type(form) is Parted else {}
        form = bytes(form)
        for address in list(filterfalse(self.known.__contains__, leaves)):
            if address in form:
                self._bring(node_of(pack(leaves[address]), address))
        if len(form) > self._short:
            return pack(self._follow(form))
        return pack(Ext(SHORT, form)) if leaves else form

    def _bring(self, node: Node) -> None:
        if node.address not in self.known:
            self.known.add(node.address)
            self._fresh.append(node)

    def _follow(self, form: bytes) -> Ext:
        line = self._line_for(form)
        if line.bases and line.bases[-1][1] == form:
            return Ext(KEPT, line.bases[-1][2])
        payload = line.delta(form) if line.bases else None
        if payload is None and line.bases:
            line = self._begin_line()
        number = line.count
        line.count, line.newest = number + 1, form
        payload = payload or pack([b"", form])
        if number & 1:
            return Ext(DELTA, payload)
        node = node_of(payload)
        self._bring(node)
        line.bases.append((number, form, node.address))
        return Ext(KEPT, node.address)

    def _line_for(self, form: bytes) -> _Line:
        lines = self._lines
        for line in reversed(lines):
            if line.resembles(form):
                if line is not lines[-1]:
                    lines.remove(line)
                    lines.append(line)
                return line
        return self._begin_line()

    def _begin_line(self) -> _Line:
        lines = self._lines
        lines.append(_Line())
        while len(lines) > LINES_MAX or sum(line.size for line in lines) > LINE_BYTES_MAX:
            del lines[0]
            if len(lines) == 1:
                break
        return lines[-1]
