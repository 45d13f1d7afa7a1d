"""The engine on PostgreSQL: the same flows by another URL, over kills and pauses of processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

import outlive
from outlive.settings import Settings
from tests.conftest import Figure, Stretch
from tests.harness.postgres_server import PostgresServer
from tests.harness.processes import pid_of, until
from tests.harness.programs import run_python
from tests.postgres.proxy import Proxy
from tests.processes import players
from tests.processes.stage import Stage, submit
from tests.processes.test_takeover import let_go, wait_for_takeover

#: A lease of a second, and in full that of the defaults.
SETTINGS = [
    pytest.param(players.QUICK, id="1 s"),
    pytest.param(Settings(), id="default", marks=pytest.mark.full),
]
#: P5, beyond the lease.
TAKEOVER_SECONDS_MAX = 2.0


@outlive.step
async def double(number: int) -> int:
    return 2 * number


@outlive.effect(key="pay:{order}")
async def pay(order: str, cents: int) -> str:
    return f"{order}: {cents}"


@outlive.flow
async def ordering(order: str) -> list[str]:
    """A step, a signal that it waits for, an effect with a key of its own, a nap."""
    cents = await double(21)
    word = await outlive.wait_signal("word", str)
    paid = await pay(order, cents)
    await outlive.sleep(0.01)
    return [word, paid]


async def test_a_flow_with_everything(url: str) -> None:
    """Steps, effects, keys, signals, timers; and the same again is the run that there is."""
    async with outlive.open(url) as app:
        handle = await app.start(ordering, "7", id="order")
        await handle.signal("word", "go")
        outcome = await handle.outcome()
        again = await (await app.start(ordering, "7", id="order")).outcome()

    assert ["go", "7: 42"] == outcome == again


async def test_a_signal_reaches_a_run_elsewhere_without_a_poll(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store wakes the worker of another app: it would look again only after a minute."""
    monkeypatch.setenv("OUTLIVE_POLL_SECONDS", "60")
    async with (
        outlive.open(url) as ours,
        outlive.open(url, drive=False) as theirs,
        ours.worker([ordering]),
    ):
        handle = await theirs.submit(ordering, "8", id="order")
        await handle.signal("word", "wake up")
        await asyncio.wait_for(completed(theirs, "order"), 30)


async def completed(app: outlive.App, run_id: str) -> None:
    while (await app.read(run_id)).header.status != "completed":
        await asyncio.sleep(0.02)


def test_the_command_line_by_an_environment_variable(url: str) -> None:
    """``OUTLIVE_STORE`` is all that changes."""
    outlive.run(ordering_at_once, "9", id="cli", store=url)

    for words in (["runs"], ["show", "cli"], ["doctor"]):
        done = run_python("-m", "outlive", *words, OUTLIVE_STORE=url)
        assert 0 == done.returncode, done.stdout + done.stderr
        assert "doctor" in words or "cli" in done.stdout


@outlive.flow
async def ordering_at_once(order: str) -> str:
    return await pay(order, 1)


@pytest.mark.alone("postgres")
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_killed_workers_runs_are_taken_over_after_the_lease(
    stage: Stage, figure: Figure, stretch: Stretch, settings: Settings
) -> None:
    """By another process, on whatever machine: within the lease and two seconds."""
    lease = settings.lease_seconds
    worker = stage.spawn_worker(players.work, ["ticking"], settings)
    run_ids = submit(stage, "ticking", 10)
    until(lambda: all(len(stage.claims(run_id)) == 1 for run_id in run_ids), "the worker to claim")
    stage.spawn_worker(players.work, ["ticking"], settings)

    killed_at = time.time()
    os.kill(pid_of(worker), signal.SIGKILL)
    times = wait_for_takeover(stage, run_ids, killed_at)

    let_go(stage, run_ids)
    figure(
        f"postgresql: takeover after a kill, worst, ms beyond a lease of {lease:g} s",
        round(1000 * (max(times) - lease)),
    )
    assert max(times) < lease + TAKEOVER_SECONDS_MAX * stretch()
    assert [] == stage.audit()


