"""A failover that loses commits: the whole fleet refuses, also who did not see what is lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest.mock import Mock, patch

import psycopg
import pytest

import outlive
from outlive.app.app import App
from outlive.errors import OutliveError, WentBack
from outlive.settings import Settings
from outlive.stores.postgres.store import PostgresStore
from outlive.testing.suite.entries import WANTED, entry, held
from tests.conftest import Figure
from tests.harness.postgres_pooler import PostgresPooler
from tests.harness.postgres_server import PostgresServer
from tests.harness.processes import until
from tests.postgres.test_weather import Pair
from tests.processes import cast
from tests.processes.stage import Stage

pytestmark = [pytest.mark.alone("postgres"), pytest.mark.timeout(900)]

#: Long enough for everybody to find the new server in, on a busy machine.
SETTINGS = Settings(lease_seconds=4.0, poll_seconds=0.1, idle_seconds=0.0, drain_seconds=0.0)
WORKERS, RUNS = 3, 4
REFUSED = WentBack.exit_code


@outlive.effect(doubt="retry")
async def pay(number: int) -> int:
    """Whoever honours no key would pay each time that this is called."""
    line = f"{outlive.key()}\n".encode()
    book = os.open(cast.me.folder / "paid", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(book, line)
    os.close(book)
    await asyncio.sleep(0.02)
    return number


@outlive.flow
async def paying() -> int:
    """Pays without end, until it is let go."""
    number = 0
    while not (cast.me.folder / "go").exists():
        number = await pay(number + 1)
    return number


def work(folder: Path, url: str) -> None:
    """A worker that says why it ended."""
    cast.me = cast.Process(folder)
    code = 0

    async def main() -> int:
        store = PostgresStore(url, lease_seconds=SETTINGS.lease_seconds)
        async with App(store, settings=SETTINGS) as app, app.worker([paying]) as worker:
            (folder / f"ready-{os.getpid()}").touch()
            await worker.wait()
        if worker.failure is not None:
            raise worker.failure
        return 0

    try:
        code = asyncio.run(main())
    except OutliveError as error:
        code = error.exit_code
        (folder / f"said-{os.getpid()}").write_text(str(error))
    raise SystemExit(code)


def paid(stage: Stage) -> list[str]:
    book = stage.folder / "paid"
    return book.read_text().split() if book.exists() else []


def fail_over_behind(pair: Pair, stage: Stage) -> None:
    """The standby is away for a while, in which much is acknowledged, and then it takes over."""
    with psycopg.connect(pair.primary.url(), autocommit=True) as db:
        db.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        db.execute("SELECT pg_reload_conf()")
    pair.standby.crash()
    before = len(paid(stage))
    until(lambda: len(paid(stage)) > before + 20, "effects that the standby never hears of")
    lost = pair.primary
    lost.crash()
    pair.standby.start()
    pair.standby.promote()
    pair.primary = pair.standby
    lost.remove()


class Fleet:
    """Workers on the same seats; a supervisor may put a new one where one has ended."""

    def __init__(self, stage: Stage, url: str, lives: int) -> None:
        self._stage, self._url, self._lives = stage, url, lives
        self._seats: list[BaseProcess | None] = []
        #: Of each seat, with which code and which words its workers ended.
        self.ended: list[list[tuple[int, str]]] = []

    def start(self, count: int) -> None:
        """Some more."""
        for _ in range(count):
            self._seats.append(self._stage.spawn(work, self._url))
            self.ended.append([])

    def is_over(self) -> bool:
        """Every seat has had all its workers."""
        for seat, child in enumerate(self._seats):
            if child is None or child.exitcode is None:
                continue
            said = self._stage.folder / f"said-{child.pid}"
            self.ended[seat].append((child.exitcode, said.read_text() if said.exists() else ""))
            is_next = len(self.ended[seat]) < self._lives
            self._seats[seat] = self._stage.spawn(work, self._url) if is_next else None
        return not any(self._seats)


@pytest.mark.parametrize("how", ["alone", "supervised", "pooled"])
def test_nothing_that_was_lost_is_done_again(
    tmp_path: Path, how: str, figure: Figure, full: bool
) -> None:
    """One worker drives everything, and the others would go on with what it let go of."""
    told = 0
    for number in range(5 if full else 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Pair() as pair, PostgresPooler(pair.primary, connections=20) as pooler:
            told += lose(pair, Stage(folder), pooler, how)
    figure(f"postgresql: failover that loses, {how}: refusals told, effects twice", (told, 0))


def lose(pair: Pair, stage: Stage, pooler: PostgresPooler, how: str) -> int:
    """How many processes refused."""
    stage.move_to(pair.url)
    url = pooler.url(pair.primary) if how == "pooled" else pair.url
    fleet = Fleet(stage, url, lives=3 if how == "supervised" else 1)
    try:
        asyncio.run(submit(stage))
        fleet.start(1)
        until(lambda: len(paid(stage)) > 4 * RUNS, "effects")
        fleet.start(WORKERS - 1)
        until(lambda: len(list(stage.folder.glob("ready-*"))) == WORKERS, "all workers")
        fail_over_behind(pair, stage)
        pooler.point_to(pair.primary)
        until(fleet.is_over, "all to refuse", seconds=90)

        twice = [key for key, count in Counter(paid(stage)).items() if count > 1]
        assert [] == twice
        ends = [end for seat in fleet.ended for end in seat]
        assert [REFUSED] * len(ends) == [code for code, _ in ends]
        assert all("went back" in said and "accept-loss" in said for _, said in ends)
        accept(stage, pair)
        return len(ends)
    finally:
        stage.close()


def test_a_failover_that_loses_nothing_goes_on_behind_a_pooler(
    tmp_path: Path, figure: Figure
) -> None:
    """As soon as the pooler leads to the new server; nobody refuses, nothing is done twice."""
    stage = Stage(tmp_path)
    with Pair() as pair, PostgresPooler(pair.primary, connections=20) as pooler:
        url = pooler.url(pair.primary)
        stage.move_to(pair.url)
        fleet = Fleet(stage, url, lives=1)
        try:
            asyncio.run(submit(stage))
            fleet.start(WORKERS)
            until(lambda: len(list(stage.folder.glob("ready-*"))) == WORKERS, "all workers")
            pair.wait_for_standby()
            until(lambda: len(paid(stage)) > 4 * RUNS, "effects")
            pair.fail_over()
            pooler.point_to(pair.primary)
            began, before = time.monotonic(), len(paid(stage))
            until(lambda: len(paid(stage)) > before + 4 * RUNS, "effects on the new server")
            seconds = time.monotonic() - began
            (stage.folder / "go").touch()
            asyncio.run(completed(url))
        finally:
            stage.close()

    figure("postgresql: failover behind a pooler, seconds until effects go on", round(seconds, 1))
    assert [] == list(stage.folder.glob("said-*"))


async def completed(url: str) -> None:
    """Every run ends well."""
    async with App(PostgresStore(url), settings=SETTINGS, drive=False) as app:
        for number in range(RUNS):
            await (await app.get(f"r{number}", paying)).outcome(timeout=60)


async def submit(stage: Stage) -> None:
    async with stage.open_app() as app:
        for number in range(RUNS):
            await app.submit(paying, id=f"r{number}")


def accept(stage: Stage, pair: Pair) -> None:
    """A human says that it may be; then the runs go on."""

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        asked = [sys.executable, "-m", "outlive", "accept-loss", *words, "--store", pair.url]
        return subprocess.run(asked, capture_output=True, text=True)

    said = command()
    assert (2, True) == (said.returncode, "done again" in said.stderr)
    assert 2 == command("--timeline", "999").returncode
    timeline = said.stderr.rpartition("--timeline ")[2].strip()
    assert 0 == command("--timeline", timeline).returncode
    assert 2 == command("--timeline", timeline).returncode, "it was accepted before"
    before = len(paid(stage))
    stage.spawn(work, pair.url)
    until(lambda: len(paid(stage)) > before + 5, "the runs to go on")


async def test_a_mark_is_for_everybody(url: str) -> None:
    """Whoever finds out says so to those who can't know, and to those who come later."""
    store, other = PostgresStore(url), PostgresStore(url)
    for each in (store, other):
        await each.beat("w")
    await store.commit([held("r", "w"), entry("r", 1), entry("r", 2)])
    schema = url.rpartition("schema=")[2]
    with psycopg.connect(url.partition("?")[0], autocommit=True) as db:
        db.execute(f"DELETE FROM {schema}.records WHERE seq > 2".encode())
        db.execute(f"UPDATE {schema}.runs SET seq = 2".encode())

    with pytest.raises(WentBack) as raised:
        await store.read("r")
    assert ("r", 3, 2, 4) == (
        raised.value.run_id,
        raised.value.known,
        raised.value.found,
        raised.value.exit_code,
    )
    later = PostgresStore(url)
    for each in (store, other, later):
        with pytest.raises(WentBack, match="run r was stored up to 3"):
            await each.beat("x")
        with pytest.raises(WentBack):
            await each.claim("x", WANTED, 1)
    with pytest.raises(WentBack):
        await later.commit([held("s", "x")])
    assert any("went back" in each for each in (await later.health()).problems)

    assert not await later.accept_loss(77)
    assert await later.accept_loss(raised.value.timeline)
    fresh = PostgresStore(url)
    assert [None] == list(await fresh.commit([held("s", "x")]))
    for each in (store, other, later, fresh):
        await each.close()


