"""However long a loop has been at it: what is read to go on, what is written to save it."""

from __future__ import annotations

import asyncio
import gc
import json
import random
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.loop import Loop, State, drive, load
from outlive.settings import Settings
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Entry, Reading
from tests.conftest import Figure
from tests.loop.agents import Kept

BUSY = Settings(lease_seconds=60.0, poll_seconds=5.0, idle_seconds=60.0)
LENGTHS, LENGTH_FULL = (30, 300, 1500), 100_000
#: About ten kilobytes that are hard to make smaller.
_DICE = random.Random(7)
LINES = [f"line {number}: {_DICE.randbytes(42).hex()}" for number in range(110)]
PATIENCE_SECONDS = 3600.0


class Measured(SQLiteStore):
    """A file that counts."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.records = 0
        self.written: list[int] = []
        self.headers = 0

    async def read(
        self, run_id: str, after: int = 0, *, limit: int | None = None
    ) -> Reading | None:
        reading = await super().read(run_id, after, limit=limit)
        self.records += 0 if reading is None else len(reading.records)
        return reading

    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
        answers = await super().commit(batch, wait=wait)
        if answers is not None:
            self._note(batch)
        return answers

    def _note(self, batch: Sequence[Entry]) -> None:
        for entry in batch:
            self.written.append(len(entry.record) + sum(len(node.body) for node in entry.nodes))
            self.headers += entry.header is not None


class Place(Enum):
    COUNTING = 1
    OVER = 2


class Count(Loop):
    """Counts up to its request, with a state of ten kilobytes; there it waits."""

    states = Place
    moves = {Place.COUNTING: (Place.COUNTING, Place.OVER)}
    keep = None
    #: When the handler was called that goes on from the last checkpoint.
    went_on: list[float] = []

    async def on_counting(self) -> Place:
        self.results = self.results or list(LINES)
        self.results[self.cursor % len(LINES)] = f"{LINES[self.cursor % len(LINES)]}{self.cursor}"
        if self.cursor == self.request:
            self.went_on.append(perf_counter())
            await outlive.wait_signal("go")
            return Place.OVER
        self.cursor += 1
        return Place.COUNTING


async def counted(path: Path, length: int) -> Measured:
    """A file with a loop of so many transitions that waits for more."""
    store = Measured(path)
    before = len(Count.went_on)
    async with App(store, settings=BUSY) as app:
        await app.start(Count.flow, length, id="x")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(Count.went_on) == before:
                await asyncio.sleep(0.005)
    return store


async def gone_on_with(path: Path) -> tuple[Measured, float]:
    """Open the file again and go on: what was read, and the seconds until the handler ran."""
    before, began = len(Count.went_on), perf_counter()
    store = Measured(path)
    async with App(store, settings=BUSY) as app:
        await app.resume("x", [Count.flow])
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(Count.went_on) == before:
                await asyncio.sleep(0.001)
    return store, Count.went_on[-1] - began


@pytest.mark.timeout(7200)
async def test_going_on_reads_the_last_checkpoint_and_nothing_else(
    tmp_path: Path, figure: Figure, full: bool
) -> None:
    """As many records for a hundred thousand transitions as for thirty."""
    records = set()
    for length in (*LENGTHS, *([LENGTH_FULL] if full else [])):
        path = tmp_path / f"{length}.db"
        written = (await counted(path, length)).written
        looks = [await gone_on_with(path) for _ in range(5)]
        seconds = min(seconds for _, seconds in looks)
        records.add(looks[0][0].records)
        name = f"loop: going on after {length} transitions with 10 kB"
        size = sum(path.stat().st_size for path in tmp_path.glob(f"{length}.db*")) / 1e6
        figure(name, f"{seconds * 1000:.1f} ms, {looks[0][0].records} records, file {size:.0f} MB")
        figure(f"loop: bytes of a checkpoint, {length}", sum(written) // len(written))
        assert seconds < 0.05 or not full  # on ordinary days others keep the machine busy
    assert 1 == len(records)


async def test_a_checkpoint_is_one_commit_of_its_new_bytes(tmp_path: Path, figure: Figure) -> None:
    """As one UPDATE with the whole snapshot is: not a commit more, and a tenth of its bytes."""
    store = Measured(tmp_path / "loops.db")
    async with App(store, settings=BUSY) as app:
        await app.start(Count.flow, 200, id="x")
        before = len(Count.went_on)
        async with asyncio.timeout(60):
            while len(Count.went_on) == before:
                await asyncio.sleep(0.005)
        flushes = app._writer.keeper.counters.flushes
        plain = await _snapshot_bytes(app)

    commits, new = len(store.written), sum(store.written) / 200
    figure("loop: commits of 200 transitions", f"{commits} commits, {flushes} flushes")
    figure("loop: bytes of a checkpoint", f"{new:.0f}, as JSON {plain}")
    # The start, and the wait at the end.
    assert commits <= 200 + 2
    assert flushes <= 200 + 2
    assert new <= plain / 10


async def _snapshot_bytes(app: App) -> int:
    loop: Any = await load(app, "x", Count)
    return len(json.dumps(loop.snapshot()))


async def test_a_transition_with_a_model_call_costs_two_commits_at_most(tmp_path: Path) -> None:
    """The outcome of the call, which is not waited for, and the checkpoint."""
    store = Measured(tmp_path / "loops.db")
    async with App(store, settings=BUSY) as app:
        loop = await drive(Kept(" ".join("abcdefghij"), id="x"), app)

    assert (State.COMPLETE, 31) == (loop.state, loop.seq)
    checkpoints = 1 + 2 * 10
    assert len(store.written) <= 2 * checkpoints + 2
    # What a chapter shows is written with it, and not again with its first outcome.
    assert store.headers <= checkpoints + 2


async def test_chapters_leave_nothing_to_the_collector(tmp_path: Path, figure: Figure) -> None:
    """A loop's old states are gone at once, though each stood in a run with all its parts."""
    gc.collect()
    gc.disable()
    try:
        await counted(tmp_path / "loops.db", 100)
        left = gc.collect()
    finally:
        gc.enable()

    figure("loop: objects that 100 transitions left to the collector", left)
    assert left < 1000


async def test_a_small_loop_has_small_checkpoints(tmp_path: Path, figure: Figure) -> None:
    """A few hundred bytes where the state is that small."""
    store = Measured(tmp_path / "loops.db")
    async with App(store, settings=BUSY) as app:
        await drive(Kept("a b c", id="x"), app)

    figure("loop: largest commit of a small loop", max(store.written))
    assert max(store.written) < 1024
