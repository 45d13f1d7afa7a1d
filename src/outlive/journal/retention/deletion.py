"""Deletion of runs, several at once; what others may still ask of them is kept.

The order is the promise: archive first, then the outcomes of effects whose keys they hold, then
delete the runs, whose tombstones keep their ids. If a sweep is killed, the next one starts anew.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

import msgspec

from outlive.errors import CorruptRecord, WrongVersion
from outlive.journal.codec.parts import whole
from outlive.journal.codec.restore import with_nodes
from outlive.journal.headers import key_header, next_entry
from outlive.journal.reader import read_events, read_first
from outlive.journal.retention.archive import Archived
from outlive.journal.shared import fork_mark
from outlive.model.events import (
    ChildIntended,
    EffectDone,
    EffectIntended,
    EffectRaised,
    Event,
    Forked,
    KeyKept,
)
from outlive.model.ids import key_journal
from outlive.model.run import fold
from outlive.stores.seam import Store
from outlive.stores.types import Deletion, Entry, Found, Node, Reading

logger = logging.getLogger("outlive")

#: The number of times that another journal's end is read again after a conflict.
TRIES_MAX = 5
#: Journals of keys that are written in one commit.
KEYS_AT_ONCE = 100
#: Larger than any journal: an entry after this seq is refused, and the refusal says why.
_NOWHERE = 1 << 61


class Retiree(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a run that its deletion needs."""

    run_id: str
    seq: int
    #: The digest of its arguments.
    digest: bytes
    #: By the journal of a key that it may hold, and by step: the end of the effect.
    keys: dict[str, dict[str, KeyKept]]
    #: Of a fork: the mark that keeps the run it shares with.
    mark: str | None = None
    #: Runs that it started, by its journal.
    children: tuple[str, ...] = ()


def is_unchanged(reading: Reading | None, found: Found) -> bool:
    """Whether the run is unchanged: ended, and not continued."""
    return (
        reading is not None
        and reading.header.ended_at is not None
        and (reading.head.seq, reading.head.link) == (found.head.seq, found.head.link)
    )


def check_ended(reading: Reading, events: Sequence[Event]) -> None:
    """Check that the journal confirms the header: the run has ended.

    Raises:
        CorruptRecord: it is under way.
    """
    if fold(events).ended_at is None:
        shown = f"its header says {reading.header.status}, its journal does not end"
        raise CorruptRecord(reading.head.run_id, reading.head.seq, shown)


async def retiree_of(store: Store, reading: Reading, now: int) -> Retiree:
    """The part of a run that outlives it. Its values are restored only if some of them stay.

    Raises:
        CorruptRecord: its journal is damaged; such a run is not deleted.
        WrongVersion: a later release wrote it.
    """
    events, run_id = read_events(reading, restored=False), reading.head.run_id
    if any(isinstance(event, EffectIntended) and event.key for event in events):
        events = read_events(reading if reading.nodes else await with_nodes(store, reading))
    first = events[0]
    check_ended(reading, events)
    return Retiree(
        run_id=run_id,
        mark=fork_mark(first.run_id, run_id) if isinstance(first, Forked) else None,
        seq=reading.head.seq,
        digest=fold(events[:1]).start.digest,
        keys=_keys_of(events, now),
        children=tuple({e.child_id: None for e in events if isinstance(e, ChildIntended)}),
    )


async def check_family(store: Store, run_id: str) -> None:
    """Check that a run, if it exists, belongs to the family in its row.

    The values of a family are deleted with its last run, which is found by the rows.

    Raises:
        CorruptRecord: its journal says otherwise.
    """
    reading = await store.read(run_id, 0, limit=1)
    if reading is None or not reading.records:
        return
    told, shown = fold([read_first(reading, restored=False)]).start.family, reading.header.family
    if told != shown:
        why = f"its row says that it belongs to family {shown!r}, its journal says {told!r}"
        raise CorruptRecord(run_id, 1, why)


def _keys_of(events: Sequence[Event], now: int) -> dict[str, dict[str, KeyKept]]:
    ends = {e.step: e for e in events if isinstance(e, (EffectDone, EffectRaised))}
    keys: dict[str, dict[str, KeyKept]] = {}
    for event in events:
        if isinstance(event, EffectIntended) and event.key:
            kept = _kept(ends.get(event.step), now)
            keys.setdefault(key_journal(event.key), {})[event.step] = kept
    return keys