async def test_after_a_change_nobody_begins_for_a_lease(url: str) -> None:
    """Neither who saw it change nor who comes later; then all go on by themselves."""
    schema, lease = url.rpartition("schema=")[2], 2.0
    store = PostgresStore(url, lease_seconds=lease)
    await store.commit([held("r", "w")])
    with psycopg.connect(url.partition("?")[0], autocommit=True) as db:
        db.execute(
            f"UPDATE {schema}.meta SET value = '7 0' WHERE name = 'outlive.timeline'".encode()
        )

    late = PostgresStore(url, lease_seconds=lease)
    began = time.monotonic()
    await late.beat("x")
    claims = await late.claim("x", WANTED, 1)
    assert ([], True) == (list(claims.offers), claims.next_at is not None)
    await late.commit([held("s", "x")])
    assert lease * 0.9 < time.monotonic() - began < lease + 5
    for each in (store, late):
        await each.close()


@pytest.mark.parametrize("way", ["direct", "pooled"])
async def test_no_commit_goes_to_a_server_that_was_not_looked_at(
    postgres: PostgresServer, url: str, way: str
) -> None:
    """Neither over a connection that is new nor, through a pooler, over one that is old."""
    with ExitStack() as stack:
        if way == "pooled":
            pooler = stack.enter_context(PostgresPooler(postgres))
            url = url.replace(f":{postgres.port}/", f":{pooler.port}/")
        store = PostgresStore(url)
        await store.commit([held("r", "w")])
        compare = Mock(wraps=store._regression.compare)
        stack.enter_context(patch.object(store._regression, "compare", compare))
        before = store.pool.timeline
        assert before is not None
        store.pool.timeline = before + 1

        assert [None] == list(await store.commit([entry("r", 1)]))
        assert (1, before) == (compare.call_count, store.pool.timeline)
        await store.close()
