"""What the simulation found in the real code, each as small as it gets."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import AppClosed, StoreUnavailable
from outlive.journal.headers import header_of
from outlive.journal.keeper import Keeper, Loose
from outlive.model.decide import decide_resolve
from outlive.model.events import (
    AttemptFailed,
    Claimed,
    EffectDone,
    EffectDoubted,
    EffectIntended,
    EffectRaised,
    Event,
    Fault,
    MailRead,
    RunStarted,
)
from outlive.model.mail import Resolve
from outlive.model.run import OpenEffect, Run, fold
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Conflict, Head, Offer
from outlive.testing.suite.entries import entry, header
from outlive.worker.entries import claim_entry
from tests.simulation.bench import Bench

STEP = "0/pay#1"
CUT = Fault("DriverEnded", "its driver ended")
START = RunStarted("flow", "1", b"", b"", b"", "3.11", 0, "r")
INTENT = EffectIntended(5, STEP, 1, b"", b"", "key", 60_000)


def open_effect(*, over_at: int | None = None, doubt: Fault | None = CUT) -> OpenEffect:
    """An effect that an earlier driver left."""
    return OpenEffect(INTENT, 1, 60_000, 1, over_at=over_at, doubt=doubt)


@pytest.mark.parametrize("why", ["lapsed", "stopped", "late", "late by a clock that was set back"])
async def test_an_effect_whose_turn_comes_too_late_is_not_begun(why: str) -> None:
    """Between its launch and its body's first line a process may be stopped for any time."""
    begun: list[str] = []

    @outlive.effect(timeout="3s")
    async def pay() -> None:
        begun.append("paid")

    bench = Bench(pay)
    bench.start()
    if why == "lapsed":
        bench.lapsed = True
    elif why == "stopped":
        bench.stopped = True
    else:
        bench.clock.advance(4)
        if "set back" in why:
            bench.clock.set_wall(bench.started_at)
    await bench.turn()

    assert [] == begun
    assert "EffectDone" not in bench.kinds()


async def test_an_effect_in_time_is_begun() -> None:
    """The last look lets pass what nobody else can be doing."""

    @outlive.effect(timeout="3s")
    async def pay() -> str:
        return "paid"

    bench = Bench(pay)
    bench.start()
    await bench.turn()

    assert ["EffectIntended", "EffectDone"] == bench.kinds()


async def absent() -> Any:
    """The receiver knows nothing of it, so far."""
    return outlive.NOT_HAPPENED


async def unknown() -> Any:
    """The receiver can't tell."""
    return outlive.UNKNOWN


@outlive.effect(check=absent, timeout="3s", settle_after="2s")
async def pay_absent() -> None:
    """Never runs here."""


@outlive.effect(check=unknown, timeout="3s", settle_after="2s")
async def pay_unknown() -> None:
    """Never runs here."""


@pytest.mark.parametrize(("over_at", "seconds"), [(10, 2), (None, 5)])
async def test_an_absence_counts_by_time_that_was_seen_to_pass(
    over_at: int | None, seconds: int
) -> None:
    """A wall clock that jumps an hour forward does not give the receiver its time."""
    bench = Bench(pay_absent, open_effect(over_at=over_at))
    bench.start()
    bench.clock.set_wall(bench.clock.now_ms() + 3_600_000)
    await bench.turn()
    assert "AttemptFailed" not in bench.kinds()
    assert seconds == pytest.approx(bench.timers[-1].seconds)

    bench.clock.advance(seconds)
    bench.timers[-1].fire()
    await bench.turn()

    assert "AttemptFailed" in bench.kinds()


async def test_an_absence_counts_though_the_clock_was_set_back() -> None:
    """A wall clock that was set back an hour makes nobody wait for an hour."""
    bench = Bench(pay_absent, open_effect(over_at=10))
    bench.start()
    bench.clock.set_wall(bench.clock.now_ms() - 3_600_000)
    await bench.turn()

    bench.clock.advance(2)
    bench.timers[-1].fire()
    await bench.turn()

    assert "AttemptFailed" in bench.kinds()


