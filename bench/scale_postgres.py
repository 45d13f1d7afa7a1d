"""What workers on one PostgreSQL server cost it, and what bounds a hundred or a thousand of them.

python -m bench.scale_postgres [FILE]      prints JSON, and writes it to the file

Throughput of 1, 2 and 4 worker processes, with the time of every thread of theirs and of the
server; then each thing that grows with the number of workers by itself: a beat, a look for work, a
notification. Server time is that of its processes, read from ``/proc``; bytes of the log are told
by the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg

import outlive
from bench.contest import cpu_of, quantile
from outlive.app.app import App
from outlive.stores.postgres.connection import Statement
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.postgres.wire import text
from outlive.testing.suite.entries import WANTED, entry, held
from tests.harness.postgres_server import PostgresServer

RUNS, EFFECTS = 1_000, 10
WORKERS = (1, 2, 4)
HOLDERS = (1, 10, 100, 1_000)
LISTENERS = (1, 10, 100, 300)
TIMES = 300
TICKS = os.sysconf("SC_CLK_TCK")
SERVER = {"shared_buffers": "512MB", "max_wal_size": "4GB", "checkpoint_timeout": "30min"}

Answer = dict[str, Any]


@outlive.effect
async def act(number: int) -> int:
    """Something small in the world."""
    return number


@outlive.flow
async def acting(count: int) -> int:
    """One effect after the other."""
    return sum([await act(number) for number in range(count)])


# ---------------------------------------------------------------- what a server tells


class Meter:
    """What the server did between two looks."""

    def __init__(self, server: PostgresServer) -> None:
        assert server.pid is not None
        self._pid, self._url = server.pid, server.url()
        self._before = self._look()

    def _look(self) -> Counter[str]:
        with psycopg.connect(self._url, autocommit=True) as db:
            row = db.execute(
                "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8,"
                " (SELECT sum(xact_commit)::int8 FROM pg_stat_database)"
            ).fetchone()
            assert row is not None
            flushes = db.execute(_flushes_sql(db)).fetchone()
            assert flushes is not None
        return Counter(
            wal_bytes=row[0],
            transactions=row[1],
            flushes=flushes[0],
            cpu_us=round(1e6 * cpu_of(self._pid)),
        )

    def since(self) -> Counter[str]:
        """All of it since this was made."""
        time.sleep(1.2)  # sessions tell what they did once a second
        found = self._look()
        found.subtract(self._before)
        return found


def _flushes_sql(db: psycopg.Connection[Any]) -> bytes:
    if db.info.server_version >= 180_000:
        return b"SELECT sum(fsyncs)::int8 FROM pg_stat_io WHERE object = 'wal'"
    return b"SELECT wal_sync FROM pg_stat_wal"


# ---------------------------------------------------------------- throughput


async def work(url: str) -> None:
    """A worker process, until its input ends; then it tells where its time went."""
    app: App = outlive.open(url)
    async with app, app.worker([acting], concurrency=100):
        before = thread_times()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        spent = thread_times()
        spent.subtract(before)
        counters = app._writer.keeper.counters
    store: Any = app.store
    told = {
        "cpu_ms": {name: round(1000 * seconds) for name, seconds in spent.items()},
        "commits": counters.flushes,
        "entries": counters.entries,
        "round_trips": dict(store.pool.round_trips),
    }
    print(json.dumps(told), flush=True)


def thread_times() -> Counter[str]:
    """Seconds of CPU time by the name of the thread; those of a kind together."""
    spent: Counter[str] = Counter()
    for thread in threading.enumerate():
        stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(") ")[2]
        user, system = stat.split()[11:13]
        name = thread.name.partition("_")[0].removeprefix("outlive-")
        spent[name] += (int(user) + int(system)) / TICKS  # type: ignore[assignment]
    return spent


async def throughput(server: PostgresServer, workers: int) -> Answer:
    """So many processes share the runs."""
    url = server.url(schema=f"workers_{workers}")
    command = [sys.executable, "-m", "bench.scale_postgres", "work", url]
    async with outlive.open(url, drive=False) as app:
        processes = [_begin(command) for _ in range(workers)]
        meter, began = Meter(server), time.monotonic()
        await asyncio.gather(*(app.submit(acting, EFFECTS, id=f"r{n}") for n in range(RUNS)))
        while await left(server, url):
            await asyncio.sleep(0.02)
        seconds = time.monotonic() - began
        done = meter.since()
    told = [_end(process) for process in processes]
    steps = RUNS * EFFECTS
    return {
        "workers": workers,
        "effects_per_second": round(steps / seconds),
        "runs_per_second": round(RUNS / seconds),
        "wal_bytes_per_effect": round(done["wal_bytes"] / steps),
        "server_us_per_effect": round(done["cpu_us"] / steps),
        "worker_us_per_effect": round(
            1000 * sum(sum(each["cpu_ms"].values()) for each in told) / steps
        ),
        "effects_per_flush": round(steps / max(1, done["flushes"]), 1),
        "processes": told,
    }


async def left(server: PostgresServer, url: str) -> int:
    """Runs that did not end yet."""
    schema = url.rpartition("=")[2]
    with psycopg.connect(server.url(), autocommit=True) as db:
        sql = f"SELECT count(*) FROM {schema}.runs WHERE ended_at IS NULL"
        row = db.execute(sql.encode()).fetchone()
    assert row is not None
    return int(row[0])


def _begin(command: list[str]) -> subprocess.Popen[str]:
    """A process that is ready to work."""
    process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert "ready\n" == process.stdout.readline()
    return process


def _end(process: subprocess.Popen[str]) -> Answer:
    out, _ = process.communicate("\n")
    told: Answer = json.loads(out.splitlines()[-1])
    return told


# ---------------------------------------------------------------- one thing by itself


async def cost_of(
    server: PostgresServer, act: Callable[[], Awaitable[object]], times: int = TIMES
) -> Answer:
    """Of one such act, again and again."""
    meter, seconds = Meter(server), []
    for _ in range(times):
        began = time.perf_counter()
        await act()
        seconds.append(time.perf_counter() - began)
    done = meter.since()
    return {
        "least_ms": round(1000 * min(seconds), 2),
        "p50_ms": round(1000 * quantile(seconds, 0.5), 2),
        "server_us": round(done["cpu_us"] / times),
        "wal_bytes": round(done["wal_bytes"] / times),
    }


async def beats(server: PostgresServer) -> Answer:
    """A worker says that it lives."""
    store = PostgresStore(server.url(schema="beats"))
    told = await cost_of(server, lambda: store.beat("w"))
    await store.close()
    return told


async def appends(server: PostgresServer) -> Answer:
    """One event of one run, by itself: a commit that nobody shares."""
    store = PostgresStore(server.url(schema="appends"))
    await store.commit([held("r", "w")])
    seqs = iter(range(1, 1 << 30))
    told = await cost_of(server, lambda: store.commit([entry("r", next(seqs), bytes(300))]))
    await store.close()
    return told


async def looks(server: PostgresServer, holders: int) -> Answer:
    """A look for work among so many workers that hold runs."""
    # They beat but once, and shall be alive for as long as this takes.
    store = PostgresStore(server.url(schema=f"looks_{holders}"), lease_seconds=600.0)
    for worker in range(holders):
        await store.beat(f"w{worker}")
    await store.commit([held(f"r{w}-{n}", f"w{w}") for w in range(holders) for n in range(5)])
    told = await cost_of(server, lambda: store.claim("w0", WANTED, 10))
    await store.close()
    return {"workers": holders} | told


async def notifications(server: PostgresServer, listeners: int) -> Answer:
    """One notification that so many hear."""
    store = PostgresStore(server.url(schema="news"))
    url = server.url()
    listening = [psycopg.connect(url, autocommit=True) for _ in range(listeners)]
    for each in listening:
        each.execute("LISTEN outlive_scale")
    tell = Statement("SELECT pg_notify($1, $2)", [text("outlive_scale"), text("")])

    async def act() -> None:
        store.pool.run("other", tell)

    told = await cost_of(server, act, 100)
    for each in listening:
        each.close()
    await store.close()
    return {"listeners": listeners} | told


async def measure(server: PostgresServer) -> Answer:
    """All of it."""
    return {
        "cores": os.cpu_count(),
        "load_average_before": round(os.getloadavg()[0], 1),
        "throughput": [await throughput(server, workers) for workers in WORKERS],
        "append": await appends(server),
        "beat": await beats(server),
        "look": [await looks(server, holders) for holders in HOLDERS],
        "notification": [await notifications(server, listeners) for listeners in LISTENERS],
        "load_average_after": round(os.getloadavg()[0], 1),
    }


def main(words: Sequence[str]) -> None:
    """Measure and tell."""
    if words[:1] == ["work"]:
        asyncio.run(work(words[1]))
        return
    with PostgresServer(settings=SERVER) as server:
        told = json.dumps(asyncio.run(measure(server)), indent=1)
    if words:
        Path(words[0]).write_text(told + "\n")
    print(told)


if __name__ == "__main__":
    main(sys.argv[1:])
