"""One run goes: what others may still ask of it is kept, then it is deleted.

The order is the promise: archived first, then the outcomes of effects whose keys it holds, then
the run itself, whose tombstone keeps its id. Killed in between, the next sweep begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from outlive.journal.archive import Archived
from outlive.journal.entries import next_entry
from outlive.journal.headers import key_header
from outlive.journal.marks import drop_mark, fork_mark
from outlive.journal.parts import whole
from outlive.journal.reader import read_events
from outlive.model.events import (
    EffectDone,
    EffectIntended,
    EffectRaised,
    Event,
    Forked,
    KeyKept,
)
from outlive.model.ids import key_journal
from outlive.model.run import fold
from outlive.store import Entry, Found, Node, Reading, Store

#: How often the end of another's journal is read anew because somebody was faster.
TRIES_MAX = 5
#: No journal is so long: an entry that follows it is refused, and the refusal says why.
_NOWHERE = 1 << 61


class Retiree(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be known of a run to let it go."""

    run_id: str
    seq: int
    #: Of the arguments that it was started with.
    digest: bytes
    #: By the journal of a key that it may hold, and by step: how that ended.
    keys: dict[str, dict[str, KeyKept]]
    #: Of a fork: what keeps the run that it shares with.
    mark: str | None = None


def is_unchanged(reading: Reading | None, found: Found) -> bool:
    """The run still is what was found: ended, and not gone on with."""
    return (
        reading is not None
        and reading.header.ended_at is not None
        and (reading.head.seq, reading.head.link) == (found.head.seq, found.head.link)
    )


def retiree_of(reading: Reading, now: int) -> Retiree:
    """What a run leaves behind.

    Raises:
        CorruptRecord: its journal is damaged; such a run does not go.
        WrongVersion: a later release wrote it.
    """
    events, run_id = read_events(reading), reading.head.run_id
    first = events[0]
    return Retiree(
        run_id=run_id,
        mark=fork_mark(first.run_id, run_id) if isinstance(first, Forked) else None,
        seq=reading.head.seq,
        digest=fold(events[:1]).start.digest,
        keys=_keys_of(events, now),
    )


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
    """A run as an archive keeps it."""
    nodes = [Node(address, body) for address, body in reading.nodes.items()]
    return Archived(head=reading.head, header=reading.header, records=reading.records, nodes=nodes)


async def keep_keys(store: Store, retiree: Retiree) -> None:
    """The outcomes of effects whose keys the run holds outlive it."""
    for journal, ends in retiree.keys.items():
        for _ in range(TRIES_MAX):
            reading = await store.read(journal)
            if reading is None or await _keep_key(store, reading, retiree.run_id, ends):
                break


async def _keep_key(
    store: Store, reading: Reading, run_id: str, ends: Mapping[str, KeyKept]
) -> bool:
    """Whether there is nothing more to do: it is written down, or another run's business."""
    held = fold(read_events(reading)).holder
    if held is None or held.run_id != run_id or held.step not in ends:
        return True
    kept = ends[held.step]
    header = key_header("kept", ended_at=kept.at)
    entry = next_entry(reading.head, kept, header, epoch=reading.head.epoch)
    return (await store.commit([entry]))[0] is None


async def delete_run(store: Store, retiree: Retiree, keep_until: int) -> bool:
    """The last step; False: somebody went on with the run."""
    is_deleted = await store.delete(
        retiree.run_id, seq=retiree.seq, digest=retiree.digest, keep_until=keep_until
    )
    if is_deleted and retiree.mark is not None:
        await drop_mark(store, retiree.mark, 0)
    return is_deleted


async def is_gone_for_good(store: Store, run_id: str) -> bool:
    """There is no such run, and no tombstone of one."""
    if await store.read(run_id, 1 << 62, limit=0) is not None:
        return False
    probe = Entry(run_id=run_id, after=_NOWHERE, last=_NOWHERE + 1, epoch=0, record=b"", link=b"")
    (conflict,) = await store.commit([probe])
    return conflict is not None and not conflict.gone
