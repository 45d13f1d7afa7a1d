"""The simulation's own parts do what they pretend to: time, pauses, deaths, lines, banks."""

from __future__ import annotations

import asyncio

import pytest

from outlive.errors import StoreUnavailable
from outlive.journal.lane import run_immediate
from outlive.model.events import StepDone
from outlive.stores.memory import MemoryStore
from outlive.testing.simulation.faults import EVENTS, FAULTS, PAIRS, Marksman, aimed_at, make_plan
from outlive.testing.simulation.flows import tell_story
from outlive.testing.simulation.judge import replay
from outlive.testing.simulation.loop import Nature, OutOfTime, SimClock, Timeline, new_loop
from outlive.testing.simulation.simulation import Simulation
from outlive.testing.simulation.store import Link, SimStore
from outlive.testing.simulation.witness import Witness, kinds_in
from outlive.testing.suite.entries import held

EVER = {"seconds_max": 1e6, "handles_max": 10_000}


def _run_until(timeline: Timeline, future: asyncio.Future[object]) -> None:
    timeline.run(future.done, seconds_max=1e6, handles_max=10_000)


def test_time_passes_at_once() -> None:
    """An hour of sleeping takes no time, and the clock says that it was an hour."""
    timeline = Timeline()
    loop = new_loop(timeline, "one")

    _run_until(timeline, loop.create_task(asyncio.sleep(3600)))

    assert 3600 == timeline.now


def test_nothing_to_do_is_an_error() -> None:
    """A simulation in which nobody will ever do anything again says so."""
    timeline = Timeline()

    with pytest.raises(OutOfTime):
        _run_until(timeline, new_loop(timeline, "one").create_future())


def test_a_paused_loop_catches_up_in_order() -> None:
    """What falls due during a pause comes afterwards, in its order; other loops go on."""
    timeline = Timeline()
    paused, other = new_loop(timeline, "paused"), new_loop(timeline, "other")
    seen: list[tuple[str, float]] = []
    for when in (1, 2, 9):
        paused.call_later(when, lambda: seen.append(("paused", timeline.now)))
    other.call_later(3, lambda: seen.append(("other", timeline.now)))
    paused.pause()
    other.call_later(5, paused.resume)

    timeline.run(lambda: len(seen) == 4, seconds_max=100, handles_max=100)

    assert [("other", 3), ("paused", 5), ("paused", 5), ("paused", 9)] == seen


def test_a_dead_loop_does_nothing() -> None:
    """What a dead process had to do is dropped, and its frames are closed."""
    timeline = Timeline()
    dead, other = new_loop(timeline, "dead"), new_loop(timeline, "other")
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            ended.append("worked")
        finally:
            ended.append("closed")

    dead.create_task(work())
    other.call_later(0.5, lambda: setattr(dead, "is_dead", True))
    other.call_later(0.6, dead.bury)
    _run_until(timeline, other.create_task(asyncio.sleep(5)))

    assert ["closed"] == ended


def _refuse(fault: str) -> None:
    raise AssertionError(f"nobody aimed {fault}")


@pytest.fixture
def nature() -> Nature:
    return Nature(1)


@pytest.fixture
def line(nature: Nature) -> Link:
    return Link(nature)


@pytest.fixture
def store(nature: Nature, line: Link) -> SimStore:
    plan = make_plan(nature, ["r"])
    marksman = Marksman(plan)
    marksman.put_down()
    store = SimStore(MemoryStore(), line, nature, Witness(), marksman)
    store.loop, store.strike = new_loop(nature.timeline, "owner"), _refuse
    return store


def test_a_lost_reply_is_followed_by_a_repeat(nature: Nature, line: Link, store: SimStore) -> None:
    """The commit is applied, nobody hears so, and the same batch is sent again and done."""
    line.loses_next_reply = True
    work = store.loop.create_task(store.commit([_first()]))

    _run_until(nature.timeline, work)

    assert [None] == list(work.result())
    assert 2 == store._witness.commits
    assert nature.now > 0.5


def test_an_outage_is_waited_for_or_told(nature: Nature, line: Link, store: SimStore) -> None:
    """While the store is down a call either waits for it or is refused."""
    line.go_down()
    line._refuses = False
    waiting = store.loop.create_task(store.commit([_first()]))
    until = nature.now + line.wait()
    _run_until(nature.timeline, waiting)
    assert nature.now >= until

    line.go_down()
    line._refuses = True
    refused = store.loop.create_task(store.read("r"))
    _run_until(nature.timeline, refused)
    assert isinstance(refused.exception(), StoreUnavailable)


def _first():  # type: ignore[no-untyped-def]
    """An entry whose record holds an event, as the witness wants to read it."""
    from outlive.journal.record import LINK_START, pack
    from outlive.model.events import encode_events

    body = encode_events([StepDone(1, "0/s#1", 1, b"", b"", b"")])
    record, link = pack("r", prev=LINK_START, epoch=1, seq=1, kinds=4, body=body)
    return held("r", "w", record=record, link=link)


def test_the_witness_reads_kinds() -> None:
    """What a batch carries is known by its events."""
    assert {"StepDone"} == kinds_in([_first()])


def test_clocks_jump_apart_and_together(nature: Nature) -> None:
    """One clock may be wrong, or all of them; monotonic time is everybody's."""
    mine, yours = SimClock(nature), SimClock(nature)
    before = mine.now_ms()

    mine.offset_ms = 5
    nature.wall_ms = 100

    assert before + 105 == mine.now_ms()
    assert before + 100 == yours.now_ms()
    assert mine.monotonic() == yours.monotonic()


def test_seeds_are_aimed_at_every_pair() -> None:
    """One seed after the other, every kind of event is the target of every kind of fault."""
    assert len(EVENTS) * len(FAULTS) == len(PAIRS)
    assert set(PAIRS) == {aimed_at(seed) for seed in range(len(PAIRS))}


def test_a_replay_that_differs_is_noticed() -> None:
    """A run whose journal does not lead to its end is told by the judge."""
    done = Simulation(3)
    assert () == done.run().broken
    run_id, events = _longest(done)
    assert [] == list(replay(done.nature, run_id, events))

    outcomes = [event for event in events if isinstance(event, StepDone)]
    without = [event for event in events if event is not outcomes[-1]]

    assert [] != list(replay(done.nature, run_id, without))


def _longest(done: Simulation):  # type: ignore[no-untyped-def]
    from outlive.journal.codec.restore import read_whole
    from outlive.journal.reader import read_events

    journals = {}
    for client in done.clients:
        reading = run_immediate(read_whole(done.disk, client.run_id))
        assert reading is not None
        journals[client.run_id] = read_events(reading)
    return max(journals.items(), key=lambda item: _steps(item[1]))


def _steps(events):  # type: ignore[no-untyped-def]
    return sum(isinstance(event, StepDone) for event in events)


def test_the_simulated_flow_is_an_ordinary_one() -> None:
    """It is registered by name and takes its program as an argument."""
    assert "story" == tell_story.name
