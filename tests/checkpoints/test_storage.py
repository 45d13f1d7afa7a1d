"""What checkpoints cost: storage grows with what is new, and each is one commit."""

from __future__ import annotations

import random
import sqlite3
import string
from pathlib import Path
from typing import Any

import pytest

from outlive.checkpoints import DurableRunner, SnapshotStore, SQLiteStorageBackend
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Entry
from outlive.testing.crash.failing_store import FailingStore
from tests.conftest import Figure
from tests.harness.programs import run_python

STEPS = 400


def text(number: int, size: int) -> str:
    """Text that can't be compressed much, the same each time."""
    return "".join(random.Random(number).choices(string.printable, k=size))


def file_bytes(path: Path) -> int:
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.execute("VACUUM")
    db.close()
    return path.stat().st_size


async def grow(runner: DurableRunner, size: int) -> None:
    """One dict that grows by a text at each step, and is changed in place."""
    state: dict[str, Any] = {"results": [], "last_step": -1}
    for number in range(STEPS):
        state["results"].append(text(number, size))
        state["last_step"] = number
        await runner.checkpoint("r", f"s{number}", state)


@pytest.mark.parametrize(("size", "most"), [(1_000, 1.8), (10_000, 1.3)])
async def test_storage_grows_with_what_is_new(
    size: int, most: float, path: Path, figure: Figure
) -> None:
    """Four hundred steps that add as much each: little more than that, and not 201 times."""
    storage = SQLiteStorageBackend(str(path))
    runner = DurableRunner(SnapshotStore(storage))
    await grow(runner, size)
    for number in (0, 1, 199, 398, 399):
        found = await runner.resume("r", f"s{number}")
        assert found == {
            "results": [text(n, size) for n in range(number + 1)],
            "last_step": number,
        }
    await storage.close()

    empty = path.with_name("empty.db")
    await SQLiteStore(empty).close()
    whole, added = file_bytes(path), STEPS * size
    times = (whole - file_bytes(empty)) / added
    figure(f"checkpoints: bytes stored per byte added, {STEPS} steps of {size}", round(times, 2))
    figure(f"checkpoints: the whole file, of {STEPS} steps of {size}", round(whole / added, 2))
    assert times <= most


READER = """
import asyncio, sys
from outlive.checkpoints import DurableRunner, SnapshotStore
from tests.checkpoints.test_storage import STEPS, text

async def main():
    async with SnapshotStore(f"sqlite:///{sys.argv[1]}") as store:
        runner = DurableRunner(store)
        for number in range(STEPS):
            state = await runner.resume("r", f"s{number}")
            assert state["last_step"] == number
            assert state["results"] == [text(n, 1_000) for n in range(number + 1)], number
        print(number + 1)

text = __import__("functools").cache(text)
asyncio.run(main())
"""


async def test_every_step_can_be_resumed_from(path: Path) -> None:
    """Exactly, in the process that saved it, after the file was opened again, and by another."""
    storage = SQLiteStorageBackend(str(path))
    runner = DurableRunner(SnapshotStore(storage))
    await grow(runner, 1_000)
    whole = [text(number, 1_000) for number in range(STEPS)]
    for _ in range(2):
        for number in range(STEPS):
            found = await runner.resume("r", f"s{number}")
            assert found == {"results": whole[: number + 1], "last_step": number}
        await storage.close()
        await storage.initialize()
        runner = DurableRunner(SnapshotStore(storage))
    await storage.close()
    ran = run_python("-c", READER, path)

    assert (f"{STEPS}\n", "") == (ran.stdout, ran.stderr)


async def test_a_checkpoint_is_one_commit(path: Path, figure: Figure) -> None:
    """Whatever it holds: nothing is read before it, and one commit, which is one flush, has all.

    One that comes while the log is given room is refused at once, and made a moment later.
    """
    stored: list[Entry] = []
    store = FailingStore(SQLiteStore(path), witness=stored.append)
    runner = DurableRunner(SnapshotStore(store))
    state: dict[str, Any] = {"results": []}
    await runner.checkpoint("r", "first", state)
    before = len(store.calls)
    for number in range(50):
        state["results"].append(text(number, 1_000))
        await runner.checkpoint("r", f"s{number}", state, {"step_index": number})
        assert number + 2 == len(stored)

    calls = store.calls[before:]
    assert {"commit"} == set(calls)
    assert 50 <= len(calls) <= 60
    figure("checkpoints: store calls per checkpoint", len(calls) / 50)
    await runner.store.close()
    await store.close()


async def test_a_stream_of_events_reads_no_state(path: Path) -> None:
    """What was said of each, and nothing else, however much was saved."""
    store = FailingStore(SQLiteStore(path))
    runner = DurableRunner(SnapshotStore(store))
    said = {"note": "n" * 700}
    for number in range(20):
        state = {"texts": [text(n, 1_000) for n in range(number)]}
        await runner.checkpoint("r", f"s{number}", state, said)
    before = len(store.calls)
    told = [event async for event in runner.events("r")]

    assert ["read", "get_blobs"] == store.calls[before:]
    assert [said] * 20 == [e["metadata"] for e in told if e["event_type"] == "run.snapshot.saved"]
    await runner.store.close()
    await store.close()


async def test_resuming_reads_what_it_needs(path: Path) -> None:
    """The journal's tail, and the parts of one state: no other state is put together."""
    store = FailingStore(SQLiteStore(path))
    runner = DurableRunner(SnapshotStore(store))
    await grow(runner, 1_000)
    before = len(store.calls)
    await runner.resume("r")

    calls = store.calls[before:]
    assert calls.count("commit") == 1
    assert len(calls) < 16
    await runner.store.close()
    await store.close()
