"""``carry``: a run of any length resumes from its last chapter, and nothing is lost between two."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive.app.open import open_app
from outlive.engine import people
from outlive.engine.undo import Undoables
from outlive.engine.verbs import carry
from outlive.errors import NotInRun, RunError, RunFailed
from outlive.journal.reader import read_events
from outlive.model.events import ChapterBegan, StepDone
from outlive.model.events import RunFailed as RunHasFailed
from outlive.model.run import fold
from outlive.stores.memory import MemoryStore
from outlive.stores.types import LAST_CHAPTER
from outlive.testing.suite.entries import post_one
from outlive.views.damage import check_journal
from tests.engine.chapters import chatting, failing_late
from tests.harness.theatre import STAYING, Theatre
from tests.harness.world import note, world

Figure = Callable[[str, object], None]


@outlive.step
async def count(number: int) -> int:
    """One more."""
    return number + 1


@outlive.flow
async def counting(number: int, until: int, chapter: int) -> int:
    """Counts, a chapter at a time, then waits."""
    begun = number
    while number < until:
        number = await count(number)
        if number - begun == chapter and number < until:
            await carry(number, until, chapter)
    await people.wait_signal("go", str)
    return number


async def test_only_the_last_chapter_is_read(theatre: Theatre) -> None:
    """Whoever takes the run over reads, folds and replays no more than that."""
    app = theatre.open()
    await app.start(counting, 0, 50, 10, id="r")
    await theatre.status("r", "waiting")
    await theatre.crash(app)

    reading = await theatre.store.read("r", LAST_CHAPTER)
    events = read_events(reading)
    whole = await theatre.events("r")
    assert isinstance(events[0], ChapterBegan)
    assert 10 == sum(isinstance(event, StepDone) for event in events)
    assert 50 == sum(isinstance(event, StepDone) for event in whole)
    assert fold(events) == fold(whole)
    assert not check_journal(await theatre.store.read("r")).damage
    assert not check_journal(reading).damage

    await theatre.signal("r", "go", "on")
    handle = await theatre.open().start(counting, 0, 50, 10, id="r")
    assert 50 == await theatre.outcome(handle)


async def test_the_records_of_older_chapters_may_go(tmp_path: Path) -> None:
    """The run resumes, ends and verifies without them."""
    world.begin()
    file = tmp_path / "o.db"
    first = Theatre(file=file)
    await first.open().start(counting, 0, 30, 7, id="r")
    await first.status("r", "waiting")
    await first.close()
    db = sqlite3.connect(file)
    (chapter,) = db.execute("SELECT chapter FROM runs").fetchone()
    gone = db.execute("DELETE FROM records WHERE seq < ?", (chapter,)).rowcount
    db.commit()
    db.close()
    assert gone

    second = Theatre(file=file)
    await second.signal("r", "go", "on")
    handle = await second.open().start(counting, 0, 30, 7, id="r")
    assert 30 == await second.outcome(handle)
    reading = await second.read("r")
    assert reading is not None
    assert not check_journal(reading).damage
    await second.close()


async def test_the_time_to_resume_does_not_grow_with_the_chapters(
    tmp_path: Path, full: bool, figure: Figure
) -> None:
    """A chat of 100,000 messages resumes in milliseconds (fewer unless at full counts)."""
    messages = 100_000 if full else 5_000
    took = {}
    for size in (500, messages):
        url = f"sqlite:///{tmp_path}/{size}.db"
        async with open_app(url) as app:
            handle = await app.start(counting, 0, size, 100, id="r")
            while await handle.status() != "waiting":
                assert await handle.status() in ("running", "waiting")
        async with open_app(url) as app:
            began = time.perf_counter()
            reading = await app.read("r", LAST_CHAPTER)
            fold(read_events(reading))
            took[size] = time.perf_counter() - began
            await post_one(app.store, "r", "signal/go", people_signal())
            assert size == await (await app.start(counting, 0, size, 100, id="r")).outcome()
    figure(
        f"chapters: ms to read and fold a run of {messages} messages",
        round(1e3 * took[messages], 1),
    )
    assert took[messages] < 10 * took[500] + 0.05


def people_signal() -> bytes:
    """A signal as anybody may send it."""
    from outlive.journal.mail import write_letter
    from outlive.model.mail import Signal

    return write_letter("r", "signal/go", Signal("go", b'"on"', True))


async def test_signals_keep_their_order_across_chapters(theatre: Theatre) -> None:
    """What was received and not taken is the next chapter's."""
    for_all = [f"{number}" for number in range(20)]
    app = theatre.open()
    handle = await app.start(chatting, [], 20, id="r")
    for number in for_all:
        await theatre.signal("r", "say", number, id=number)
    assert for_all == await theatre.outcome(handle)
    events = await theatre.events("r", ChapterBegan)
    assert any(event.signals for event in events)


async def test_the_next_chapter_begins_from_memory(theatre: Theatre) -> None:
    """Who has just written a chapter's first event does not read it."""
    app = theatre.open()
    calls: list[str] = []
    theatre.doors[app].on_call = calls.append
    await app.start(counting, 0, 50, 10, id="r")
    await theatre.has("r", ChapterBegan, 4)
    assert 4 > calls.count("read")


