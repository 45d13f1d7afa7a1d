"""Streams: chunks in order, each once; one reset per new attempt; nothing written on replay."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import outlive
from outlive.errors import RunFailed
from outlive.model.events import Event, StepDone, Streamed, StreamReset
from outlive.stores.memory import MemoryStore
from tests.engine.speech import (
    FLOW,
    MIXED,
    WORDS,
    begun,
    breaks,
    mixed,
    read,
    say,
    seen_in,
    talk,
    talking,
)
from tests.harness.readers import Screen
from tests.harness.theatre import Theatre
from tests.order.journals import drive, drive_on


@pytest.fixture(autouse=True)
def _fresh() -> None:
    begun.clear()
    breaks.clear()


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
    monkeypatch.setattr("tests.engine.speech.PAUSE", 0.0)
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
