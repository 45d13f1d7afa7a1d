"""Workers of one process on a store in memory: leases, takeover, poison, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import outlive
from outlive.errors import AppClosed, StoreFailed
from outlive.model.decide import DRIVER_ENDED, absence_counts_from
from outlive.model.events import (
    Claimed,
    EffectDoubted,
    EffectIntended,
    Event,
    Fault,
    RunStarted,
)
from outlive.model.run import fold
from outlive.testing.clock import FakeClock
from outlive.worker.heartbeat import LeaseTime
from tests.harness.theatre import QUICK, Theatre


@pytest_asyncio.fixture
async def theatre() -> AsyncIterator[Theatre]:
    made = Theatre(QUICK, in_real_time=True)
    yield made
    await made.close()


DISK_GONE = StoreFailed("the disk is gone")


@outlive.step
async def add(number: int) -> int:
    return number + 1


@outlive.flow
async def short(number: int) -> int:
    return await add(number)


@outlive.flow
async def sleepy(seconds: float) -> str:
    await outlive.sleep(seconds)
    return "awake"


# ---------------------------------------------------------------- waiting for an outcome


async def test_a_run_that_parked_here_may_end_elsewhere(theatre: Theatre) -> None:
    """Whoever started it gets its outcome, though another worker woke it."""
    here, there = theatre.open(), theatre.open()
    handle = await here.start(sleepy, 0.2, id="r")
    outcome = asyncio.ensure_future(handle.outcome(timeout=5))
    while "waiting" != await handle.status():
        await asyncio.sleep(0.01)
    (own,) = here._workers.own[asyncio.get_running_loop()]
    own._only.clear()  # it loses the race for the run

    async with there.worker([sleepy]):
        assert "awake" == await outcome
    await here.aclose()


# ---------------------------------------------------------------- the end of the keeper


async def test_the_end_of_the_keeper_fails_every_waiter(theatre: Theatre) -> None:
    """Runs, submits and starts under way are told; nobody waits for ever."""
    app = theatre.open()
    handle = await app.start(sleepy, 60, id="parked")
    theatre.doors[app].faults["commit"] = [DISK_GONE] * 10

    waiters = [
        asyncio.ensure_future(app.submit(short, 1)),
        asyncio.ensure_future(app.start(short, 1)),
        asyncio.ensure_future(handle.outcome()),
    ]
    done, pending = await asyncio.wait(waiters, timeout=5)

    assert not pending
    assert [StoreFailed] * 3 == [type(each.exception()) for each in waiters]
    assert done
    with pytest.raises(StoreFailed):
        await app.start(short, 1)


async def test_a_failed_commit_is_the_last(theatre: Theatre) -> None:
    """Nothing is written after a failure, though the store would take it again."""
    app = theatre.open()
    await (await app.start(short, 1, id="before"))
    theatre.doors[app].faults["commit"] = [DISK_GONE] * 10
    with pytest.raises(StoreFailed):
        await app.start(short, 1, id="during")
    theatre.doors[app].faults.clear()

    with pytest.raises(StoreFailed):
        await app.submit(short, 1, id="after")

    assert ["before"] == [each.head.run_id for each in (await app.find()).items]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_keeper_that_dies_by_a_surprise_fails_every_waiter(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that no store may raise ends the keeper as loudly as one that it may."""
    app = theatre.open()
    handle = await app.start(sleepy, 60, id="r")

    async def surprise(*_: object) -> None:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(theatre.store, "commit", surprise)

    for waiter in (app.start(short, 1), handle.outcome(), app.submit(short, 1)):
        with pytest.raises(StoreFailed, match="surprise"):
            await asyncio.wait_for(waiter, 5)