def _kept(end: EffectDone | EffectRaised | None, now: int) -> KeyKept:
    match end:
        case EffectDone(value=value):
            return KeyKept(now, whole(value))
        case EffectRaised(error=error, happened=happened):
            return KeyKept(now, b"", error, happened)
        case None:
            return KeyKept(now, b"", None, False)


def archived_of(reading: Reading) -> Archived:
    """The run as an archive keeps it."""
    nodes = [Node(address, body) for address, body in reading.nodes.items()]
    return Archived(head=reading.head, header=reading.header, records=reading.records, nodes=nodes)


async def keep_keys(store: Store, retirees: Sequence[Retiree]) -> frozenset[str]:
    """Write the outcomes of effects whose keys these runs hold into the keys' own journals.

    Return the runs for which that failed: they must stay.
    """
    by_run = {each.run_id: each.keys for each in retirees}
    wanted = sorted({journal for each in retirees for journal in each.keys})
    left: set[str] = set()
    for begin in range(0, len(wanted), KEYS_AT_ONCE):
        left |= await _keep_some(store, wanted[begin : begin + KEYS_AT_ONCE], by_run)
    return frozenset(each.run_id for each in retirees if not left.isdisjoint(each.keys))


async def _keep_some(
    store: Store, wanted: Collection[str], by_run: Mapping[str, Mapping[str, Mapping[str, KeyKept]]]
) -> set[str]:
    """Return the journals that could not be written."""
    damaged: set[str] = set()
    for _ in range(TRIES_MAX):
        entries: list[Entry] = []
        for journal, reading in (await store.read_all(list(wanted))).items():
            try:
                entry = _kept_entry(reading, by_run)
            except (CorruptRecord, WrongVersion) as error:
                logger.error("not deleted, for a key that it may hold: %s", error)
                damaged.add(journal)
            else:
                entries += [] if entry is None else [entry]
        answers = await store.commit(entries) if entries else ()
        wanted = [x.run_id for x, refused in zip(entries, answers, strict=True) if refused]
        if not wanted:
            break
    return damaged.union(wanted)


def _kept_entry(
    reading: Reading, by_run: Mapping[str, Mapping[str, Mapping[str, KeyKept]]]
) -> Entry | None:
    """None: nothing to do, the key belongs to another run."""
    held = fold(read_events(reading)).holder
    if held is None or held.run_id not in by_run:
        return None
    kept = by_run[held.run_id].get(reading.head.run_id, {}).get(held.step)
    if kept is None:
        return None
    header = key_header("kept", ended_at=kept.at)
    return next_entry(reading.head, kept, header, epoch=reading.head.epoch)


async def delete_runs(store: Store, retirees: Sequence[Retiree], keep_until: int) -> Sequence[bool]:
    """Delete the run; False: somebody continued it."""
    batch = [
        Deletion(run_id=each.run_id, seq=each.seq, digest=each.digest, keep_until=keep_until)
        for each in retirees
    ]
    answers = await store.delete(batch)
    marks = [
        Deletion(run_id=each.mark, seq=1, digest=b"", keep_until=0)
        for each, is_gone in zip(retirees, answers, strict=True)
        if is_gone and each.mark is not None
    ]
    if marks:
        await store.delete(marks)
    return answers


async def gone_for_good(store: Store, run_ids: Collection[str]) -> set[str]:
    """Families without a run, and without a tombstone of one."""
    missing = [name for name in sorted(run_ids) if not await _is_there(store, name)]
    probes = [
        Entry(run_id=name, after=_NOWHERE, last=_NOWHERE + 1, epoch=0, record=b"", link=b"")
        for name in missing
    ]
    answers = await store.commit(probes) if probes else ()
    return {
        name
        for name, conflict in zip(missing, answers, strict=True)
        if conflict is not None and not conflict.gone
    }


async def _is_there(store: Store, run_id: str) -> bool:
    return await store.read(run_id, 1 << 62, limit=0) is not None
