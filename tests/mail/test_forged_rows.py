"""Rows that somebody wrote beside the journals: nothing irreversible is believed of them."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.app.open import open_app
from outlive.envelope import enclose_outcome
from outlive.errors import OutliveError
from outlive.model.events import ChapterBegan, Claimed, EffectDone, RunCompleted
from outlive.settings import Settings
from tests.harness.processes import eventually
from tests.mail.forger import Forger, PostgresForger
from tests.mail.waiting_scene import events_of, found

SEALED = pytest.mark.parametrize("is_sealed", [False, True], ids=["", "sealed"])
STEP = "0/book#1"
FOR_EVER = 1 << 50
QUICK = Settings(lease_seconds=1.0, poll_seconds=0.05, idle_seconds=0.0)


class Here:
    table = "bookings"


@outlive.step(transaction=True)
async def book(connection: Any, what: str) -> str:
    mark = "?" if Here.table == "bookings" else "%s"
    booking = connection.execute(f"INSERT INTO {Here.table} VALUES ({mark})", (what,))
    if asyncio.iscoroutine(booking):
        await booking
    return f"{what} {os.urandom(4).hex()}"


@outlive.flow
async def booking(number: int = 1) -> str:
    """One booking per chapter."""
    await outlive.wait_signal("go", int)
    booked = await book(str(number))
    if number == 1:
        await outlive.carry(2)
    return booked


@pytest.fixture
def rows(forger: Forger) -> Forger:
    """The store, with a table of the user's."""
    open_app(forger.url).close()
    if isinstance(forger, PostgresForger):
        schema = forger.url.rpartition("schema=")[2]
        Here.table = f"{schema}.bookings"
    else:
        Here.table = "bookings"
    forger.sql("CREATE TABLE {s}bookings (what text)")
    return forger


def booked(forger: Forger) -> list[str]:
    return [what for (what,) in forger.sql("SELECT what FROM {s}bookings ORDER BY what")]


async def until(app: App, kind: type, count: int = 1) -> None:
    async def is_so() -> bool:
        return count <= sum(isinstance(each, kind) for each in await events_of(app, "b"))

    await eventually(is_so, f"{count} {kind.__name__}")


def forge_outcome(forger: Forger, body: bytes) -> None:
    forger.sql(
        "INSERT INTO {s}outcomes (run_id, step, seq, epoch, body) VALUES (%s, %s, 1, 1, %s)",
        *("b", STEP, body),
    )


@SEALED
@pytest.mark.parametrize("form", ["bare", "of another run", "of an attempt to come"])
async def test_an_outcome_that_no_attempt_left_is_not_believed(
    rows: Forger, key: str, is_sealed: bool, form: str
) -> None:
    """The step is in doubt as long as the row is there, and happens once when it is gone."""
    given = key if is_sealed else ""
    async with open_app(rows.url, key=given) as app:
        await app.start(booking, id="b")
    body = {
        "bare": b"\xa6forged",
        "of another run": enclose_outcome("c", STEP, 4, b"\xa6forged"),
        "of an attempt to come": enclose_outcome("b", STEP, 999, b"\xa6forged"),
    }[form]
    forge_outcome(rows, body)

    async with open_app(rows.url, key=given, settings=QUICK) as app, app.worker([booking]):
        (why,) = await found(app)
        assert f"the outcome of {STEP} beside it" in why
        await (await app.get("b", booking)).signal("go", 1)
        await asyncio.sleep(0.5)
        assert not [each for each in await events_of(app, "b") if isinstance(each, EffectDone)]
        assert [] == booked(rows)
        rows.sql("DELETE FROM {s}outcomes")
        await until(app, EffectDone)
    assert ["1"] == booked(rows)


