"""Journals as lists of events: read, cut anywhere, written back in the real record format.

A cut journal is what a crash leaves behind: a prefix, held by a worker that is certainly dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlive.app.app import App
from outlive.engine.definitions import Flow
from outlive.errors import ReplayMismatch, RunFailed
from outlive.journal.headers import header_of
from outlive.journal.lane import run_immediate
from outlive.journal.record import LINK_START, pack
from outlive.model.events import Claimed, Event, Parked, encode_events
from outlive.model.kinds import KIND_BITS
from outlive.model.run import apply, fold
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Conflict, Entry

#: Every wait leaves memory at once / never does.
EVICTING = Settings(lease_seconds=5.0, poll_seconds=0.005, idle_seconds=0.0)
STAYING = Settings(lease_seconds=5.0, poll_seconds=0.02, idle_seconds=600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """How a run ended, and its whole journal."""

    outcome: tuple[str, Any]
    events: list[Event]


def entries(run_id: str, events: Sequence[Event]) -> list[Entry]:
    """These events as a store keeps them: one record each, linked and fenced like real ones."""
    made: list[Entry] = []
    run, link = fold([]), LINK_START
    for event in events:
        after = run.seq
        apply(run, event)
        body = encode_events([event])
        kinds = KIND_BITS[type(event)]
        record, link = pack(run_id, prev=link, epoch=run.epoch, seq=run.seq, kinds=kinds, body=body)
        takes = isinstance(event, Claimed)
        made.append(
            Entry(
                run_id=run_id,
                after=after,
                last=run.seq,
                epoch=run.epoch,
                record=record,
                link=link,
                header=header_of(run),
                lease="take" if takes else "free" if isinstance(event, Parked) else "keep",
                worker=event.worker if isinstance(event, Claimed) else None,
            )
        )
    return made


def write(store: Store, run_id: str, events: Sequence[Event]) -> Store:
    """Put a journal into a store; whoever held its lease never beats there, so it is dead."""
    for entry in entries(run_id, events):
        answers: Sequence[Conflict | None] = run_immediate(store.commit([entry]))
        assert answers == [None], (entry.after, answers)
    return store


async def drive(
    store: Store, flow: Flow[Any, Any], *args: Any, run_id: str, settings: Settings = STAYING
) -> Driven:
    """Start the run, or go on with it, and wait for its end."""
    async with App(store, ports=Ports(), settings=settings) as app:
        handle = await app.start(flow, *args, id=run_id)
        try:
            outcome: tuple[str, Any] = ("returned", await handle.outcome("60s"))
        except ReplayMismatch as error:
            outcome = ("mismatch", error)
        except RunFailed as error:
            outcome = ("failed", error.type_name)
        return Driven(outcome=outcome, events=await handle.read())


async def drive_on(
    events: Sequence[Event],
    flow: Flow[Any, Any],
    *args: Any,
    run_id: str,
    settings: Settings = STAYING,
    file: Path | None = None,
) -> Driven:
    """Go on behind these events, in a store of their own."""
    store: Store = MemoryStore() if file is None else SQLiteStore(file)
    write(store, run_id, events)
    return await drive(store, flow, *args, run_id=run_id, settings=settings)
