"""Eight worker processes on one store, some of them killed at any moment: limits hold."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from outlive.app.app import App
from outlive.journal.lane import run_immediate
from outlive.stores.types import Found, Query
from tests.conftest import IS_FULL, Figure
from tests.harness.postgres_server import PostgresServer
from tests.harness.stores import open_shared
from tests.queues import shop
from tests.workers.yard import Command, Yard, until

WORKERS = 8
RUNS, OTHERS = (60, 20) if IS_FULL else (32, 12)
LIMITS = shop.models
#: From when a claim is counted until others see it: a busy machine may stop us in between.
COMMIT_SECONDS = 1.0
#: A worker notices at a beat, a third of its lease (2 s) later at most; then it looks for work.
LATE_SECONDS = 1.5


class Monitor:
    """Looks at the store again and again: each look is one instant of it."""

    def __init__(self, yard: Yard) -> None:
        self._store = yard.store
        self.looks = 0
        self.most: Counter[str] = Counter()
        #: Of each look: when it began, when it was over, how many had begun.
        self._begun: list[tuple[float, float, int]] = []
        self.is_over = False

    def look(self) -> None:
        before = time.monotonic()
        found = run_immediate(self._store.find(Query(), None, 1000)).items
        self.looks += 1
        limited = [each for each in found if each.header.queue == "models"]
        self._count([each for each in limited if each.head.worker is not None])
        begun = sum(each.head.epoch > 0 for each in limited)
        self._begun.append((before, time.monotonic(), begun))
        self._check_rate()
        self.is_over = all(each.header.ended_at is not None for each in found)

    def _count(self, held: list[Found]) -> None:
        keys = Counter(each.header.queue_key for each in held)
        workers = Counter(each.head.worker for each in held)
        for what, count, limit in (
            ("at once", len(held), LIMITS.concurrency),
            ("of a key", max(keys.values(), default=0), LIMITS.per_key),
            ("of a worker", max(workers.values(), default=0), LIMITS.per_worker),
        ):
            self.most[what] = max(self.most[what], count)
            assert limit is not None
            assert count <= limit, f"{count} {what} in look {self.looks}"

    def _check_rate(self) -> None:
        assert LIMITS.rate is not None
        _, over, begun = self._begun[-1]
        while over - self._begun[0][0] > LIMITS.rate.seconds - COMMIT_SECONDS:
            self._begun.pop(0)
        if self._begun:
            started = begun - self._begun[0][2]
            self.most["within the time"] = max(self.most["within the time"], started)
            assert started <= LIMITS.rate.units, f"{started} began within {LIMITS.rate}"


def play(yard: Yard, seed: int) -> Monitor:
    """Submit, work, kill; until everything is done."""
    chance = random.Random(seed)
    asyncio.run(_submit(yard))
    workers = [_hire(yard) for _ in range(WORKERS)]
    monitor, kills = Monitor(yard), 0
    deadline, next_kill = time.monotonic() + 150, time.monotonic() + 1.0
    while not monitor.is_over:
        monitor.look()
        assert time.monotonic() < deadline, "some run never ended"
        if time.monotonic() > next_kill and kills < WORKERS:
            kills, next_kill = kills + 1, time.monotonic() + chance.uniform(0.2, 1.0)
            victim = workers.pop(chance.randrange(len(workers)))
            victim.tell(signal.SIGKILL)
            victim.wait()
            workers.append(_hire(yard))
        time.sleep(0.005)
    return monitor


def _hire(yard: Yard) -> Command:
    return yard.command("worker", "tests.queues.shop")


async def _submit(yard: Yard) -> None:
    async with App(open_shared(yard.url), drive=False) as app:
        await app.set_queue(shop.models)
        for number in range(RUNS):
            key = "hog" if number % 2 else f"k{number % 5}"
            await app.submit(shop.limited, number, id=f"r{number}", queue_key=key)
        for number in range(OTHERS):
            await app.submit(shop.unlimited, number, id=f"o{number}")


def check(yard: Yard, monitor: Monitor, figure: Figure, name: str) -> None:
    statuses = yard.statuses("limited") + yard.statuses("unlimited")
    assert Counter({"completed": RUNS + OTHERS}) == statuses
    figure(f"queues: 8 processes on {name}, looks, most seen", f"{monitor.looks}, {monitor.most}")


@pytest.mark.alone("processes")
def test_limits_hold_among_processes_on_sqlite(full: bool, tmp_path: Path, figure: Figure) -> None:
    """At no instant are more held, by key, by worker or in all; nor do more begin in time."""
    for seed in range(10 if full else 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        yard = Yard(folder)
        try:
            check(yard, play(yard, seed), figure, "SQLite")
        finally:
            yard.close()


@pytest.mark.alone("processes")
def test_limits_hold_among_processes_on_postgresql(
    full: bool, tmp_path: Path, own_postgres: PostgresServer, figure: Figure
) -> None:
    """The same across connections to a server."""
    for seed in range(10 if full else 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        yard = Yard(folder, own_postgres.url(schema=f"round_{seed}"))
        try:
            check(yard, play(yard, seed), figure, "PostgreSQL")
        finally:
            yard.close()


@pytest.mark.alone("processes")
def test_a_body_ends_soon_after_its_claim(tmp_path: Path, figure: Figure) -> None:
    """A worker that was stopped for longer than its lease calls off what others took over."""
    yard = Yard(tmp_path)
    try:
        first = yard.hire_ready(module="tests.queues.shop")
        yard.submit(("slow", shop.lingering, (5.0,)))
        until(lambda: _bodies(yard), "the body to begin")
        first.tell(signal.SIGSTOP)
        second = yard.hire_ready(module="tests.queues.shop")
        until(lambda: second.pid in {pid for _, pid in _bodies(yard)}, "the run to be taken over")
        woken = time.monotonic()
        first.tell(signal.SIGCONT)
        until(lambda: yard.status("slow") == "completed", "the run to end")

        late = max((at - woken for at, pid in _bodies(yard) if pid == first.pid), default=0.0)
        assert late < LATE_SECONDS
        figure("queues: seconds that a body outlived its claim after a stop", f"{late:.2f}")
    finally:
        yard.close()


def _bodies(yard: Yard) -> list[tuple[float, int]]:
    path = yard.folder / "lingering"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(float(at), int(pid)) for at, pid in (line.split() for line in lines)]
