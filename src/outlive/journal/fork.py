"""The journal of a fork as its driver sees it: the events shared with another run, then its own.

The shared events stay where they are. They are read from the other run's journal up to the fork
point, verified against the link that the fork recorded, and become the fork's past: effects in it
belong to the other run, so they are neither run nor undone again. They are numbered backwards
from the fork's first event, which is 1, so that their numbers never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from outlive.errors import CorruptRecord
from outlive.journal.codec.restore import read_whole
from outlive.journal.reader import Chain, read_events
from outlive.journal.record import unpack_unlinked
from outlive.model.events import (
    Answered,
    EffectDone,
    EffectRaised,
    Event,
    Forked,
    RunRetried,
    StepDone,
    StepRaised,
)
from outlive.stores.seam import Store
from outlive.stores.types import Reading, StoredRecord

#: The largest depth of forks of forks.
DEPTH_MAX = 100


async def events_of(store: Store, reading: Reading) -> list[Event]:
    """The events of a reading; of a fork's, preceded by the shared ones.

    Raises:
        CorruptRecord: a record of either is damaged, or the shared events are gone.
        WrongVersion: a later release wrote one of them.
    """
    events, behind = read_events(reading), 0
    for _ in range(DEPTH_MAX):
        fork = events[0] if events else None
        if not isinstance(fork, Forked):
            return events
        # A fork of a fork: the shared events may begin with a fork themselves.
        behind += fork.seq
        events = [*await _read_prefix(store, reading.head.run_id, fork, behind), *events]
    raise CorruptRecord(reading.head.run_id, 1, f"it is a fork more than {DEPTH_MAX} deep")


async def _read_prefix(store: Store, run_id: str, fork: Forked, behind: int) -> list[Event]:
    """The shared events of a fork, as its own past, with their offset in the other run."""
    reading = await read_whole(store, fork.run_id, fork.first - 1)
    if reading is None:
        raise CorruptRecord(run_id, 1, f"it is a fork of run {fork.run_id}, which is gone")
    records = [record for record in reading.records if record.seq <= fork.seq]
    chain = Chain(fork.run_id, fork.first, fork.before, reading.nodes)
    events = chain.follow(records)[: fork.seq - fork.first + 1]
    if not records or link_of(fork.run_id, records[-1]) != fork.link:
        why = f"what it shares with run {fork.run_id} is not what was forked"
        raise CorruptRecord(run_id, 1, why)
    events[-1] = _changed(events[-1], fork)
    return [_inherited(event, behind) for event in events]


def link_of(run_id: str, record: StoredRecord) -> bytes:
    """The link of a record."""
    return unpack_unlinked(run_id, record.body, record.seq).link


def _inherited(event: Event, behind: int) -> Event:
    match event:
        case EffectDone() | EffectRaised():
            # The holder of the key undoes its effect.
            return msgspec.structs.replace(event, by="holder")
        case RunRetried(since=since):
            return msgspec.structs.replace(event, since=since - behind)
        case _:
            return event


def _changed(event: Any, fork: Forked) -> Event:
    """Replace the outcome of the last shared event by the fork's own."""
    if not fork.step:
        return event  # type: ignore[no-any-return]  # as it came
    match event:
        case Answered():
            return msgspec.structs.replace(event, value=fork.value)
        case StepDone() | StepRaised():
            return StepDone(
                event.at, event.step, event.attempt, event.args, event.digest, fork.value
            )
        case _:
            return EffectDone(event.at, event.step, event.attempt, fork.value)


def changed_in(events: Sequence[Event]) -> list[Event]:
    """Outcomes that a fork replaced: their values are JSON."""
    return [
        before for before, event in pairwise(events) if isinstance(event, Forked) and event.step
    ]
