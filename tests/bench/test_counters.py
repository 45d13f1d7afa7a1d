"""What a step costs in flushes, statements, bytes and reads: counted, so that no clock is needed.

The numbers stand in one table. They only ever go down; whoever raises one says why.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import outlive
from bench.contest import argument_of, outcome_of
from bench.turns import Place, counted
from outlive.app.app import App
from outlive.settings import Settings
from outlive.stores.sqlite.connections import Connection, Cursor, connect_sqlite3
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Answers, Entry, Reading

#: Beside the flushes of its effects a run has one for its start and one for its end.
FLUSHES_OF_A_RUN = 2
#: A flush is one statement, which is its own transaction ...
STATEMENTS_OF_A_FLUSH = 1
#: ... and so are a start and an end.
STATEMENTS_OF_A_START_AND_END = 2
#: Once per process, for room in the log: BEGIN, and a row that is rolled back.
STATEMENTS_OF_LOG_ROOM = 2
#: Runs that have fallen out of step make two batches of what could be one.
FLUSHES_OF_RUNS_OUT_OF_STEP = 2
#: What the kernel is asked for per sequential effect: the write-ahead log, once.
FDATASYNCS_OF_AN_EFFECT = 1
#: A record of one effect: envelope, outcome of 200 bytes, intent with arguments of 100.
RECORD_BYTES_OF_AN_EFFECT_MAX = 415
#: A plain step in a record that many share, of the same arguments and outcome.
RECORD_BYTES_OF_A_STEP_MAX = 338
#: In the file, with its place in the index and what is left over of its page.
FILE_BYTES_OF_AN_EFFECT_MAX = 450
#: How often whoever resumes a run and awaits its outcome reads all of its past.
PASTS_READ_OF_A_RESUME_MAX = 2
#: A start that is refused since the run is there, the claim, and the end.
COMMITS_OF_A_RESUME_MAX = 3

#: Of a start, a claim, an end.
FEW_RECORDS = 10

QUIET = Settings(lease_seconds=60.0, poll_seconds=30.0, idle_seconds=60.0)
WRITING = ("INSERT", "UPDATE", "DELETE", "BEGIN IMMEDIATE", "COMMIT")


class CountedConnection:
    """A connection that counts what it is given to write."""

    def __init__(self, path: str, written: list[str]) -> None:
        self._db = connect_sqlite3(path)
        self._written = written

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Cursor:
        if sql.lstrip().startswith(WRITING) and "sqlite_master" not in sql:
            self._written.append(sql)
        return self._db.execute(sql, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


class CountedStore:
    """A store that counts its commits and the records that are read."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.commits = self.records_read = 0

    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
        answers: Answers | None = await self._store.commit(batch, wait=wait)
        self.commits += answers is not None
        return answers

    async def read(self, *args: Any, **kwargs: Any) -> Reading | None:
        reading: Reading | None = await self._store.read(*args, **kwargs)
        self.records_read += len(reading.records) if reading else 0
        return reading

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)


@outlive.effect
async def change(argument: str) -> str:
    return outcome_of(len(argument))


@outlive.step
async def look(argument: str) -> str:
    return outcome_of(len(argument))


@outlive.flow
async def changing(run: str, count: int) -> int:
    for number in range(count):
        await change(argument_of(run, number))
    return count


@outlive.flow
async def looking(run: str, count: int) -> int:
    for number in range(count):
        await look(argument_of(run, number))
    return count