async def test_a_check_that_never_knows_ends_with_a_human() -> None:
    """A run does not leave memory between two checks, or they would never be counted up."""
    bench = Bench(pay_unknown, open_effect(over_at=10))
    bench.start()
    await bench.turn()
    for _ in range(20):
        assert "busy" == bench.op.wait
        bench.clock.advance(bench.timers[-1].seconds)
        bench.timers[-1].fire()
        await bench.turn()
        if bench.op.wait is None:
            break

    assert isinstance(bench.events[-1], EffectDoubted)
    assert bench.events[-1].asks


def test_a_repeat_does_not_undo_what_an_earlier_attempt_did() -> None:
    """Where the receiver honours the key, a later attempt's refusal says nothing of the first."""
    doubt = EffectDoubted(6, STEP, 1, CUT, asks=False, over=True)
    repeated = AttemptFailed(7, STEP, 1, CUT, 0, "driver")
    checked = AttemptFailed(7, STEP, 1, CUT, 0, "check")

    assert _effect(doubt, repeated, INTENT).maybe
    assert not _effect(doubt, checked, INTENT).maybe
    assert not _effect(repeated, INTENT).maybe  # it was put off, and never begun


def _run(*events: Event) -> Run:
    return fold([START, Claimed(0, 1, "w", True), INTENT, *events])


def _effect(*events: Event) -> OpenEffect:
    return _run(*events).effects[STEP]


async def test_a_refusal_after_a_repeat_is_told_as_unknown() -> None:
    """The flow's record never says "it did not happen" of what may have."""

    @outlive.effect(doubt="retry", timeout="3s")
    async def pay() -> None:
        raise outlive.NotHappened("not this time")

    bench = Bench(pay, open_effect(over_at=10))
    bench.start()
    bench.timers[-1].fire()
    await bench.turn()

    end = bench.events[-1]
    assert isinstance(end, EffectRaised)
    assert end.happened is None


async def test_a_cancelled_effect_that_was_cut_off_is_told_as_unknown() -> None:
    """Where the receiver honours the key nobody asks it, so nobody knows."""

    @outlive.effect(doubt="retry", timeout="3s")
    async def pay() -> None:
        """Never runs here."""

    bench = Bench(pay, open_effect(over_at=10))
    bench.op.orphan = True
    bench.start()

    end = bench.events[-1]
    assert isinstance(end, EffectRaised)
    assert end.happened is None


def test_a_doubt_is_shown_while_other_branches_go_on() -> None:
    """Who looks for runs in doubt finds one that is still driven, until a human has answered."""
    asks = EffectDoubted(6, STEP, 1, CUT, asks=True, over=True)

    assert "running" == header_of(_run()).status
    assert "in_doubt" == header_of(_run(asks)).status
    assert "running" == header_of(_run(asks, EffectDone(7, STEP, 1, b"", "human"))).status
    retried = AttemptFailed(7, STEP, 1, CUT, 0, "human")
    assert "running" == header_of(_run(asks, retried)).status


def test_a_doubt_is_shown_through_a_takeover() -> None:
    """A claim knows nothing of doubts, and so must not hide one."""
    head = Head(run_id="r", seq=4, epoch=1, link=bytes(16))
    shown = header(status="in_doubt")

    claimed, _ = claim_entry(Offer(head=head, header=shown, certain=True), "w", 10)

    assert claimed.header is not None
    assert "in_doubt" == claimed.header.status


def test_a_word_on_an_attempt_that_is_over_is_not_taken_for_the_next() -> None:
    """Attempts that were cut off keep their number; their intents tell them apart."""
    doubt = EffectDoubted(6, STEP, 1, CUT, asks=False, over=True)
    first = _effect(doubt)
    second = _effect(doubt, AttemptFailed(7, STEP, 1, CUT, 0, "check"), INTENT, doubt)
    letter = Resolve(STEP, 1, "not_happened", intent=first.seq)

    assert isinstance(decide_resolve(second, letter, "mail", at=9, now=100_000), MailRead)
    assert isinstance(decide_resolve(first, letter, "mail", at=9, now=100_000), AttemptFailed)


async def test_a_word_that_comes_with_the_doubt_settles_it() -> None:
    """Recording a doubt may let waiting mail in: what that settled is not settled again."""

    @outlive.effect(timeout="3s")
    async def pay() -> None:
        """Never runs here."""

    bench = Bench(pay, open_effect(over_at=10, doubt=None))
    letter = Resolve(STEP, 1, "fail")

    def record(event: Event, mail_id: str | None = None) -> None:
        bench.events.append(event)
        if isinstance(event, EffectDoubted):
            bench.runner.resolve(bench.op, letter, "mail")

    bench.record = record  # type: ignore[method-assign]
    bench.start()

    assert ["EffectDoubted", "EffectRaised"] == bench.kinds()


