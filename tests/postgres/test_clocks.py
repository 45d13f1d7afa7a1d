"""Workers whose clocks are wrong: everything is timed by the server's (R23)."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path

import pytest

import outlive
from outlive.app.app import App
from outlive.engine.definitions import Flow
from outlive.model.events import Claimed, TimerFired
from outlive.ports import Ports, RemoteClock
from outlive.settings import Settings
from outlive.stores.postgres.store import PostgresStore
from outlive.testing.suite.entries import HandClock
from tests.conftest import Figure
from tests.harness.clocks import ShiftedClock
from tests.harness.processes import until
from tests.processes import cast
from tests.processes.stage import Stage

HOURS, SECONDS = 10_800_000, 4_000
SKEWS = (-HOURS, HOURS, -SECONDS, SECONDS)
#: How late a run may wake.
LATE_SECONDS_MAX = 1.0
#: Its start, and a claim for each of the two times at which it wakes.
EPOCHS_MAX = 3
QUICK = Settings(lease_seconds=3.0, poll_seconds=0.25, idle_seconds=0.2)


@outlive.step
async def instant() -> float:
    """The real time, whatever clocks say."""
    return time.time()


@outlive.flow(deadline="1h")
async def sleeper(seconds: float) -> list[float]:
    """When it fell asleep, and when it woke, twice."""
    times = [await instant()]
    for _ in range(2):
        await outlive.sleep(seconds)
        times.append(await instant())
    return times


def work(folder: Path, skew_ms: int, url: str) -> None:
    """A worker on a machine whose clock is wrong, until it is killed."""
    cast.me = cast.Process(folder)
    ports = Ports(clock=ShiftedClock(skew_ms))

    async def main() -> None:
        store = PostgresStore(url, ports=ports, lease_seconds=QUICK.lease_seconds)
        flows: list[Flow] = [sleeper]
        async with App(store, ports=ports, settings=QUICK) as app, app.worker(flows) as worker:
            (folder / f"ready-{os.getpid()}").touch()
            await worker.wait()

    asyncio.run(main())


@pytest.mark.alone("postgres")
@pytest.mark.timeout(300)
def test_every_sleep_takes_its_time(stage: Stage, figure: Figure, full: bool) -> None:
    """Four workers, three hours and four seconds ahead and behind, and runs that sleep."""
    count, seconds = (200, 8.0) if full else (24, 3.0)
    ids = [f"r{number}" for number in range(count)]

    async def submit() -> None:
        async with stage.open_app() as app:
            await asyncio.gather(*(app.submit(sleeper, seconds, id=each) for each in ids))

    for skew in SKEWS:
        stage.spawn_worker(work, skew, stage.url)
    asyncio.run(submit())
    until(
        lambda: all(stage.status(each) in ("completed", "failed") for each in ids),
        "all to wake",
        seconds=120,
    )

    late, epochs = [], []
    for run_id in ids:
        events = stage.events(run_id)
        assert "completed" == stage.status(run_id), "its deadline is an hour away"
        began, *woke = sleeper.value_codec.decode(events[-1].value)  # type: ignore[attr-defined]
        late += [abs(woke[0] - began - seconds), abs(woke[1] - woke[0] - seconds)]
        epochs.append(sum(isinstance(event, Claimed) for event in events))
        fired = [event for event in events if isinstance(event, TimerFired)]
        assert 2 == len(fired)
    figure("postgresql: clocks 3 h and 4 s off: sleeps wrong by, worst ms", round(1000 * max(late)))
    figure("postgresql: clocks 3 h and 4 s off: epochs per run, most", max(epochs))
    assert max(late) < LATE_SECONDS_MAX
    assert max(epochs) <= EPOCHS_MAX


@pytest.mark.parametrize("skew_ms", [-HOURS, HOURS])
async def test_now_is_the_servers(url: str, skew_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    """In runs, for those who submit, and in what is said of the store; said once when far off."""
    caplog.set_level(logging.WARNING, "outlive")

    @outlive.flow
    async def asks() -> float:
        return outlive.now().timestamp()

    ports = Ports(clock=ShiftedClock(skew_ms))
    store = PostgresStore(url, ports=ports)
    async with App(store, ports=ports) as app:
        told = await (await app.start(asks, id="r")).outcome()
        health = await app.health()
        header = (await app.read("r")).header

    assert abs(told - time.time()) < LATE_SECONDS_MAX
    assert abs(header.started_at / 1000 - time.time()) < 10
    way = "ahead of" if skew_ms < 0 else "behind"
    assert f"s {way} this machine's" in health.facts["clock"]
    (said,) = [each.getMessage() for each in caplog.records if "clock" in each.getMessage()]
    assert f"{way} this machine's" in said


async def test_a_clock_that_is_right_is_not_talked_about(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(url)
    await store.beat("w")
    assert "within 1 s of this machine's" == (await store.health()).facts["clock"]
    assert [] == caplog.records
    await store.close()


def test_a_slow_answer_moves_nothing() -> None:
    """The time lies between question and answer; between two looks our own monotonic time goes."""
    own = HandClock()
    clock, start = RemoteClock(own, "it"), own.now_ms() + HOURS
    asked = own.monotonic()
    own.advance(0.010)
    clock.notice(start + 5, asked)  # exact to 10 ms
    assert abs(clock.now_ms() - (start + 10)) <= 5

    asked, known = own.monotonic(), clock.now_ms()
    own.advance(20)
    clock.notice(known + 15_000, asked)  # it was said 15 s after the question, or 5 s before
    assert known + 20_000 == clock.now_ms()

    clock.notice(clock.now_ms() - 60_000, own.monotonic())  # its clock was set back
    assert abs(clock.now_ms() - (known - 40_000)) <= 1


def test_an_answer_that_was_overtaken_says_nothing() -> None:
    """The server's clock was set between two questions; the first answer comes last."""
    own = HandClock()
    clock, start = RemoteClock(own, "it"), own.now_ms()
    first = own.monotonic()
    own.advance(0.010)
    clock.notice(start + HOURS, own.monotonic())
    clock.notice(start, first)
    assert abs(clock.now_ms() - (start + HOURS)) <= 1


def test_before_the_first_look() -> None:
    own = HandClock()
    assert own.now_ms() == RemoteClock(own, "it").now_ms()