@SEALED
async def test_an_outcome_of_an_earlier_chapter_is_not_that_of_a_later_one(
    rows: Forger, key: str, is_sealed: bool
) -> None:
    """Left there by a driver that died, or put back: in each chapter the step has its own id."""
    given = key if is_sealed else ""
    rows.sql("CREATE TABLE {s}kept AS SELECT * FROM {s}outcomes WHERE 1 = 0")
    async with open_app(rows.url, key=given, settings=QUICK) as app:
        store: Any = app.store.transactions
        real = store.forget_outcomes

        async def forget(steps: Any) -> None:
            rows.sql("INSERT INTO {s}kept SELECT * FROM {s}outcomes")
            await real(steps)

        store.forget_outcomes = forget
        await app.start(booking, id="b")
        await (await app.get("b", booking)).signal("go", 1)
        await until(app, ChapterBegan)
    kept = list(rows.sql("SELECT run_id, step, seq, epoch, body FROM {s}kept"))
    assert 1 == len(kept)
    rows.sql("DELETE FROM {s}outcomes")
    rows.sql(
        "INSERT INTO {s}outcomes (run_id, step, seq, epoch, body) VALUES (%s, %s, %s, %s, %s)",
        *kept[0],
    )

    async with open_app(rows.url, key=given, settings=QUICK) as app, app.worker([booking]):
        await (await app.get("b", booking)).signal("go", 2)
        async with asyncio.timeout(30):
            assert (await (await app.get("b", booking)).outcome()).startswith("2 ")
    assert ["1", "2"] == booked(rows)


@SEALED
async def test_a_tombstone_of_a_run_that_is_there_changes_nothing(
    rows: Forger, key: str, is_sealed: bool
) -> None:
    """The run goes on, is not begun again, and `verify` names it."""
    given = key if is_sealed else ""
    async with open_app(rows.url, key=given) as app:
        await app.start(booking, 2, id="b")
    rows.sql(
        "INSERT INTO {s}tombstones (run_id, seq, digest, flow, ended_at, keep_until)"
        " VALUES (%s, 1, %s, 'booking', 1, %s)",
        *("b", b"x", FOR_EVER),
    )

    async with open_app(rows.url, key=given, settings=QUICK) as app, app.worker([booking]):
        assert ["run 'b' is there, and so is its tombstone"] == await found(app)
        with suppress(OutliveError):
            await app.start(booking, 2, id="b")
        await (await app.get("b", booking)).signal("go", 2)
        await until(app, RunCompleted)
    assert ["2"] == booked(rows)


@SEALED
async def test_a_lease_that_nobody_took_is_found_and_taken_over(
    rows: Forger, key: str, is_sealed: bool
) -> None:
    """Of a worker that there never was."""
    given = key if is_sealed else ""
    async with open_app(rows.url, key=given) as app:
        await app.start(booking, 2, id="b")
    rows.sql("UPDATE {s}runs SET worker = 'eve' WHERE run_id = %s", "b")

    async with open_app(rows.url, key=given, drive=False) as app:
        (why,) = await found(app)
        assert why.startswith("its lease is held by worker 'eve', who did not claim it")
        await (await app.get("b", booking)).signal("go", 2)
    async with open_app(rows.url, key=given, settings=QUICK) as app, app.worker([booking]):
        await until(app, RunCompleted)
        events = await events_of(app, "b")
    assert "eve" not in [each.worker for each in events if isinstance(each, Claimed)]
    assert ["2"] == booked(rows)


async def test_limits_that_nobody_can_have_set_are_found(rows: Forger) -> None:
    """And outcomes of runs that are not there."""
    rows.sql("INSERT INTO {s}queues (name, rate, rate_ms) VALUES ('fast', 0, 60000)")
    rows.sql("INSERT INTO {s}queues (name, concurrency, rate_ms) VALUES ('slow', 3, 60000)")
    forge_outcome(rows, b"x")

    async with open_app(rows.url, drive=False) as app:
        outcome, limits = await found(app)
    assert f"there is an outcome of step {STEP!r} of run 'b', and no such run" == outcome
    assert limits.startswith("the limits of queue 'fast' are none that can be set")