# ---------------------------------------------------------------- keys


@outlive.effect(key="order", timeout="3s")
async def pay_keyed() -> None:
    """Never runs here."""


class Holder:
    """Another run's effect holds the key; the store can't always be read."""

    def __init__(self) -> None:
        self.is_down = True

    async def holder_of(self, journal: str) -> Any:
        if self.is_down:
            raise StoreUnavailable("not now")
        return "other", "0/pay#1", b"other arguments"


async def test_a_holder_that_cannot_be_read_is_looked_at_again() -> None:
    """An outage while a key's holder is asked for does not leave the effect waiting for ever."""
    bench, holder = Bench(pay_keyed), Holder()
    bench.holder_of = holder.holder_of  # type: ignore[attr-defined]
    bench.start()
    bench.claim.answer(Conflict(seq=1, epoch=0))
    await bench.turn()
    assert isinstance(bench.op.wait, int)

    holder.is_down = False
    bench.timers[-1].fire()
    await bench.turn()

    assert "EffectRaised" == bench.kinds()[-1]


async def test_a_word_on_an_effect_that_waits_for_its_key_changes_nothing() -> None:
    """It was never attempted, so there is nothing to tell about it."""
    bench = Bench(pay_keyed)
    bench.start()

    bench.runner.resolve(bench.op, Resolve(STEP, 1, "not_happened"), "mail")

    assert isinstance(bench.events[-1], MailRead)


# ---------------------------------------------------------------- order, sides, ends


async def test_as_completed_begins_its_branches_in_the_callers_order() -> None:
    """asyncio makes its tasks from a set: what they do before their first step must not show it."""
    settings = Settings(lease_seconds=5.0, poll_seconds=0.01, idle_seconds=0.0)

    @outlive.step
    async def say(number: int, place: int) -> int:
        return number

    @outlive.flow
    async def race() -> list[int]:
        order: list[int] = []

        async def branch(number: int) -> int:
            order.append(number)
            return await say(number, len(order))

        for coming in asyncio.as_completed([branch(number) for number in range(5)]):
            await coming
        return order

    async with App(MemoryStore(), settings=settings) as app:
        for number in range(20):
            handle = await app.start(race, id=f"r{number}")
            assert [0, 1, 2, 3, 4] == await handle.outcome()


class Side:
    """A side whose callbacks may never be called."""

    def __init__(self, *, hears: bool) -> None:
        self._hears = hears

    def call_soon(self, callback: Any, *args: Any) -> None:
        if self._hears:
            callback(*args)

    call_threadsafe = call_soon


def test_a_side_that_is_gone_keeps_nobody_from_ringing() -> None:
    """A new side may get the address of one that was closed before its turn ended."""
    rung: list[str] = []
    keeper = Keeper(MemoryStore(), lambda: rung.append("rung"))
    for _ in range(50):
        keeper.submit(Loose(entry("gone", 0), Side(hears=False), lambda answer: None))

    for _ in range(50):
        keeper.submit(Loose(entry("here", 0), Side(hears=True), lambda answer: None))

    assert 50 == len(rung)


class Slow(MemoryStore):
    """Commits when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.allowed = threading.Event(), threading.Event()

    async def commit(self, batch: Any, *, wait: bool = True) -> Any:
        self.asked.set()
        self.allowed.wait(20)
        return await super().commit(batch, wait=wait)


async def test_a_worker_that_stopped_drives_nothing_new() -> None:
    """A run whose start was under way when its worker stopped is left to others."""

    @outlive.flow
    async def story() -> None:
        raise AssertionError("driven by a worker that has stopped")

    store = Slow()
    async with App(store, settings=Settings(poll_seconds=0.01)) as app:
        starting = asyncio.ensure_future(app.start(story, id="r"))
        await asyncio.to_thread(store.asked.wait, 20)
        stopping = asyncio.ensure_future(app._workers.stop())
        await asyncio.sleep(0)
        store.allowed.set()
        await stopping

        with pytest.raises(AppClosed):
            await starting
