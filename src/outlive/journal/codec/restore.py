"""Restoring values from records: every node is verified before it is used.

``read_whole`` reads a journal and fetches the nodes that its values need, in a few calls however
many there are; ``Restorer`` restores the values. Missing or damaged nodes are reported with
run and seq, as a damaged record is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.msgpack import Ext

from outlive.errors import CorruptRecord, RunNotFound
from outlive.journal.codec.bounds import VALUE_BYTES_MAX
from outlive.journal.codec.deltas import apply
from outlive.journal.codec.parts import Leaf, Parted, references, with_values
from outlive.journal.codec.values import DELTA, KEPT, REFERENCE, SHORT, Damaged, opened, payload_of
from outlive.journal.record import ENVELOPE_BYTES, is_parted
from outlive.model.events import Event, decode_events
from outlive.model.ids import checkpoint_journal, is_run
from outlive.stores.seam import Store
from outlive.stores.types import Reading, StoredRecord

_STORED: Final = frozenset((SHORT, DELTA, KEPT))
#: The first bytes of a msgpack ext.
_EXT_HEADS: Final = frozenset((0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)))
_REFERENCES: Final = re.compile(b"(?=" + re.escape(REFERENCE.head) + b"(.{16}))", re.DOTALL)
_unpack = msgspec.msgpack.Decoder().decode
_unpack_list = msgspec.msgpack.Decoder(list[Any]).decode
#: The longest chain of bases: their numbers lose a bit at each.
_CHAIN_MAX: Final = 64
#: A driver that continues another's values builds on chains no longer than this.
_LEANING_MAX: Final = 24


async def read_whole(
    store: Store, run_id: str, after: int = 0, *, limit: int | None = None
) -> Reading | None:
    """Read a journal from the store, with the nodes that its values need."""
    reading = await store.read(run_id, after, limit=limit)
    return None if reading is None else await with_nodes(store, reading)


async def not_found(store: Store, journal: str) -> RunNotFound:
    """The error for a journal that does not exist; it names checkpoints of that id."""
    beside = checkpoint_journal(journal) if is_run(journal) else ""
    is_there = beside and await store.read(beside, 1 << 62, limit=0) is not None
    return RunNotFound(journal, beside if is_there else "")


async def with_nodes(store: Store, reading: Reading) -> Reading:
    """Add the nodes that a reading's values need."""
    if not any(map(is_parted, reading.records)):
        return reading
    nodes = await _fetch(store, reading.header.family, _named(reading.records))
    return msgspec.structs.replace(reading, nodes=nodes)


async def read_values(
    store: Store, family: str, run_id: str, places: Sequence[tuple[int, bytes]]
) -> list[bytes]:
    """Restore values from their recorded form, each with the seq of its event.

    Raises:
        CorruptRecord: a node that one of them needs is missing or damaged.
    """
    stored = [found for _, raw in places if (found := _stored(raw)) is not None]
    named = {address for found in stored for address in _addresses(found)}
    restorer = Restorer(run_id, await _fetch(store, family, named))
    return [restorer.value(raw, seq) for seq, raw in places]


async def read_form(store: Store, family: str, raw: bytes) -> tuple[bytes, bytes] | None:
    """The form that the next value may build on, and its address; None: none is suitable.

    ``raw`` is the recorded form of a value. Chains that many drivers made longer, each by
    one, end here.
    """
    stored = _stored(raw)
    if stored is None or stored.code == SHORT:
        return None
    data = bytes(stored.data)
    base = [data] if stored.code == KEPT else _base(data)
    try:
        payloads = await _read_chain(store, family, base)
        form = b""
        for payload in reversed(payloads):
            form = apply(form, _unpack_list(payload)[1:], VALUE_BYTES_MAX)
    except (Damaged, msgspec.MsgspecError, ValueError, LookupError):
        return None  # whoever reads the value says so
    return (form, base[0]) if payloads else None


async def _read_chain(store: Store, family: str, base: list[bytes]) -> list[bytes]:
    """Restore a chain of nodes, each a delta of the next; none: the chain is too long."""
    payloads: list[bytes] = []
    while base and len(payloads) < _LEANING_MAX:
        found = await store.get_blobs(family, base)
        payloads.append(payload_of(base[0], found[base[0]]))
        base = _base(payloads[-1])
    return [] if base else payloads


async def _fetch(store: Store, family: str, named: Iterable[bytes]) -> dict[bytes, bytes]:
    """These nodes and all that they reference."""
    found: dict[bytes, bytes] = {}
    wanted = set(named)
    while wanted:
        fetched = await store.get_blobs(family, sorted(wanted))
        found.update(fetched)
        wanted = {each for body in fetched.values() for each in _named_by(body)} - found.keys()
    return found


def _named(records: Sequence[StoredRecord]) -> set[bytes]:
    """The nodes that records reference. Nothing is verified yet."""
    named: set[bytes] = set()

    def look(raw: bytes) -> bytes:
        stored = _stored(raw)
        if stored is not None:
            named.update(_addresses(stored))
        return raw

    for record in filter(is_parted, records):
        try:
            for event in decode_events(record.body[ENVELOPE_BYTES:]):
                with_values(event, look)
        except (msgspec.MsgspecError, RecursionError):
            continue
    return named


