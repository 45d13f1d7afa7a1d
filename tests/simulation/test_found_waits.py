"""What the simulation found in waits, ends, children and retries, each as small as it gets."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.engine.mailbox import posted_by
from outlive.errors import RunFailed
from outlive.journal.headers import key_header
from outlive.journal.reader import read_events
from outlive.journal.record import LINK_START, pack
from outlive.model.events import (
    ChildEnded,
    ChildIntended,
    ChildSpawned,
    Claimed,
    DeadlinePassed,
    Event,
    Fault,
    KeyHeld,
    RunRetried,
    RunStarted,
    StepDone,
    encode_events,
)
from outlive.model.events import (
    RunFailed as RunHasFailed,
)
from outlive.model.ids import digest, key_journal
from outlive.model.replay import past_of
from outlive.model.run import fold
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Entry, Mail
from outlive.testing.clock import FakeClock

#: Which answer comes first is chance; several tries meet both.
ORDERS = ("7", "8", "9", "10", "11", "12")
SETTINGS = Settings(lease_seconds=900.0, poll_seconds=0.01, idle_seconds=0.0)


async def test_a_keyed_effect_that_a_human_sent_back_is_begun_once() -> None:
    """The answers to its key and to its new intent come together, and one of them begins it."""
    begun: list[str] = []

    @outlive.effect(key="order:{order}")
    async def pay(order: str) -> str:
        begun.append(order)
        if begun.count(order) == 1:
            raise OSError("the line went dead")
        await asyncio.sleep(0.01)
        return "paid"

    @outlive.flow
    async def shop(order: str) -> str:
        return await pay(order)  # type: ignore[no-any-return]

    async with App(MemoryStore(), settings=SETTINGS) as app, asyncio.timeout(20):
        for order in ORDERS:
            handle = await app.start(shop, order, id=order)
            while await handle.status() != "in_doubt":
                await asyncio.sleep(0.001)
            await app.resolve(order, "0/pay#1", "not_happened")

            assert "paid" == await handle.outcome()
    assert dict.fromkeys(ORDERS, 2) == Counter(begun)


async def test_a_step_that_ends_with_the_deadline_does_not_stop_its_run() -> None:
    """Its end was on its way when the flow was cut: it is not recorded, and the run fails clean."""
    clock = FakeClock()
    store = MemoryStore(ports=Ports(clock=clock), lease_seconds=900.0)

    async with App(store, ports=Ports(clock=clock), settings=SETTINGS) as app:

        @outlive.flow
        async def endless() -> None:
            await outlive.wait_signal("never")

        @outlive.step
        async def think() -> str:
            while not any(isinstance(event, ChildSpawned) for event in await events_of(store)):
                await asyncio.sleep(0.001)
            clock.advance(61)
            # Before anybody hears that this step is done; the child must be told first.
            deadline_of(app, "r")._due()
            return "thought"

        @outlive.flow(deadline="1m")
        async def late() -> None:
            await asyncio.gather(outlive.call(endless), think())

        with pytest.raises(RunFailed, match="deadline"):
            await (await app.start(late, id="r")).outcome("5s")

    assert not any(isinstance(event, StepDone) for event in await events_of(store))


async def events_of(store: MemoryStore) -> list[Event]:
    """All events of the run."""
    reading = await store.read("r")
    assert reading is not None
    return read_events(reading)


def deadline_of(app: App, run_id: str) -> Any:
    """The deadline of a run in memory."""
    for workers in app._workers.own.values():
        for worker in workers:
            return worker._drives[run_id].deadline
    raise AssertionError("nobody drives it")


async def test_a_key_whose_holder_ended_without_using_it_keeps_nobody_waiting() -> None:
    """A driver that was fenced, or died, may claim a key for an effect that never comes."""

    @outlive.effect(key="order:7")
    async def pay() -> None:
        raise AssertionError("never runs here")

    @outlive.flow
    async def shop(pays: bool) -> str:
        try:
            if pays:
                await pay()
        except Exception as error:
            return str(error)
        return "nothing"

    store = MemoryStore()
    async with App(store, settings=SETTINGS) as app, asyncio.timeout(20):
        await (await app.start(shop, False, id="holder")).outcome()
        held = KeyHeld("holder", "0/pay#1", digest(pay.definition.encode_args({})))
        journal = key_journal("order:7")
        body = encode_events([held])
        record, link = pack(journal, prev=LINK_START, epoch=0, seq=1, kinds=1, body=body)
        claim = Entry(run_id=journal, after=0, last=1, epoch=0, record=record, link=link,
                      header=key_header())  # fmt: skip
        await store.commit([claim])

        told = await (await app.start(shop, True, id="r")).outcome()

    assert "run holder held this key and ended without using it" in told


async def test_a_worker_that_has_left_begins_nothing() -> None:
    """A run that was being loaded when its worker let go of its leases is not driven there."""

    @outlive.flow
    async def waiting() -> None:
        await outlive.wait_signal("never")

    store = MemoryStore()
    async with App(store, settings=SETTINGS) as app:
        await app.submit(waiting, id="r")
        async with app.worker([]) as worker:
            worker.learn(waiting)
        events = await events_of(store)

        worker._drive(worker._loading.log_for("r"), fold(events), events)

        assert frozenset() == worker.driving


START = RunStarted("flow", "1", b"", b"", b"", "3.11", 0, "r")
INTENDED = ChildIntended(5, "0/call:f#1", "r.c", "f", b"", b"", True)
STARTED = ChildSpawned(6, "0/call:f#1", "r.c")
BROKE = Fault("TimedOut", "the run's deadline passed")
FAILED: tuple[Event, ...] = (
    START,
    Claimed(0, 1, "w", True),
    INTENDED,
    STARTED,
    DeadlinePassed(7),
    RunHasFailed(8, BROKE),
    RunRetried(9, 5, "ann"),
)


def test_another_try_asks_anew_for_children_that_ended_unheard() -> None:
    """Their news were refused while the run was over, so that it would wait for ever."""
    past = [event for _, event in past_of(FAILED, 1).events]

    assert INTENDED in past
    assert STARTED not in past
    assert set() == fold(FAILED).children_started


def test_a_child_that_was_spawned_stays_so() -> None:
    """Nobody waits for its end, and its start is what the flow was told."""
    alone = (*FAILED[:2], ChildIntended(5, "0/spawn:f#1", "r.c", "f", b"", b"", False))
    spawned = ChildSpawned(6, "0/spawn:f#1", "r.c")

    past = [event for _, event in past_of((*alone, spawned, *FAILED[4:]), 1).events]

    assert spawned in past


def test_a_child_may_be_started_by_another_try() -> None:
    """Its first try had called it off before it began; the fold takes that as it comes."""
    called_off = ChildEnded(6, "0/call:f#1", "r.c", "cancelled", b"", BROKE)
    events = (*FAILED[:3], called_off, RunHasFailed(8, BROKE), RunRetried(9, 4, "ann"))

    assert "running" == fold((*events, Claimed(10, 2, "w", True), STARTED)).status


def test_signals_keep_their_order_when_the_stores_clock_is_set_back() -> None:
    """A timer takes what was posted before it, and all that came before that."""
    late, early = (Mail(mail_id=name, body=b"", posted_at=at) for name, at in [("a", 9), ("b", 5)])

    assert (late, early) == tuple(posted_by([late, early], 5))
    assert [] == list(posted_by([late], 5))