CHARGED: list[str] = []


@outlive.effect
async def charge(number: int) -> int:
    CHARGED.append(outlive.key())
    return number


@outlive.flow
async def charging(count: int) -> int:
    """One effect after the other."""
    return sum([await charge(number) for number in range(count)])


@pytest.mark.alone("postgres")
async def test_runs_go_on_after_a_crash_of_the_server(
    own_postgres: PostgresServer, figure: Figure, stretch: Stretch
) -> None:
    """The server is ended as by a power cut in mid-run: nothing is lost, nothing is done twice."""
    CHARGED.clear()
    away = []
    async with outlive.open(own_postgres.url()) as app:
        handles = [await app.start(charging, 200) for _ in range(10)]
        for crash in range(1, 4):
            while len(CHARGED) < 300 * crash:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(own_postgres.crash)
            own_postgres.start()
            before, began = len(CHARGED), time.monotonic()
            while len(CHARGED) == before:
                await asyncio.sleep(0.001)
            away.append(time.monotonic() - began)
        outcomes = [await handle.outcome() for handle in handles]

    figure("postgresql: back at work after a crash, worst ms", round(1000 * max(away)))
    assert [sum(range(200))] * 10 == outcomes
    assert 2_000 == len(CHARGED) == len(set(CHARGED))
    assert max(away) < 2 * stretch()


@outlive.flow
async def paying_on(count: int) -> int:
    return sum([await charge(number) for number in range(count)])


@pytest.mark.alone("postgres")
async def test_a_server_that_does_not_answer_blocks_no_loop(
    postgres: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch, stretch: Stretch
) -> None:
    """A single run, whose commits were quick so far: only it waits, and then it goes on."""
    CHARGED.clear()
    monkeypatch.setattr("outlive.journal.lane.SLOW_SECONDS", 60.0)
    with Proxy(postgres.port) as proxy:
        behind = url.replace(f":{postgres.port}/", f":{proxy.port}/")
        async with outlive.open(f"{behind}&limit=1") as app:
            handle = await app.start(paying_on, 400)
            while len(CHARGED) < 100:
                await asyncio.sleep(0.001)
            proxy.mute()
            longest, since = 0.0, time.monotonic()
            for _ in range(100):
                await asyncio.sleep(0.01)
                longest, since = max(longest, time.monotonic() - since), time.monotonic()
            proxy.mend()
            assert sum(range(400)) == await handle.outcome()

    assert longest < 0.5 * stretch()
    assert 400 == len(set(CHARGED))


def test_a_server_that_is_gone_is_one_line(postgres: PostgresServer) -> None:
    """And exit code 3: a store's fault."""
    done = run_python("-m", "outlive", "runs", "--store", "postgresql://127.0.0.1:1/none")

    assert 3 == done.returncode
    assert "can't be opened" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.alone("postgres")
async def test_leaving_a_server_that_does_not_answer_blocks_no_loop(
    postgres: PostgresServer, url: str, stretch: Stretch
) -> None:
    """A worker stops while its beat waits for an answer: whatever else runs on the loop goes on."""
    settings = Settings(lease_seconds=0.6)
    with Proxy(postgres.port) as proxy:
        behind = url.replace(f":{postgres.port}/", f":{proxy.port}/")
        async with outlive.open(f"{behind}&limit=2&outage=3", settings=settings) as app:
            async with app.worker([paying_on], drain="0s"):
                await asyncio.sleep(0.1)
                proxy.mute()
                await asyncio.sleep(0.5)
                pauses: list[float] = []
                watching = asyncio.create_task(watch_the_loop(pauses))
                await asyncio.sleep(0.05)
            watching.cancel()
            proxy.mend()

    assert max(pauses) < 0.5 * stretch()


async def watch_the_loop(pauses: list[float]) -> None:
    """How long this loop was kept from its next turn, again and again."""
    since = time.monotonic()
    while True:
        await asyncio.sleep(0.01)
        pauses.append(time.monotonic() - since)
        since = time.monotonic()