def is_stored(raw: bytes) -> bool:
    """Whether these bytes are a reference to a value."""
    return _stored(raw) is not None


def _stored(raw: bytes) -> Ext | None:
    """The reference that a record has in place of a value; None: the value itself is there."""
    if not raw or raw[0] not in _EXT_HEADS:
        return None
    found = _unpack(raw)
    return found if found.code in _STORED else None


def _addresses(stored: Ext) -> list[bytes]:
    data = bytes(stored.data)
    if stored.code == KEPT:
        return [data]
    return [*_base(data), *_references(data)] if stored.code == DELTA else _references(data)


def _references(data: bytes) -> list[bytes]:
    if REFERENCE.head not in data:
        return []  # found out a hundred times as fast
    found: list[bytes] = _REFERENCES.findall(data)
    return found


def _named_by(body: bytes) -> list[bytes]:
    try:
        payload = opened(body)
        return [*_base(payload), *_references(payload)] if _is_delta(payload) else []
    except Damaged:
        return []


def _is_delta(payload: bytes) -> bool:
    """Check a node's type: leaves are text or bytes; a delta is a list."""
    return bool(payload) and (payload[0] in (0xDC, 0xDD) or 0x90 <= payload[0] <= 0x9F)


def _base(payload: bytes) -> list[bytes]:
    try:
        base = _unpack_list(payload)[0]
    except (msgspec.MsgspecError, LookupError):
        return []
    return [base] if type(base) is bytes and base else []


class Restorer:
    """Restores the values of one reading."""

    def __init__(self, run_id: str, nodes: Mapping[bytes, bytes]) -> None:
        self._run_id, self._nodes = run_id, nodes
        self._payloads: dict[bytes, bytes] = {}
        self._forms: dict[bytes, bytes] = {}
        self._leaves: dict[bytes, Leaf] = {}

    def event(self, event: Event, seq: int) -> Event:
        """Restore the values of an event.

        Raises:
            CorruptRecord: a node that it needs is missing or damaged.
        """
        try:
            return with_values(event, partial(self._value, seq))
        except (msgspec.MsgspecError, ValueError, LookupError, RecursionError) as error:
            raise self._corrupt(seq, f"its values can't be put together: {error}") from None

    def value(self, raw: bytes, seq: int) -> bytes:
        """Restore one value; the same errors."""
        try:
            return self._value(seq, raw)
        except (msgspec.MsgspecError, ValueError, LookupError, RecursionError) as error:
            raise self._corrupt(seq, f"its values can't be put together: {error}") from None

    def _value(self, seq: int, raw: bytes) -> bytes:
        stored = _stored(raw)
        if stored is None:
            return raw
        data = bytes(stored.data)
        if stored.code == SHORT:
            form, news = data, data
        elif stored.code == DELTA:
            form, news = self._build(seq, data, 0), data
        else:
            form, news = self._form(seq, data, 0), b""
        self._take_leaves(seq, form, news)
        return Parted(form, self._leaves) if REFERENCE.head in form else form

    def _form(self, seq: int, address: bytes, depth: int) -> bytes:
        form = self._forms.get(address)
        if form is None:
            payload = self._payload(seq, address)
            form = self._forms[address] = self._build(seq, payload, depth)
            self._take_leaves(seq, form, payload)
        return form

    def _build(self, seq: int, payload: bytes, depth: int) -> bytes:
        if depth > _CHAIN_MAX:
            raise self._corrupt(seq, "its values lean on too many others")
        base, *delta = _unpack_list(payload)
        return apply(self._form(seq, base, depth + 1) if base else b"", delta, VALUE_BYTES_MAX)

    def _take_leaves(self, seq: int, form: bytes, news: bytes) -> None:
        """The leaves that are referenced here for the first time."""
        missing = [each for each in _references(news) if each not in self._leaves]
        for address in missing:
            if address in self._nodes:
                self._leaves[address] = _unpack(self._payload(seq, address))
            elif address in references(form):  # not only bytes that look like one
                raise self._missing(seq, address)

    def _payload(self, seq: int, address: bytes) -> bytes:
        payload = self._payloads.get(address)
        if payload is None:
            body = self._nodes.get(address)
            if body is None:
                raise self._missing(seq, address)
            try:
                payload = payload_of(address, body)
            except Damaged as damaged:
                why = f"node {address.hex()} of its values is damaged: {damaged}"
                raise self._corrupt(seq, why) from None
            if _is_delta(payload):
                self._payloads[address] = payload
        return payload

    def _missing(self, seq: int, address: bytes) -> CorruptRecord:
        return self._corrupt(seq, f"node {address.hex()} of its values is missing")

    def _corrupt(self, seq: int, why: str) -> CorruptRecord:
        return CorruptRecord(self._run_id, seq, why)