@outlive.flow
async def listening(chapter: int) -> str:
    """The first chapter is long, the second hears a word."""
    if chapter == 0:
        await note("long")
        await carry(1)
    return await people.wait_signal("word", str)


async def test_mail_under_way_between_two_chapters_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was fetched for the last chapter, and came too late for it, is fetched for the next."""
    world.begin()
    never = replace(STAYING, poll_seconds=10_000, idle_seconds=10_000)
    theatre, fetched, go_on = Theatre(never), threading.Event(), threading.Event()

    mail_of = MemoryStore.mail_of

    async def fetch(*asked: Any) -> Any:
        found = await mail_of(*asked)
        fetched.set()
        go_on.wait(60)
        return found

    monkeypatch.setattr(MemoryStore, "mail_of", fetch)
    gate = world.hold("long")
    handle = await theatre.open().start(listening, 0, id="r")
    await theatre.until(lambda: "long" in world.ran)
    await handle.signal("word", "hello")
    await theatre.until(fetched.is_set)
    gate.set()
    await theatre.has("r", ChapterBegan)
    go_on.set()

    assert "hello" == await theatre.outcome(handle)
    await theatre.close()


async def test_a_chapter_belongs_to_the_version_of_its_code(theatre: Theatre) -> None:
    """So a run that never ends can be brought to new code, chapter by chapter."""

    @outlive.flow(name="growing", version="1")
    async def old(number: int) -> str:
        await people.wait_signal("go", str)
        await carry(number + 1)
        return ""

    @outlive.flow(name="growing", version="2", accepts=("1",))
    async def new(number: int) -> str:
        if number < 2:
            await people.wait_signal("go", str)
            await carry(number + 1)
        return f"new {number}"

    app = theatre.open()
    await app.start(old, 0, id="r")
    await theatre.signal("r", "go", "a")
    await theatre.has("r", ChapterBegan)
    await theatre.status("r", "waiting", "running")
    await theatre.crash(app)
    handle = await theatre.open().start(new, 0, id="r")
    await theatre.signal("r", "go", "b")
    assert "new 2" == await theatre.outcome(handle)
    chapters = await theatre.events("r", ChapterBegan)
    assert ["1", "2"] == [event.start.version for event in chapters]


async def test_bad_arguments_are_refused_where_they_are_given(theatre: Theatre) -> None:
    """The chapter goes on: the flow may catch it."""

    @outlive.flow
    async def careless(number: int) -> list[str]:
        said = []
        for bad in ((), (object(),)):
            try:
                await carry(*bad)
            except (TypeError, outlive.errors.ValueRefused) as error:
                said.append(type(error).__name__)
        return said

    handle = await theatre.open().start(careless, 1, id="r")
    assert ["TypeError", "ValueRefused"] == await theatre.outcome(handle)


async def test_carry_belongs_into_a_flow() -> None:
    """Elsewhere it says so."""
    with pytest.raises(NotInRun, match="carry"):
        await carry(1)


async def test_what_can_not_be_undone_here_stops_the_run_and_says_so(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that does not know an effect of an earlier chapter leaves the run to others."""
    from outlive.engine import undo as undoing

    app = theatre.open()
    with monkeypatch.context() as patch:
        patch.setattr(undoing, "undoables", Undoables())
        handle = await app.start(failing_late, 0, id="r")
        with pytest.raises(
            RunError, match="of an earlier chapter has to be undone; this process has none"
        ) as caught:
            await theatre.outcome(handle)
        assert "import the module that defines it" in str(caught.value)
    await theatre.crash(app)
    theatre.pass_time(120)
    again = await theatre.open().start(failing_late, 0, id="r")
    with pytest.raises(RunFailed, match="late"):
        await theatre.outcome(again)
    assert [] == world.names()
    assert 1 == len(await theatre.events("r", RunHasFailed))


async def test_a_step_of_the_same_place_in_another_chapter_is_another(theatre: Theatre) -> None:
    """Ids begin with the chapter's number."""

    @outlive.flow
    async def twice(number: int) -> int:
        await note(f"{number}")
        if number < 2:
            await carry(number + 1)
        return number

    assert 2 == await theatre.outcome(await theatre.open().start(twice, 0, id="r"))
    steps = [event.step for event in await theatre.events("r", StepDone)]
    assert ["0/note#1", "1/note#1", "2/note#1"] == steps
    assert ["0", "1", "2"] == world.ran


async def test_chance_differs_between_chapters(theatre: Theatre) -> None:
    """The seed is the run's, the place the chapter's."""

    @outlive.flow
    async def drawing(drawn: list[float]) -> list[float]:
        drawn = [*drawn, outlive.random()]
        if len(drawn) < 3:
            await carry(drawn)
        return drawn

    outcome: Any = await theatre.outcome(await theatre.open().start(drawing, [], id="r"))
    assert 3 == len(set(outcome))
