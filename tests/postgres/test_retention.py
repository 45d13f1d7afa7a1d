"""Retention on PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from outlive import Retention
from outlive.app.app import App
from outlive.errors import UsageError
from outlive.journal.retention.sweep import Sweep
from outlive.ports import Ports, RemoteClock
from outlive.settings import Settings
from outlive.stores.postgres.connection import PostgresConnection, Statement
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.seam import Store
from outlive.stores.types import Query
from outlive.worker.retention import rest_after
from tests.conftest import Figure
from tests.harness.clocks import ShiftedClock
from tests.harness.postgres_server import PostgresServer
from tests.retention.flows import double
from tests.retention.rules import RetentionRules, runs_of
from tests.retention.year import DAY_MS, fill


class SeenAtOnce(RemoteClock):
    """The server's clock, without the wait for its next answer: days go by between two of them."""

    def now_ms(self) -> int:
        return self._own.now_ms()


class TestPostgres(RetentionRules):
    """On a real server; only its clock is ours."""

    @pytest.fixture
    def store(self, ports: Ports, calendar: ShiftedClock, url: str) -> Store:
        store = PostgresStore(url, ports=ports, lease_seconds=30.0, server_time=calendar.now_ms)
        store.clock = SeenAtOnce(calendar, "the server")
        return store

    async def test_the_store_itself_is_no_archive(self, app: App, url: str) -> None:
        """However its URL is written: the two know one another by an id."""
        await (await app.start(double, 1, id="r"))
        other = f"{url}{'&' if '?' in url else '?'}application_name=archive"

        for itself in (url, other):
            with pytest.raises(UsageError, match="is the store itself; name another, or a folder"):
                await app.retain(Retention(completed=0, archive=itself))

        assert ["r"] == await runs_of(app)


#: Tombstones of earlier deletions, and of those that may be read for each run that goes.
STONES, STONES_FULL, READ_PER_RUN = 20_000, 1_000_000, 4
#: Runs that go, and how many a second must.
GOING, GOING_FULL, RATE_MIN = 1_000, 10_000, 500
#: Ended runs that are too young to go, and rows that a look which finds none of them may read.
YOUNG, LOOKED_AT_MAX = 3_000, 50

_READ = """
SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)
FROM pg_stat_user_tables WHERE schemaname = %s AND relname = %s
"""


IDLE_SECONDS = 5.0


class Counted:
    """What the server read of a table of one store; what others do there is not counted."""

    def __init__(self, postgres: PostgresServer, url: str) -> None:
        self.schema = url.rpartition("schema=")[2]
        self._db = psycopg.connect(postgres.url(), autocommit=True)

    def execute(self, sql: str) -> None:
        self._db.execute(sql.format(s=self.schema).encode())

    def reads(self, table: str) -> int:
        # Backends that rest have told what they did; the others may be late.
        self._db.execute("SELECT pg_stat_clear_snapshot()")
        ((count,),) = self._db.execute(_READ, (self.schema, table)).fetchall()
        return int(count)

    def settled(self, table: str) -> int:
        """When nothing more is told."""
        before, seen = -1, self.reads(table)
        while seen != before:
            time.sleep(1.1)
            before, seen = seen, self.reads(table)
        return seen

    def close(self) -> None:
        self._db.close()


@pytest.fixture
def counted(postgres: PostgresServer, url: str) -> Iterator[Counted]:
    counted = Counted(postgres, url)
    yield counted
    counted.close()


