"""A year's worth of ended runs, put into a store as their drivers would have left them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import outlive
from outlive.app.app import App
from outlive.journal.headers import header_of
from outlive.journal.record import LINK_START, pack
from outlive.model.events import (
    Claimed,
    EffectDone,
    EffectIntended,
    Event,
    RunCompleted,
    RunStarted,
    StepDone,
    encode_events,
)
from outlive.model.run import fold
from outlive.stores.seam import Store
from outlive.stores.types import Entry

DAY_MS = 86_400_000
BATCH = 500
_VALUE = b"\xc4\xc8" + bytes(200)


def ended_run(number: int, ended_at: int) -> Entry:
    """A run of five steps and two effects, in one record."""
    started_at = ended_at - 1000
    run_id = f"old-{number}"
    events: list[Event] = [
        RunStarted("old", "1", b"\x80", b"d" * 16, b"s" * 16, "3.11", started_at, run_id),
        Claimed(0, 1, "w", True),
    ]
    events += [StepDone(10 * n, f"0/think#{n}", 1, b"\x80", b"", _VALUE) for n in range(1, 6)]
    for n in (1, 2):
        events.append(EffectIntended(100 * n, f"0/pay#{n}", 1, b"\x80", b"", "", 60_000))
        events.append(EffectDone(100 * n + 50, f"0/pay#{n}", 1, _VALUE))
    events.append(RunCompleted(1000, _VALUE))
    run = fold(events)
    record, link = pack(
        run_id, prev=LINK_START, epoch=1, seq=1, kinds=255, body=encode_events(events)
    )
    return Entry(
        run_id=run_id, after=0, last=run.seq, epoch=1, record=record, link=link,
        header=header_of(run), lease="take", worker="w",
    )  # fmt: skip


async def fill(store: Store, count: int, now: int) -> None:
    """So many runs that ended within the last year, the oldest first."""
    for begin in range(0, count, BATCH):
        numbers = range(begin, min(count, begin + BATCH))
        entries = [ended_run(n, now - 365 * DAY_MS + n * 330 * DAY_MS // count) for n in numbers]
        answers = await store.commit(entries)
        assert not any(answers)


@outlive.effect(name="year_act", doubt="retry")
async def act(number: int) -> int:
    return number


@outlive.flow(name="year_busy")
async def busy(turns: int) -> list[float]:
    took = []
    for number in range(turns):
        began = time.perf_counter()
        await act(number)
        took.append(time.perf_counter() - began)
    return took


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all stays below."""
    return sorted(values)[int(len(values) * share)]


async def effects_until(
    app: App, task: asyncio.Task[Any], marks: asyncio.Event
) -> tuple[list[float], list[float]]:
    """How long effects take, one after another, until a task is done; apart while marked."""
    found: tuple[list[float], list[float]] = ([], [])
    number = 0
    while not task.done():
        number, is_marked = number + 1, marks.is_set()
        took = await (await app.start(busy, 20, id=f"busy-{number}"))
        if is_marked == marks.is_set():
            found[is_marked].extend(took)
    return found
