"""What streams cost and refuse: commits, readers, memory, forged chunks, code that is late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

import outlive
from outlive import sync
from outlive.app import streams as feeds
from outlive.app.app import App
from outlive.errors import CorruptRecord, NotInRun, RunFailed, RunNotFound, StreamFull, UsageError
from outlive.model import defaults
from outlive.model.events import ChapterBegan, RunStarted, Streamed, StreamReset
from outlive.model.streams import StreamFold
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from tests.engine.speech import (
    FLOW,
    WORDS,
    begun,
    breaks,
    read,
    talking,
)
from tests.harness.readers import Screen
from tests.harness.scene import Scene, breathe
from tests.harness.theatre import Theatre
from tests.order.journals import drive_on, write


@pytest_asyncio.fixture
async def scene() -> AsyncIterator[Scene]:
    """A store in memory whose commits can be held up."""
    made = Scene()
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    begun.clear()
    breaks.clear()


async def test_600_tokens_cost_a_commit_per_batch(stage: Theatre, figure: Any) -> None:
    """At one per 8 ms, batches of 50 ms: far fewer commits than tokens."""

    @outlive.step
    async def model() -> int:
        async with outlive.stream("tokens") as out:
            for number in range(600):
                out.put(f"token {number}")
                await asyncio.sleep(0.008)
        return 600

    @outlive.flow
    async def flow() -> int:
        return await model()

    app = stage.open()
    handle = await app.start(flow, id="r")
    assert 600 == await stage.outcome(handle, 0.008)

    commits = app._writer.keeper.counters.flushes
    assert commits <= 600 * 8 / 50 + 10
    figure("streams: commits for 600 tokens at one per 8 ms", commits)


async def test_a_thousand_readers_share_one_look(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They cost the store what one costs, and leaving ends nothing but their reading."""
    made: list[Any] = []

    class Counted(feeds.Follower):
        def __init__(self, *args: Any) -> None:
            made.append(self)
            super().__init__(*args)

    monkeypatch.setattr("outlive.app.handle.Follower", Counted)
    app = theatre.open()
    handle = await app.start(talking, id="r")
    screens = [Screen() for _ in range(1000)]
    reading = [asyncio.ensure_future(screen.follow(handle.stream("tokens"))) for screen in screens]
    await theatre.has("r", Streamed)
    for task in reading[::2]:
        task.cancel()
    assert 12 == await theatre.outcome(handle)
    await theatre.until(lambda: all(task.done() for task in reading))

    assert 1 == len(made)
    assert all(screen.shown == {"0/talk#1": WORDS} for screen in screens[1::2])
    assert not app._letterboxes._feeds._feeds


async def test_a_slow_store_holds_its_writer_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Awaited, ``put`` waits for the store; not awaited, it refuses at the limit."""
    monkeypatch.setattr("outlive.engine.outlet.STREAM_BACKLOG_BYTES", 20_000)
    put: list[int] = []

    @outlive.step
    async def fill(is_patient: bool) -> int:
        async with outlive.stream("tokens") as out:
            for number in range(100):
                room = out.put("x" * 1000)
                put.append(number)
                if is_patient:
                    await room
        return len(put)

    @outlive.flow
    async def flow(is_patient: bool) -> int:
        return await fill(is_patient)

    app = scene.open()
    door = scene.doors[app]
    await scene.outcome(await app.start(talking, id="first"))
    handle = await app.start(flow, True, id="r")
    await scene.until(lambda: put)
    door.open.clear()
    await scene.until(lambda: len(put) >= 20)
    for _ in range(50):
        await breathe()
    held = len(put)
    door.open.set()
    assert 100 == await scene.outcome(handle)
    assert 20 <= held < 60

    put.clear()
    with pytest.raises(RunFailed, match=r"StreamFull.*write `await out.put"):
        await scene.outcome(await app.start(flow, False, id="s"))
    assert 20 == len(put)


@pytest.mark.parametrize(
    ("chunk", "said"),
    [("x" * 70_000, "at most 65536"), (object(), "stream 'tokens' was given")],
)
async def test_a_chunk_that_is_too_large_is_refused(
    stage: Theatre, chunk: object, said: str
) -> None:
    """In a step as in the flow, by name and limit."""

    @outlive.step
    async def step() -> None:
        async with outlive.stream("tokens") as out:
            out.put(chunk)

    @outlive.flow
    async def flow(where: str) -> None:
        if where == "step":
            await step()
        async with outlive.stream("tokens") as out:
            out.put(chunk)

    for where in ("flow", "step"):
        handle = await stage.open().start(flow, where, id=where)
        with pytest.raises(RunFailed, match=said):
            await stage.outcome(handle)


async def test_a_stream_takes_no_more_than_its_limit(
    stage: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the stream and what to do; the flow may catch it, live as on replay."""
    monkeypatch.setattr("outlive.engine.outlet.STREAM_BYTES_MAX", 100)

    @outlive.flow
    async def flow() -> list[int]:
        taken = []
        async with outlive.stream("tokens") as out:
            for number in range(30):
                try:
                    out.put("x" * 10)
                    taken.append(number)
                except StreamFull:
                    await outlive.sleep(1)
        return taken

    app = stage.open()
    taken = await stage.outcome(await app.start(flow, id="r"), 1.0)

    assert list(range(10)) == taken
    events = await stage.events("r")
    replayed = await drive_on(events[:-3], flow, run_id="r")
    assert ("returned", taken) == replayed.outcome


