"""Laws of deletion, judged at the moment at which a run goes, from what the disk holds then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outlive.journal.immediate import run_immediate
from outlive.journal.reader import read_events
from outlive.model.events import EffectIntended, Event
from outlive.model.ids import key_journal
from outlive.model.run import ENDED, fold
from outlive.store import Reading, Store

_AFTER_ALL = 1 << 62


def check_deletion(
    disk: Store, archive: Store, gone: Reading, events: Sequence[Event]
) -> Iterator[str]:
    """What went had ended, nobody needs it, and its id, its keys and its archive are there."""
    run_id, header, run = gone.head.run_id, gone.header, fold(events)
    if header.ended_at is None or run.ended_at is None or run.status not in ENDED:
        yield f"run {run_id}: was deleted while it was {run.status}"
    if gone.head.worker is not None:
        yield f"run {run_id}: was deleted while worker {gone.head.worker} held it"
    if header.parent is not None and _lives(disk, header.parent):
        yield f"run {run_id}: was deleted while its parent {header.parent} lived"
    if run_immediate(disk.post(run_id, "probe", b"")) != "ended":
        yield f"run {run_id}: was deleted without a tombstone"
    kept = run_immediate(archive.read(run_id, _AFTER_ALL))
    if kept is None or (kept.head.seq, kept.head.link) != (gone.head.seq, gone.head.link):
        yield f"run {run_id}: was deleted before it was archived"
    for event in events:
        if isinstance(event, EffectIntended) and event.key:
            yield from _check_key(disk, run_id, event)


def check_forks(disk: Store, run_id: str, forks: Sequence[str]) -> Iterator[str]:
    """No fork is left without what it shares."""
    for fork in forks:
        if run_immediate(disk.read(fork, _AFTER_ALL)) is not None:
            yield f"run {run_id}: was deleted while its fork {fork} was there"


def _lives(disk: Store, run_id: str) -> bool:
    reading = run_immediate(disk.read(run_id, _AFTER_ALL))
    return reading is not None and reading.header.ended_at is None


def _check_key(disk: Store, run_id: str, intent: EffectIntended) -> Iterator[str]:
    reading = run_immediate(disk.read(key_journal(intent.key)))
    if reading is None:
        return  # it was never claimed: its effect was never attempted
    key = fold(read_events(reading))
    if key.holder is not None and key.holder.run_id == run_id and key.kept is None:
        yield f"run {run_id}: was deleted, and nobody knows what came of key {intent.key}"