async def test_a_worker_that_can_not_beat_ends(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without beats there is no lease: it says so to those who wait."""
    app = theatre.open()
    handle = await app.start(sleepy, 60, id="r")

    async def fail(*_: object) -> int:
        raise StoreFailed("no beat")

    monkeypatch.setattr(theatre.store, "beat", fail)

    with pytest.raises(StoreFailed, match="no beat"):
        await asyncio.wait_for(handle.outcome(), 5)


async def test_a_worker_that_ends_by_a_surprise_tells_its_handles(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody foresaw ends the worker as loudly as a broken store."""
    app = theatre.open()
    handle = await app.start(sleepy, 60, id="r")

    async def surprise(*_: object) -> None:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(theatre.store, "claim", surprise)

    with pytest.raises(outlive.errors.OutliveError, match="surprise"):
        await asyncio.wait_for(handle.outcome(), 5)


async def test_a_closed_app_says_so(theatre: Theatre) -> None:
    """Every verb and every handle of it, at once."""
    app = theatre.open()
    handle = await app.submit(short, 1, id="r")
    await app.aclose()

    for verb in (app.start(short, 1), app.nudge("r", ""), app.find(), handle.status()):
        with pytest.raises(AppClosed):
            await asyncio.wait_for(verb, 5)


# ---------------------------------------------------------------- leases


def test_a_lease_that_lapsed_is_known_to_have_lapsed() -> None:
    """A beat after too long a silence renews the lease, but not what was held before."""
    clock = FakeClock()
    lease = LeaseTime(clock, 1.0)
    lease.renewed(clock.monotonic())
    since = lease.lapses
    assert lease.holds(since)
    clock.advance(0.9)
    lease.renewed(clock.monotonic())
    assert lease.holds(since)

    clock.advance(1.1)
    assert not lease.holds(since)
    lease.renewed(clock.monotonic())

    assert not lease.holds(since)
    assert lease.holds(lease.lapses)


def intent(step: str = "0/pay#1", not_after: int = 60_000) -> EffectIntended:
    return EffectIntended(10, step, 1, b"", b"", "key", not_after)


STARTED = RunStarted("flow", "1", b"", b"", b"", "3.11", 0, "r")


def over_at(*events: Event) -> int:
    (effect,) = fold([STARTED, Claimed(0, 1, "first", True), *events]).effects.values()
    return absence_counts_from(effect, 0)


def test_an_attempt_is_over_when_its_own_driver_is_dead() -> None:
    """The certain death of its driver ends an attempt, long before its limit."""
    assert 500 == over_at(intent(), Claimed(500, 2, "second", True))


def test_an_attempt_of_a_silent_driver_is_not_over() -> None:
    """It may be only asleep: what its successor notes, or its successor's death, says nothing."""
    silent = Claimed(500, 2, "second", False)
    doubted = EffectDoubted(
        501, "0/pay#1", 1, Fault(DRIVER_ENDED, "its driver ended"), False, False
    )

    assert 60_000 == over_at(intent(), silent)
    assert 60_000 == over_at(intent(), silent, doubted)
    assert 60_000 == over_at(intent(), silent, doubted, Claimed(900, 3, "third", True))


async def test_a_handed_over_effect_may_still_run(theatre: Theatre) -> None:
    """A worker that stops leaves its bodies running: its successor must not take them for over."""
    begun = asyncio.Event()
    release = asyncio.Event()

    @outlive.effect(check=lambda: outlive.UNKNOWN)
    async def pay() -> str:
        begun.set()
        await release.wait()
        return "paid"

    @outlive.flow
    async def paying() -> str:
        return str(await pay())

    first, second = theatre.open(), theatre.open()
    handle = await first.start(paying, id="r")
    await asyncio.wait_for(begun.wait(), 5)
    await first._workers.stop()
    async with second.worker([paying]):
        while len(claims := [e for e in await handle.read() if isinstance(e, Claimed)]) < 2:
            await asyncio.sleep(0.01)
    release.set()

    assert [True, False] == [claim.certain for claim in claims]


async def test_a_start_that_was_given_up_leaves_no_run_behind(theatre: Theatre) -> None:
    """If the caller goes away while a run is being started, somebody drives it all the same."""
    app = theatre.open()
    starting = asyncio.ensure_future(app.start(short, 1, id="r"))
    while not app._writer.keeper._logs:
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])

    handle = await app.start(short, 1, id="r")

    assert 2 == await handle.outcome(timeout=5)