async def test_forged_chunks_are_refused_by_place() -> None:
    """An offset, or an attempt, that does not follow what came before."""
    item = Streamed(1, "tokens", "0/a#1", 1, 1, [b"\xa1a"])
    for forged in (
        replace(item, offset=1),
        replace(item, offset=3),
        replace(item, offset=2, attempt=2),
        StreamReset(1, "tokens", "0/a#1", 3, 2),
        StreamReset(1, "tokens", "0/a#1", 2, 3),
    ):
        fold = StreamFold("r", "tokens")
        fold.take(1, item)
        with pytest.raises(CorruptRecord, match=r"run r.*seq 2.*tokens"):
            fold.take(2, forged)


async def test_a_stream_begins_where_its_oldest_chapter_does() -> None:
    """Records of earlier chapters may be gone; offsets count on, and may not be moved."""
    start = RunStarted("f", "1", b"", b"", b"", "3.11", 0, "r")
    chapter = ChapterBegan(1, 40, 1, 2, start, b"", streams={"tokens": 7})
    chunk = Streamed(2, "tokens", "2/a#1", 1, 8, [b"\xa1a"])
    fold = StreamFold("r", "tokens")
    assert [] == fold.take(40, chapter)
    assert [8] == [item.offset for item in fold.take(41, chunk)]
    with pytest.raises(CorruptRecord, match="stream tokens ends at 8"):
        fold.take(42, chapter)


async def test_a_reader_is_told_of_damage(stage: Theatre) -> None:
    """All readers of the stream get the error, none waits for ever."""
    app = stage.open()
    await stage.outcome(await app.start(talking, id="r"))
    events = await stage.events("r")
    bad = [
        replace(event, offset=event.offset + 1) if isinstance(event, Streamed) else event
        for event in events
    ]
    store = MemoryStore()
    write(store, "r", bad)
    async with App(store, drive=False, settings=Settings(lease_seconds=5.0)) as other:
        handle = await other.get("r")
        for _ in range(2):
            with pytest.raises(CorruptRecord, match="offset 2 of stream tokens"):
                await Screen().follow(handle.stream("tokens"))


async def test_what_is_no_stream_is_refused() -> None:
    """Names and offsets that nothing has, runs that are not there, code outside any run."""
    async with outlive.open("memory://") as app:
        handle = await app.start(talking, id="r")
        for name, after in (("", 0), (7, 0), ("x", -1), ("x", True)):
            with pytest.raises(UsageError, match="stream: "):
                await anext(handle.stream(name, after))  # type: ignore[arg-type]
        with pytest.raises(RunNotFound):
            await app.get("nobody")
    with pytest.raises(NotInRun):
        async with outlive.stream("tokens"):
            pass


async def test_an_attempt_that_is_over_writes_no_more(stage: Theatre) -> None:
    """A task that a body left behind is refused, so that a retry is not disturbed."""
    said: list[str] = []
    left: list[asyncio.Task[None]] = []

    async def linger(out: Any) -> None:
        await asyncio.sleep(0.05)
        try:
            out.put("too late")
        except UsageError as error:
            said.append(str(error))

    @outlive.step
    async def careless() -> int:
        opened = outlive.stream("tokens")
        out = await opened.__aenter__()
        out.put("in time")
        left.append(asyncio.ensure_future(linger(out)))
        return 1

    @outlive.flow
    async def flow() -> int:
        await careless()
        await outlive.sleep(1)
        return 1

    app = stage.open()
    await stage.outcome(await app.start(flow, id="r"))

    assert {"0/careless#1": ["in time"]} == (await read(app)).shown
    assert all("is closed" in each for each in said)


def test_plain_code_streams_by_the_same_words() -> None:
    """A plain flow, a plain step in a thread, and a plain reader."""

    @outlive.step
    def count() -> int:
        with sync.stream("tokens") as out:
            for number in range(50):
                out.put(number)
        return 50

    @outlive.flow
    def flow() -> int:
        with sync.stream("tokens") as out:
            out.put("begin")
            told = count()
            out.put("end")
        return told

    with sync.open("memory://") as app:
        handle = app.start(flow, id="r")
        screen = Screen()
        for chunk in handle.stream("tokens"):
            screen.take(chunk)
        assert 50 == handle.outcome()

    assert {FLOW: ["begin", "end"], "0/count#1": list(range(50))} == screen.shown


def test_limits_are_what_the_reference_says() -> None:
    """Whoever changes one changes the words of ``put`` and ``publish``, too."""
    assert (64 * 1024, 1024) == (defaults.STREAM_CHUNK_BYTES_MAX, defaults.PUBLISHED_BYTES_MAX)