class Costs:
    """What some runs of one flow cost, in a file of their own."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.written: list[str] = []
        self.flushes = self.entries = 0

    async def drive(self, flow: Any, *, runs: int, steps: int) -> Costs:
        """All at once, to their ends."""
        store = SQLiteStore(self._file, connect=self._connect)
        async with App(store, settings=QUIET) as app:
            self.written.clear()  # the tables were made
            handles = await asyncio.gather(
                *(app.start(flow, str(run), steps, id=str(run)) for run in range(runs))
            )
            for handle in handles:
                assert steps == await handle.outcome("60s")
            _await_log_room()
            counters = app._writer.keeper.counters
            self.flushes, self.entries = counters.flushes, counters.entries
            self.statements = len(self.written)
        return self

    def _connect(self, path: str) -> Connection:
        return CountedConnection(path, self.written)

    def bytes_in_records(self) -> int:
        """What the journal holds."""
        with sqlite3.connect(self._file) as db:
            found: int = db.execute("SELECT sum(length(body)) FROM records").fetchone()[0]
        db.close()
        return found

    def bytes_in_file(self) -> int:
        """What the file weighs; the last connection that was closed has folded its log in."""
        return self._file.stat().st_size


def _await_log_room() -> None:
    for thread in threading.enumerate():
        if thread.name == "outlive-log":
            thread.join(60)


async def test_an_effect_is_one_flush_and_one_statement(tmp_path: Path) -> None:
    """N sequential effects: N flushes of one statement each, a start and an end."""
    costs = await Costs(tmp_path / "runs.db").drive(changing, runs=1, steps=50)

    assert 50 + FLUSHES_OF_A_RUN == costs.flushes == costs.entries
    effects = 50 * STATEMENTS_OF_A_FLUSH
    once = STATEMENTS_OF_A_START_AND_END + STATEMENTS_OF_LOG_ROOM
    assert effects + once == costs.statements


async def test_plain_steps_share_flushes(tmp_path: Path) -> None:
    """N plain steps in a row never cost more flushes than N effects; all but always far less."""
    costs = await Costs(tmp_path / "runs.db").drive(looking, runs=1, steps=200)

    assert costs.flushes <= 200 // 2
    plain = (costs.flushes - FLUSHES_OF_A_RUN) * STATEMENTS_OF_A_FLUSH
    once = costs.statements - plain - STATEMENTS_OF_A_START_AND_END
    assert once in (0, STATEMENTS_OF_LOG_ROOM)  # whether the log needed room depends on the disk


async def test_runs_share_flushes(tmp_path: Path, figure: Any) -> None:
    """20 runs of 10 effects cost the flushes of one run, or of two if they fall out of step."""
    costs = await Costs(tmp_path / "runs.db").drive(changing, runs=20, steps=10)

    figure("counters: flushes of 20 runs x 10 effects", costs.flushes)
    assert 20 * (10 + FLUSHES_OF_A_RUN) == costs.entries
    alone = 10 + FLUSHES_OF_A_RUN
    assert alone <= costs.flushes <= alone * FLUSHES_OF_RUNS_OUT_OF_STEP
    statements_max = costs.flushes * (STATEMENTS_OF_A_FLUSH + STATEMENTS_OF_A_START_AND_END)
    assert costs.statements <= statements_max


async def test_bytes_of_an_effect(tmp_path: Path, figure: Any) -> None:
    """From the difference of two sizes, so that what a file has once is not in it."""
    small = await Costs(tmp_path / "small.db").drive(changing, runs=1, steps=200)
    large = await Costs(tmp_path / "large.db").drive(changing, runs=1, steps=600)

    record = (large.bytes_in_records() - small.bytes_in_records()) / 400
    file = (large.bytes_in_file() - small.bytes_in_file()) / 400
    figure("counters: bytes of an effect's record", round(record))
    figure("counters: bytes of an effect in the file", round(file))
    assert record <= RECORD_BYTES_OF_AN_EFFECT_MAX
    assert file <= FILE_BYTES_OF_AN_EFFECT_MAX


async def test_bytes_of_a_plain_step(tmp_path: Path, figure: Any) -> None:
    """Its event; how many share an envelope depends on the disk."""
    costs = await Costs(tmp_path / "runs.db").drive(looking, runs=1, steps=400)

    envelopes = 48 * costs.flushes
    step = (costs.bytes_in_records() - envelopes) / 400
    figure("counters: bytes of a plain step's event", round(step))
    assert step <= RECORD_BYTES_OF_A_STEP_MAX


async def test_a_resume_reads_the_past_a_fixed_number_of_times(tmp_path: Path, figure: Any) -> None:
    """A run that lost its driver is claimed once, and what it costs to read is its length."""
    is_over, reached = asyncio.Event(), asyncio.Event()

    @outlive.step
    async def gate() -> None:
        reached.set()
        await is_over.wait()

    @outlive.flow(name="gated")
    async def gated(count: int) -> int:
        for number in range(count):
            await change(argument_of("past", number))
        await gate()
        return count

    async with App(SQLiteStore(tmp_path / "runs.db"), settings=QUIET) as app:
        await app.start(gated, 100, id="r")
        await reached.wait()
    is_over.set()

    store = CountedStore(SQLiteStore(tmp_path / "runs.db"))
    async with App(store, settings=QUIET) as app:
        store.commits = store.records_read = 0
        assert await (await app.start(gated, 100, id="r")).outcome("60s") == 100
        commits, records_read = store.commits, store.records_read

    figure("counters: records read to resume after 100 effects, and for the outcome", records_read)
    assert 100 <= records_read <= (100 + FEW_RECORDS) * PASTS_READ_OF_A_RESUME_MAX
    assert 2 <= commits <= COMMITS_OF_A_RESUME_MAX


def test_the_kernel_flushes_once_per_effect(tmp_path: Path) -> None:
    """Counted by strace from outside: 40 effects more are 40 flushes more.

    One flush is of the folder, by each connection that is opened before there is a log; whether
    two or three are depends on the threads.
    """
    place = Place(folder=tmp_path, limit_seconds=60)
    small, large = (counted("effect", "sequential", size, place) for size in (60, 100))

    assert "error" not in small, small
    more = large["flushes"] - small["flushes"]
    assert abs(40 * FDATASYNCS_OF_AN_EFFECT - more) <= 1
