"""Streams: chunks in order, each once; one reset per new attempt; nothing written on replay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

import outlive
from outlive import sync
from outlive.app import streams as feeds
from outlive.app.app import App
from outlive.errors import CorruptRecord, NotInRun, RunFailed, RunNotFound, StreamFull, UsageError
from outlive.model import defaults
from outlive.model.events import Event, StepDone, Streamed, StreamReset
from outlive.model.streams import StreamFold
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from tests.harness.readers import Screen
from tests.harness.scene import Scene, breathe
from tests.harness.theatre import Theatre
from tests.order.journals import drive, drive_on, write

WORDS = [f"w{number}" for number in range(12)]
#: Between two words.
PAUSE = 0.02
#: How often a body was begun, and at which word it fails by then.
begun: dict[str, int] = {}
breaks: dict[str, list[int]] = {}


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


async def say(name: str, words: Sequence[str] = WORDS) -> int:
    begun[name] = begun.get(name, 0) + 1
    at = breaks.get(name, [])
    last = at.pop(0) if at else len(words)
    async with outlive.stream("tokens") as out:
        for number, word in enumerate(words):
            if number == last:
                raise ConnectionError(f"{name} broke at {number}")
            out.put(word)
            await asyncio.sleep(PAUSE)
    return len(words)


@outlive.step(retry=outlive.Retry(attempts=4, delay="0.1s", jitter=False))
async def talk(name: str) -> int:
    return await say(name)


@outlive.effect(
    not_happened=(ConnectionError,),
    retry=outlive.Retry(attempts=3, delay="0.1s"),
    doubt="retry",
    settle_after=0,
)
async def act(name: str) -> int:
    return await say(name)


@outlive.flow
async def talking() -> int:
    return await talk("a")


@outlive.flow
async def mixed() -> list[int]:
    async with outlive.stream("tokens") as out:
        out.put("flow begins")
        first = await talk("a")
        out.put("between")
        second, third = await asyncio.gather(talk("b"), act("c"))
        out.put("flow ends")
    return [first, second, third]


FLOW = "0/stream:tokens#1"
MIXED = {
    FLOW: ["flow begins", "between", "flow ends"],
    "0/talk#1": WORDS,
    "0.1/talk#1": WORDS,
    "0.2/act#1": WORDS,
}


async def read(app: App, run_id: str = "r", name: str = "tokens", after: int = 0) -> Screen:
    """What a reader sees of a run that is over."""
    screen = Screen()
    screen.offset = after
    handle = await app.get(run_id)
    await screen.follow(handle.stream(name, after))
    return screen


async def seen_in(events: Sequence[Event], run_id: str = "r") -> Screen:
    """What a reader sees of these events."""
    screen, fold = Screen(), StreamFold(run_id, "tokens")
    for seq, event in enumerate(events, 1):
        for item in fold.take(seq, event):
            codec: Any = _Plain
            screen.take(feeds.chunk_of(item, codec))
    return screen


class _Plain:
    """A codec for plain words."""

    decode = staticmethod(msgspec.msgpack.decode)


async def test_a_reader_gets_each_chunk_once_in_order(theatre: Theatre) -> None:
    """From steps, effects and the flow itself, while the run is under way and afterwards."""
    app = theatre.open()
    handle = await app.start(mixed, id="r")
    screen = Screen()
    follows = asyncio.ensure_future(screen.follow(handle.stream("tokens")))
    assert [12, 12, 12] == await theatre.outcome(handle)
    await theatre.until(follows.done)
    follows.result()

    assert MIXED == screen.shown
    assert [] == screen.resets
    later = await read(theatre.open(drive=False))
    assert (MIXED, screen.offset) == (later.shown, later.offset)


async def test_who_comes_back_goes_on_behind_an_offset(theatre: Theatre) -> None:
    """Whichever offset that is."""
    app = theatre.open()
    await theatre.outcome(await app.start(mixed, id="r"))
    handle = await app.get("r")
    whole = [chunk async for chunk in handle.stream("tokens")]
    assert list(range(1, len(whole) + 1)) == [chunk.offset for chunk in whole]
    for after in range(len(whole) + 2):
        assert whole[after:] == [chunk async for chunk in handle.stream("tokens", after)]


async def test_a_retry_gives_one_reset(theatre: Theatre) -> None:
    """What the failed attempts wrote is withdrawn, each time by one reset."""
    breaks.update({"a": [5, 7], "c": [3]})
    app = theatre.open()
    await theatre.outcome(await app.start(mixed, id="r"))

    screen = await read(app)
    assert MIXED == screen.shown
    assert ["0.2/act#1", "0/talk#1", "0/talk#1"] == sorted(screen.resets)
    assert [2, 3] == [
        event.attempt for event in await theatre.events("r", StreamReset) if "talk" in event.step
    ]


async def test_an_attempt_that_streams_nothing_withdraws_what_one_before_it_did(
    theatre: Theatre,
) -> None:
    """The chunks of an attempt that does not count are gone, whether others follow or not."""

    @outlive.step(retry=outlive.Retry(attempts=2, delay="0.1s"))
    async def once() -> int:
        if not begun:
            return await say("x", WORDS[:3])
        return 1

    breaks["x"] = [2]

    @outlive.flow
    async def flow() -> int:
        return await once()

    app = theatre.open()
    assert 1 == await theatre.outcome(await app.start(flow, id="r"))

    screen = await read(app)
    assert ({"0/once#1": []}, ["0/once#1"]) == (screen.shown, screen.resets)


async def test_chunks_of_a_step_that_failed_for_good_stay(theatre: Theatre) -> None:
    """Its last attempt is the one that counts."""
    breaks["a"] = [4, 4, 4, 4]
    app = theatre.open()
    with pytest.raises(RunFailed, match="broke at 4"):
        await theatre.outcome(await app.start(talking, id="r"))

    screen = await read(app)
    assert ({"0/talk#1": WORDS[:4]}, 3) == (screen.shown, len(screen.resets))


async def test_a_run_that_is_cut_anywhere_shows_each_chunk_once(
    monkeypatch: pytest.MonkeyPatch, figure: Any
) -> None:
    """Whatever its journal had by then: one reset for each step that is done again."""
    monkeypatch.setattr("outlive.engine.outlet.STREAM_BATCH_BYTES", 50)
    monkeypatch.setattr(f"{__name__}.PAUSE", 0.0)
    breaks["a"] = [5]
    whole = await drive(MemoryStore(), mixed, run_id="r")
    assert MIXED == (await seen_in(whole.events)).shown
    for cut in range(2, len(whole.events)):
        breaks.clear()
        prefix = whole.events[:cut]
        driven = await drive_on(prefix, mixed, run_id="r")
        assert ("returned", [12, 12, 12]) == driven.outcome
        screen, earlier = await seen_in(driven.events), await seen_in(prefix)
        assert MIXED == screen.shown
        assert sorted([*earlier.resets, *_unfinished(prefix)]) == sorted(screen.resets)
    figure("streams: cuts of a journal that were read right", len(whole.events) - 2)


def _unfinished(events: Sequence[Event]) -> set[str]:
    """Steps whose provisional chunks another driver withdraws."""
    left: set[str] = set()
    for event in events:
        match event:
            case Streamed(in_flow=False):
                left.add(event.step)
            case StreamReset():
                left.discard(event.step)
            case _ if type(event).__name__ in ("StepDone", "StepRaised", "EffectDone"):
                left.discard(getattr(event, "step", ""))
            case _:
                pass
    return left


async def test_a_replay_of_the_flow_writes_no_chunk(theatre: Theatre) -> None:
    """What flow code put is written once, however often it is replayed."""

    @outlive.flow
    async def patient() -> int:
        async with outlive.stream("tokens") as out:
            for number in range(5):
                out.put(f"turn {number}")
                await outlive.wait_signal("go")
        return 5

    app = theatre.open()
    handle = await app.start(patient, id="r")
    for number in range(5):
        await theatre.has("r", Streamed, number + 1)
        await theatre.status("r", "waiting", step=1.0)
        await theatre.crash(app)
        app = theatre.open()
        handle = await app.start(patient, id="r")
        await theatre.signal("r", "go", number)
    assert 5 == await theatre.outcome(handle)

    screen = await read(app)
    assert {FLOW: [f"turn {number}" for number in range(5)]} == screen.shown
    assert [] == screen.resets


async def test_a_retried_run_withdraws_what_its_flow_does_again(theatre: Theatre) -> None:
    """Chunks that the flow wrote on its way to the failure are reset, then written anew."""

    @outlive.flow
    async def apologetic() -> int:
        async with outlive.stream("tokens") as out:
            out.put("hello")
            await outlive.sleep("1s")
            try:
                told = await talk("a")
            except Exception:
                out.put("sorry")
                raise
            out.put("done")
        return told

    breaks["a"] = [2, 2, 2, 2]
    app = theatre.open()
    with pytest.raises(RunFailed):
        await theatre.outcome(await app.start(apologetic, id="r"))
    assert ["hello", "sorry"] == (await read(app)).shown[FLOW]
    await app.retry("r")
    assert 12 == await theatre.outcome(await app.start(apologetic, id="r"))

    screen = await read(app)
    assert {FLOW: ["hello", "done"], "0/talk#1": WORDS} == screen.shown
    assert 1 == screen.resets.count(FLOW)


@outlive.flow
async def carrying(number: int) -> int:
    async with outlive.stream("tokens") as out:
        out.put(f"chapter {number}")
    await talk("a")
    if number < 3:
        await outlive.carry(number + 1)
    return number


async def test_a_stream_goes_on_over_chapters(theatre: Theatre) -> None:
    """Its offsets count on, so a reader that comes back misses nothing."""
    app = theatre.open()
    assert 3 == await theatre.outcome(await app.start(carrying, 1, id="r"))

    screen = await read(app)
    places = {f"{n}/stream:tokens#1": [f"chapter {n + 1}"] for n in range(3)}
    assert places | {f"{n}/talk#1": WORDS for n in range(3)} == screen.shown
    assert 3 * 13 == screen.offset


async def test_a_fork_has_streams_of_its_own(theatre: Theatre) -> None:
    """What it shares is the other run's; what it does itself is in its own stream, from 1."""
    app = theatre.open()
    handle = await app.start(mixed, id="r")
    await theatre.outcome(handle)
    first = next(s for s, e in enumerate(await handle.read(), 1) if isinstance(e, StepDone))
    fork = await app.fork("r", at=first, id="f")
    assert [12, 12, 12] == await theatre.outcome(fork)

    screen = await read(app, "f")
    assert {**MIXED, FLOW: ["between", "flow ends"]} == {"0/talk#1": WORDS} | screen.shown
    assert [] == screen.resets


async def test_a_child_streams_for_itself(theatre: Theatre) -> None:
    """Its chunks are in its own run, not in its parent's."""

    @outlive.flow
    async def parent() -> int:
        return await outlive.call(talking, id="kid")

    app = theatre.open()
    await theatre.outcome(await app.start(parent, id="r"))

    assert {} == (await read(app)).shown
    assert {"0/talk#1": WORDS} == (await read(app, "kid")).shown


async def test_what_an_undo_streams_is_shown(theatre: Theatre) -> None:
    """An undo is an effect as any other."""

    async def take_back(name: str) -> None:
        await say("undo", ["sorry"])

    @outlive.effect(undo=take_back)
    async def give(name: str) -> str:
        return name

    @outlive.flow
    async def flow() -> None:
        await give("x")
        raise ValueError

    app = theatre.open()
    with pytest.raises(RunFailed):
        await theatre.outcome(await app.start(flow, id="r"))
    assert {"undo:0/give#1": ["sorry"]} == (await read(app)).shown


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
