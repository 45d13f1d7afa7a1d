"""Workers that live long: drains, chapters that change hands, large mail, what must not pile up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

import outlive
from outlive import sync
from outlive.app.app import App
from outlive.app.handle import Handle
from outlive.engine import people
from outlive.engine.verbs import carry
from outlive.envelope import enclose
from outlive.errors import TimedOut
from outlive.journal import log, record
from outlive.journal.mail import write_letter
from outlive.model.events import (
    ChapterBegan,
    Claimed,
    Event,
    MailRead,
    RunQuarantined,
    RunStarted,
    SignalReceived,
    StepDone,
    TimerFired,
)
from outlive.model.mail import Cancel
from outlive.model.run import fold
from outlive.stores.types import Mail, StoredRecord
from outlive.testing.suite.entries import post_one
from outlive.worker.poison import judge
from tests.harness.theatre import STAYING, Theatre, breathe
from tests.harness.world import note, world

#: Records are full and too large at a 256th of the real sizes.
SMALL_BODY = 2**20 - record.ENVELOPE_BYTES
SMALL_FULL = 2**18


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def staying(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Theatre]:
    """A theatre whose runs stay in memory while they wait for a moment."""
    world.begin()
    made = Theatre(STAYING, file=tmp_path / "journal.db" if request.param == "sqlite" else None)
    yield made
    await made.close()


@pytest.fixture
def small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test can reach."""
    monkeypatch.setattr(record, "BODY_BYTES_MAX", SMALL_BODY)
    monkeypatch.setattr(log, "RECORD_FULL_BYTES", SMALL_FULL)


def worker_of(app: App) -> Any:
    """The one worker of an app."""
    (worker,) = [each for workers in app._workers.own.values() for each in workers]
    return worker


async def pass_moments(theatre: Theatre, count: int, seconds: float = 0.05) -> None:
    """Let the clock go on by so many small steps."""
    for _ in range(count):
        theatre.pass_time(seconds)
        await breathe()


@outlive.flow
async def asking() -> str:
    async def ask() -> str:
        try:
            return str(await people.ask("ok?", within="10s"))
        except TimedOut:
            return "timed out"

    said, _ = await asyncio.gather(ask(), note("slow"))
    return said


@outlive.flow
async def sleeping() -> None:
    await outlive.sleep("1000h")


@outlive.flow
async def turning(chapter: int) -> str:
    await note(f"chapter {chapter}")
    if not chapter:
        await carry(1)
    return "done"


@outlive.flow
async def collecting() -> int:
    await outlive.sleep("1h")
    return len([await people.wait_signal("big", str) for _ in range(20)])


@outlive.effect(settle_after=0)
async def send(text: str) -> int:
    return len(text)


@outlive.flow
async def sending() -> list[int]:
    return list(await asyncio.gather(*(send(str(n) * (SMALL_FULL - 1000)) for n in range(6))))


@outlive.flow
async def waiting() -> str:
    return str(await people.wait_signal("go", str))


@outlive.flow
async def serving() -> None:
    async for request in people.requests("q", str, idle="1s"):
        await request.reply("pong")


@outlive.flow
async def noting() -> str:
    return await note("fine")


async def test_an_answer_in_time_beats_its_limit_during_a_drain(theatre: Theatre) -> None:
    """An answer that a draining worker leaves unread comes before the time-out of its question."""
    gate = world.hold("slow")
    app = theatre.open()
    await app.start(asking, id="r")
    question = await theatre.asked("r")
    await theatre.until(lambda: "slow" in world.ran)
    worker = worker_of(app)
    draining = asyncio.ensure_future(app.drain(1000))
    await theatre.until(lambda: worker._departure.is_asked, step=0)
    await theatre.answer("r", question.question, b'"yes"')
    theatre.pass_time(20)
    for _ in range(100):
        await breathe()
    gate.set()
    await theatre.until(draining.done)

    assert [] == await theatre.events("r", TimerFired)
    assert "yes" == await theatre.outcome(await theatre.open().start(asking, id="r"))


async def test_who_waits_for_long_is_kept_once(theatre: Theatre) -> None:
    """Waiting for an outcome for many polls leaves no trail of watchers."""
    app = theatre.open()
    handle = await app.start(sleeping, id="r")
    await theatre.status("r", "waiting")
    outcome = asyncio.ensure_future(handle.outcome())

    await pass_moments(theatre, 200, 0.6)

    kept = len(worker_of(app)._watchers._waiting.get("r", ()))
    outcome.cancel()
    assert 5 > kept


async def test_an_outcome_comes_though_the_next_chapter_is_driven_elsewhere(stage: Theatre) -> None:
    """Who waits where a run lost its lease between chapters gets what the new driver made."""
    app = stage.open()
    gate = world.hold("chapter 0")
    handle = await app.start(turning, 0, id="r")
    await stage.until(lambda: "chapter 0" in world.ran)
    outcome = asyncio.ensure_future(handle.outcome())
    await breathe()
    worker = worker_of(app)
    turn_page = worker._turn_page
    elsewhere: list[str] = []

    async def turn_late(*ended: Any) -> None:
        worker._pulse.beat = lambda: None
        stage.store.kill(worker.id)
        other = await stage.open().start(turning, 0, id="r")
        elsewhere.append(await other.outcome())
        turn_page(*ended)

    worker._turn_page = lambda *ended: asyncio.ensure_future(turn_late(*ended))
    gate.set()
    await stage.until(lambda: elsewhere)

    try:
        await stage.until(outcome.done)
    finally:
        outcome.cancel()
    assert ["done"] == elsewhere
    assert "done" == outcome.result()


