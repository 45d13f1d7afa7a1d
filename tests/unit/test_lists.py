"""Lists across runs: what is found, asked, in doubt, at work and on the move."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import outlive
from outlive.app.app import App
from outlive.errors import CorruptRecord, RunFailed, UsageError
from outlive.journal.seal.keys import MasterKeys, new_key
from outlive.journal.seal.sealed_store import SealedStore
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore


class Broke(Exception):
    """The bank has no money."""


@outlive.effect(name="lists_pay")
async def pay(cents: int) -> int:
    raise ConnectionResetError("gone")


@outlive.flow(name="lists_refund")
async def refund(cents: int) -> int:
    return await pay(cents)


@outlive.flow(name="lists_ask")
async def ask(text: str, within: str | None = None) -> bool:
    return await outlive.ask(text, type=bool, within=within)


@outlive.flow(name="lists_fail")
async def fail() -> None:
    raise Broke("no money")


@outlive.flow(name="lists_greet")
async def greet(name: str) -> str:
    return name


Place = Callable[[], Store]


class Counted(SQLiteStore):
    """Counts the journals that are read."""

    reads = 0

    async def read(self, *args: Any, **kwargs: Any) -> Any:
        self.reads += 1
        return await super().read(*args, **kwargs)


@pytest.fixture(params=["memory", "sqlite", "sealed"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    plain = Counted(tmp_path / "o.db")
    return (
        plain
        if request.param == "sqlite"
        else SealedStore(plain, MasterKeys.parse(new_key(os.urandom), os.urandom))
    )


@pytest_asyncio.fixture
async def app(store: Store) -> AsyncIterator[App]:
    async with App(store) as opened:
        yield opened


async def test_runs_are_found_by_what_they_are(app: App) -> None:
    """Several statuses, tags, times, and the fingerprint of an error; the newest first."""
    before = datetime.now(UTC)
    for name in ("a", "b"):
        await (
            await app.start(greet.options(tags={"team": name, "all": "x"}), name, id=f"g-{name}")
        )
    with pytest.raises(RunFailed):
        await (await app.start(fail, id="f"))

    async def found(**asked: Any) -> list[str]:
        return [run.id for run in (await app.find(**asked)).items]

    assert ["f", "g-b", "g-a"] == await found(newest=True)
    assert ["f", "g-b"] == await found(status=("failed", "completed"), newest=True, limit=2)
    assert ["g-a"] == await found(tag={"team": "a", "all": "x"})
    assert ["g-a", "g-b"] == await found(prefix="g-", since=before - timedelta(seconds=1))
    assert [] == await found(until="1h")
    (run,) = (await app.find(status="failed")).items
    assert "Broke at test_lists.py:fail" == run.error
    assert ["f"] == await found(error=run.error)
    assert [] == await found(error="Broke at elsewhere.py:fail")
    assert ["g-a", "g-b"] == await found(ended_since="1h", status="completed")
    assert "2" == str(await app.count(tag={"all": "x"}))
    assert "1+" == str(await app.count(most=1))


async def test_open_questions_are_told_from_headers(app: App, store: Store) -> None:
    """With their run, text, schema, addressee and limit; the journals stay closed."""
    first = await app.start(ask, "Refund?", within="2d", id="q-1")
    second = await app.start(ask, "x" * 9_000, id="q-2")
    for handle in (first, second):
        while not await handle.questions():
            await asyncio.sleep(0.01)
    counted = getattr(store, "below", store)
    reads = getattr(counted, "reads", 0)

    short, long = await app.questions()

    if isinstance(counted, Counted):
        # Only the one that is too long for a header is read.
        assert counted.reads - reads <= 2
    assert ("q-1", "lists_ask", "Refund?") == (short.run, short.flow, short.text)
    assert {"type": "boolean"} == short.schema
    assert short.until is not None
    assert timedelta(days=1) < short.until - datetime.now(UTC) < timedelta(days=2)
    assert (None, "x" * 9_000) == (long.by, long.text)
    assert (await first.questions())[0] == short.question
    await first.answer(True)
    assert await first
    assert ["q-2"] == [each.run for each in await app.questions()]


async def test_doubts_are_told_with_what_settles_them(app: App) -> None:
    """A command that a person can type."""
    handle = await app.start(refund, 5, id="r-1")
    while "in_doubt" != await handle.status():
        await asyncio.sleep(0.01)

    (doubt,) = await app.doubts()

    assert ("r-1", "lists_refund", "human") == (doubt.run, doubt.flow, doubt.settled_by)
    assert "ConnectionResetError: gone" == doubt.why
    assert f"outlive resolve r-1 '{doubt.step}'" == doubt.command
    await handle.cancel()


async def test_workers_say_who_they_are(app: App) -> None:
    """Their host, process, flows and versions, and how many runs they hold."""
    async with app.worker(flows=[greet]):
        (worker,) = [each for each in await app.workers() if "lists_greet" in each.flows]
    assert os.getpid() == worker.pid
    assert worker.host
    assert ["1"] == list(worker.flows["lists_greet"])
    assert worker.beat_at is not None
    assert abs(datetime.now(UTC) - worker.beat_at) < timedelta(minutes=1)


async def test_changes_can_be_followed_and_taken_up_again(app: App) -> None:
    """From the cursor of a change nothing is missed."""
    feed = app.changes()
    first = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0.05)
    await (await app.start(greet, "a", id="a"))
    change = await asyncio.wait_for(first, 10)
    await feed.aclose()
    await (await app.start(greet, "b", id="b"))

    seen: set[str] = set()
    async for each in app.changes(change.cursor):
        seen.add(each.run.id)
        if "b" in seen:
            break

    assert "a" == change.run.id
    assert seen <= {"a", "b"}


@outlive.step(name="lists_add")
async def add(number: int) -> int:
    return number + 1


@outlive.flow(name="lists_count")
async def count(to: int) -> int:
    number = 0
    while number < to:
        number = await add(number)
    return number


async def test_a_timeline_is_read_by_pages(app: App) -> None:
    """Every row once, as if all had been read at once; each page is verified by the one before."""
    handle = await app.start(count, 20, id="c")
    await handle
    whole = (await app.timeline("c", limit=1000)).rows

    rows: list[Any] = []
    after = None
    while True:
        page = await app.timeline("c", after, limit=1)
        rows += page.rows
        if page.next is None:
            break
        after = page.next

    assert list(whole) == rows
    assert len(rows) > 20
    first = await app.timeline("c", limit=1)
    assert first.next is not None
    seq, _, link = first.next.partition(".")
    forged = f"{seq}.{'00' * (len(link) // 2)}"
    with pytest.raises(CorruptRecord):
        await app.timeline("c", forged, limit=1)
    for wrong in ("", "7", "x.00"):
        with pytest.raises(UsageError, match="it is the `next` of the page before"):
            await app.timeline("c", wrong)