async def test_the_rate_does_not_depend_on_the_number_of_tombstones(
    url: str, counted: Counted, figure: Figure, full: bool
) -> None:
    """A deletion reads no tombstone but those of its runs, and those whose time is over."""
    store, now = PostgresStore(url), time.time_ns() // 1_000_000
    going = GOING_FULL if full else GOING
    await fill(store, going, now)
    counted.execute(
        "INSERT INTO {s}.tombstones SELECT 'gone-' || n, 1, '', 'f', 0, 1::bigint << 60"
        f" FROM generate_series(1, {STONES_FULL if full else STONES}) n"
    )
    counted.execute("VACUUM ANALYZE {s}.tombstones")
    before = counted.settled("tombstones")
    async with App(store, settings=Settings(lease_seconds=60.0)) as app:
        began = time.monotonic()
        swept = await app.retain(Retention(completed="1d"))
        seconds = time.monotonic() - began
        read = counted.settled("tombstones") - before

    figure("retention on PostgreSQL: runs deleted per second, many tombstones", going / seconds)
    figure("retention on PostgreSQL: tombstones read per run", read / going)
    assert {"deleted": going} == dict(swept.fates)
    assert read <= READ_PER_RUN * going
    if full:
        assert going / seconds >= RATE_MIN


async def test_a_look_does_not_read_the_runs_that_may_not_go(url: str, counted: Counted) -> None:
    """However many ended runs are kept."""
    store, now = PostgresStore(url), time.time_ns() // 1_000_000
    await fill(store, YOUNG, now)
    counted.execute("VACUUM ANALYZE {s}.runs")
    before = counted.settled("runs")

    page = await store.find(Query(ended_by=now - 400 * DAY_MS), None, 1000)
    read = counted.settled("runs") - before
    await store.close()

    assert [] == list(page.items)
    assert read <= LOOKED_AT_MAX


async def test_an_idle_worker_asks_little(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than two transactions a second, its beats and its looks at what is old among them."""
    store, asked, real = PostgresStore(url), list[float](), PostgresConnection.run

    def run(self: PostgresConnection, *statements: Statement, **how: Any) -> Any:
        asked.append(time.monotonic())
        return real(self, *statements, **how)

    monkeypatch.setattr(PostgresConnection, "run", run)
    async with App(store, retention=Retention(completed="1d")) as app, app.worker([double]):
        await asyncio.sleep(1)  # it begins, and makes itself known
        asked.clear()
        began = time.monotonic()
        await asyncio.sleep(IDLE_SECONDS)
        count, seconds = len(asked), time.monotonic() - began

    assert 0 < count <= 2 * seconds


#: What a worker may spend on its sweeps, of all time in which one is under way: a fifth, and a bit
#: for what its loop does between a portion and its rest.
SHARE_MAX = 0.22
SWEPT, SWEPT_FULL = 400, 2_000


async def test_a_workers_sweep_takes_a_fifth_of_its_time(
    url: str, figure: Figure, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Portions are followed by rests of four times their length."""
    store, took, real = PostgresStore(url), list[tuple[float, float]](), Sweep.step
    await fill(store, SWEPT_FULL if full else SWEPT, time.time_ns() // 1_000_000)

    async def step(self: Sweep) -> bool:
        began = time.monotonic()
        try:
            return await real(self)
        finally:
            took.append((began, time.monotonic()))

    monkeypatch.setattr(Sweep, "step", step)
    settings = Settings(lease_seconds=60.0, retain_seconds=60.0 if full else 10.0)
    app = App(store, settings=settings, retention=Retention(completed="1d"))
    async with app, app.worker([double]):
        while (await app.find(status="completed", limit=1)).items:
            await asyncio.sleep(0.2)

    busy = sum(end - begin for begin, end in took)
    share = busy / (took[-1][1] - took[0][0])
    figure("retention on PostgreSQL: a worker's share of time while it sweeps", round(share, 3))
    figure("retention on PostgreSQL: portions of a sweep", len(took))
    assert share <= SHARE_MAX


@pytest.mark.parametrize("seconds", [0.01, 0.5, 3.0, 10.0])
def test_a_slow_portion_is_followed_by_a_long_rest(seconds: float) -> None:
    """A store that is slow is not asked for more than a fifth of the time either."""
    assert seconds / (seconds + rest_after(seconds)) <= SHARE_MAX
