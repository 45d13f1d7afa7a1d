"""How much sleeping runs cost on PostgreSQL: to the worker, to its looks, and to those that wake.

python -m bench.sleepers_postgres [COUNT [FILE [PLOT]]]      prints JSON, writes it, and draws it

Journals of runs that sleep for a day are committed by the store itself, in large batches, up to a
thousand, ten thousand, ... COUNT (default a million). At each size it is measured how long a look
for work takes with a hundred runs due and with none, how late a hundred timers fire that a worker
process of its own has set, and what that worker has in memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg

import outlive
from bench.contest import Answer, quantile, resident_bytes
from bench.plots import Curve, Point, draw
from outlive.app.start import by_flow
from outlive.journal.headers import header_of
from outlive.journal.record import FORMAT, LINK_START, pack
from outlive.model.events import Claimed, Parked, encode_events
from outlive.model.kinds import KIND_BITS
from outlive.model.run import fold
from outlive.ports import Ports
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.types import Entry, Wanted
from tests.harness.postgres_server import PostgresServer

FIRST, BATCH = 1_000, 2_000
DAY_MS = 86_400_000
DUE, LOOKS = 100, 200
TIMERS, TIMER_SECONDS = 100, 5.0
WANTED = Wanted(flows={"sleeper": frozenset({"1"})}, format=FORMAT)
PORTS = Ports()
CURVES = (("100 due", "#c0392b", "hundred_due"), ("none due", "#2c6fbb", "none_due"))
SERVER = {"shared_buffers": "512MB", "max_wal_size": "4GB"}


@outlive.step
async def wake_up() -> float:
    """When this ran."""
    return time.time()


@outlive.flow
async def sleeper(until: str) -> float:
    """Sleeps up to an instant; how late it was."""
    instant = datetime.fromisoformat(until)
    await outlive.sleep(instant)
    return await wake_up() - instant.timestamp()


# ---------------------------------------------------------------- many


def journal(run_id: str, wake_at: int) -> Entry:
    """A run that has begun and sleeps: what a worker writes for one, in one record."""
    until = datetime.fromtimestamp(wake_at / 1000, UTC).isoformat()
    began = by_flow(sleeper, ((until,), {}), run_id, PORTS).event
    events = [began, Claimed(0, 1, "w", True), Parked(1, wake_at)]
    kinds = 0
    for event in events:
        kinds |= KIND_BITS[type(event)]
    body = encode_events(events)
    record, link = pack(run_id, prev=LINK_START, epoch=1, seq=1, kinds=kinds, body=body)
    return Entry(
        run_id=run_id,
        after=0,
        last=len(events),
        epoch=1,
        record=record,
        link=link,
        header=header_of(fold(events)),
    )


def sizes(count: int) -> Iterator[int]:
    """A thousand, ten times as many, and so on."""
    size = FIRST
    while size < count:
        yield size
        size *= 10
    yield count


async def fill(store: PostgresStore, begin: int, end: int, wake_at: int) -> float:
    """Let so many sleep; how long that took."""
    began = time.monotonic()
    for first in range(begin, end, BATCH):
        numbers = range(first, min(first + BATCH, end))
        answers = await store.commit([journal(f"asleep-{n}", wake_at + n) for n in numbers])
        assert not any(answers), "every run is new"
    return time.monotonic() - began


# ---------------------------------------------------------------- looks


async def looks(store: PostgresStore, due: int) -> dict[str, float]:
    """A look for work, again and again, with so many due; milliseconds."""
    seconds = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        claims = await store.claim("watcher", WANTED, DUE)
        seconds.append(time.perf_counter() - began)
        assert due == len(claims.offers)
    return {
        "p50_ms": round(1000 * quantile(seconds, 0.5), 2),
        "p99_ms": round(1000 * quantile(seconds, 0.99), 2),
        "least_ms": round(1000 * min(seconds), 2),
    }


async def look_at(store: PostgresStore, size: int) -> Answer:
    """With none due, with a hundred due, and these gone again."""
    none = await looks(store, 0)
    now = time.time_ns() // 1_000_000
    names = [f"due-{size}-{number}" for number in range(DUE)]
    await store.commit([journal(name, now - 1_000) for name in names])
    some = await looks(store, DUE)
    with psycopg.connect(os.environ["BENCH_SERVER"], autocommit=True) as db:
        for table in ("runs", "records"):
            db.execute(f"DELETE FROM outlive.{table} WHERE run_id LIKE 'due-%'".encode())
    return {"none_due": none, "hundred_due": some}


# ---------------------------------------------------------------- a worker


async def work(url: str) -> None:
    """A worker process: a hundred timers are set, fire, and it tells how late."""
    async with outlive.open(url) as app, app.worker([sleeper]):
        instant = datetime.now(UTC) + timedelta(seconds=TIMER_SECONDS)
        name, until = f"timer-{time.time_ns()}", instant.isoformat()
        starting = (app.submit(sleeper, until, id=f"{name}-{n}") for n in range(TIMERS))
        handles = await asyncio.gather(*starting)
        late = sorted([await handle.outcome(timeout="120s") for handle in handles])
    told = {
        "timers": TIMERS,
        "late_ms_p50": round(1000 * quantile(late, 0.5), 1),
        "late_ms_worst": round(1000 * late[-1], 1),
        "resident_mb": round(resident_bytes() / 1e6, 1),
    }
    print(json.dumps(told))


def work_apart(url: str) -> Answer:
    """The same, in a process of its own."""
    command = [sys.executable, "-m", "bench.sleepers_postgres", "work", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: Answer = json.loads(done.stdout)
    return told


# ---------------------------------------------------------------- all of it


async def measure(server: PostgresServer, count: int) -> list[Answer]:
    """At each size up to this one."""
    os.environ["BENCH_SERVER"] = server.url()
    store, found, begin = PostgresStore(server.url()), [], 0
    wake_at = time.time_ns() // 1_000_000 + DAY_MS
    for size in sizes(count):
        seconds = await fill(store, begin, size, wake_at)
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute("VACUUM (ANALYZE) outlive.runs")
        told = {
            "sleeping": size,
            "stored_per_second": round((size - begin) / seconds),
            "look": await look_at(store, size),
            "worker": await asyncio.to_thread(work_apart, server.url()),
            "load_average": round(os.getloadavg()[0], 1),
        }
        print(json.dumps(told), file=sys.stderr, flush=True)
        found.append(told)
        begin = size
    await store.close()
    return found


def plot(found: Sequence[Answer]) -> str:
    """How long a look takes over the sizes: medians, with the quickest and p99 as bars."""
    curves = []
    for name, colour, kind in CURVES:
        looks = [(each["sleeping"], each["look"][kind]) for each in found]
        points = [
            Point(size=size, middle=look["p50_ms"], least=look["least_ms"], most=look["p99_ms"])
            for size, look in looks
        ]
        curves.append(Curve(name=name, colour=colour, points=points))
    return draw("A look for work, ms", "sleeping runs", lambda ms: f"{ms:g} ms", curves)


def main(words: Sequence[str]) -> None:
    """Measure and tell."""
    if words[:1] == ["work"]:
        asyncio.run(work(words[1]))
        return
    count = int(words[0]) if words else 1_000_000
    with PostgresServer(settings=SERVER) as server:
        told = json.dumps(asyncio.run(measure(server, count)), indent=1)
    if len(words) > 1:
        Path(words[1]).write_text(told + "\n")
    if len(words) > 2:
        Path(words[2]).write_text(plot(json.loads(told)))
    print(told)


if __name__ == "__main__":
    main(sys.argv[1:])