async def follow(handle: Handle) -> None:
    """See a run's events until a signal comes."""
    async for event in handle.events():
        if isinstance(event.raw, SignalReceived):
            return


async def test_a_follower_goes_on_with_the_next_chapter(staying: Theatre) -> None:
    """Who follows a plain flow sees what its next chapter does, however long the last one ends."""
    ending, ended = threading.Event(), threading.Event()

    @outlive.flow(name="turning_slowly")
    def turning_slowly(chapter: int) -> None:
        try:
            if not chapter:
                sync.sleep(0.001)
                sync.carry(1)
            for request in sync.requests("q", str, idle="1s"):
                request.reply("pong")
        finally:
            ending.set()
            ended.wait()

    app = staying.open()
    handle = await app.start(turning_slowly, 0, id="r")
    drives = worker_of(app)._drives
    first = drives["r"]
    following = asyncio.ensure_future(follow(handle))
    try:
        await staying.has("r", ChapterBegan, step=0.001)
        await staying.until(ending.is_set, step=0)
        for _ in range(20):
            await breathe()
        ended.set()
        await staying.until(lambda: drives.get("r") not in (None, first), step=0)
        # A look at a run that nobody drove just then, between its chapters, comes after a pause.
        staying.pass_time(0.5)
        await handle.signal("q", "ping", id="1")
        await staying.has("r", SignalReceived, step=0.0001)
        await staying.until(following.done, step=0)
    finally:
        ended.set()
        following.cancel()


@pytest.mark.usefixtures("small_records")
async def test_large_mail_is_read_in_several_records(theatre: Theatre) -> None:
    """Signals that are too large for one record together do not stop the run."""
    app = theatre.open()
    handle = await app.start(collecting, id="r")
    for number in range(20):
        await theatre.signal("r", "big", "x" * (2**16 - 100), id=str(number))

    assert 20 == await theatre.outcome(handle, 60)


@pytest.mark.usefixtures("small_records")
async def test_large_intents_go_into_several_records(theatre: Theatre) -> None:
    """Effects whose arguments are too large for one record together are all performed."""
    app = theatre.open()

    assert 6 == len(await theatre.outcome(await app.start(sending, id="r")))


async def test_a_damaged_run_with_mail_takes_no_place(stage: Theatre) -> None:
    """A worker for one run at a time drives a whole run though a damaged one is due, too."""
    app = stage.open()
    await app.start(waiting, id="broken")
    await stage.status("broken", "waiting")
    await app.drain(0)
    records = stage.store._journals["broken"].records
    records[0] = StoredRecord(records[0].seq, records[0].body[:-1] + b"\x00")
    await stage.signal("broken", "go", "on")
    other = stage.open()
    await other.submit(noting, id="fine")

    async with other.worker([waiting, noting], concurrency=1) as worker:
        other._workers.own.setdefault(asyncio.get_running_loop(), []).append(worker)
        try:
            await stage.status("fine", "completed")
        finally:
            other._workers.own.clear()


async def test_mail_of_an_unknown_kind_is_kept_aside(theatre: Theatre) -> None:
    """A letter of a kind that this release does not know is kept in the journal, not lost."""
    await theatre.open().start(waiting, id="r")
    await post_one(
        theatre.store, "r", "future/1", enclose("r", "future/1", msgspec.msgpack.encode([99, "x"]))
    )

    theatre.pass_time(1)
    await pass_moments(theatre, 100)

    (kept,) = await theatre.events("r", MailRead)
    assert "future/1" == kept.mail_id
    assert kept.unreadable is not None


async def test_requests_leave_nothing_behind(staying: Theatre) -> None:
    """A run that answers many requests in one stay keeps neither their timers nor who asked."""
    app = staying.open()
    handle = await app.start(serving, id="r")
    for number in range(50):
        await handle.request("q", "ping", id=str(number))

    worker = worker_of(app)
    assert 10 > len(worker._drives["r"].timers._dropped)
    assert 10 > len(worker._watchers._waiting.get("r", ()))


def test_a_cured_run_is_judged_by_what_it_did_since() -> None:
    """A run that got far after its quarantine is driven to its cancellation, not ended."""
    events: list[Event] = [
        RunStarted("f", "1", b"", b"", b"", "3.11", 0, "r"),
        *(Claimed(0, epoch, "w", True) for epoch in range(1, 7)),
        RunQuarantined(0, "it kills"),
        Claimed(0, 7, "w", True),
        *(StepDone(n, f"s{n}", 1, b"", b"", b"") for n in range(1000)),
        Claimed(1000, 8, "w", True),
        Claimed(1000, 9, "w", True),
    ]
    mail = [
        Mail(mail_id="cancel/1", body=write_letter("r", "cancel/1", Cancel("ann")), posted_at=0)
    ]

    # It was claimed before, to no avail: it is driven, and told first that it is tried.
    assert "try" == judge("r", fold(events), events, mail)
