"""The floor with a journal: what a program costs that is written for this one work by hand.

It keeps what an effect of Outlive promises: the same bytes, the intent durable before the body
begins, the outcome in one record with the next intent, an envelope with checksum and chain around
each record, a head per run that fences another writer, and one commit for all runs that have
something to write. It has no replay, retries, cancellation, mail, leases or limits. The last word
says whether a body is awaited (``await``, L1) or is a Task of its own (``task``, L2).
"""

from __future__ import annotations

import asyncio
import sqlite3
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from bench.contest import (
    STEPS_PER_RUN,
    Answer,
    Marks,
    Stopwatch,
    argument_of,
    in_turn,
    kind,
    main,
    settings_of,
)

TABLES = (
    "CREATE TABLE runs (id INTEGER PRIMARY KEY, run_id TEXT UNIQUE, seq INTEGER, epoch INTEGER,"
    " link BLOB, flow TEXT, status TEXT, started_at INTEGER, ended_at INTEGER)",
    "CREATE TABLE records (id INTEGER PRIMARY KEY, run INTEGER, seq INTEGER, body BLOB)",
    "CREATE UNIQUE INDEX records_of_run ON records (run, seq)",
)
BEGIN = "INSERT INTO runs (run_id, seq, epoch, link, flow, status, started_at)"
BEGIN += " VALUES (?, 0, 1, x'', 'run_steps', 'running', ?)"
MOVE = "UPDATE runs SET seq = ?, link = ? WHERE run_id = ? AND seq = ? AND epoch = 1"
APPEND = "INSERT INTO records (run, seq, body) SELECT id, ?, ? FROM runs WHERE run_id = ?"
END = "UPDATE runs SET status = 'completed', ended_at = ? WHERE run_id = ?"
HEADER = struct.Struct(">2sBBBBIHI")
LIMIT_MS = 60_000
#: Kinds of events, and the bit of each in a record's header.
STARTED, CLAIMED, INTENT, OUTCOME, ENDED = 1, 2, 20, 21, 40
KINDS = {STARTED: 1, CLAIMED: 2, INTENT: 8, OUTCOME: 16, ENDED: 32}

Event = tuple[Any, ...]
encode = msgspec.msgpack.Encoder().encode


class Run:
    """The head of one journal."""

    __slots__ = ("began_ms", "id", "link", "seq")

    def __init__(self, name: str) -> None:
        self.id = name
        self.seq = 0
        self.link = bytes(16)
        self.began_ms = time.time_ns() // 1_000_000

    def now(self) -> int:
        """Milliseconds since the run began."""
        return time.time_ns() // 1_000_000 - self.began_ms

    def pack(self, events: Sequence[Event]) -> tuple[Any, Any]:
        """These events as a record in its envelope: the rows that move the head and append."""
        body, before = encode(events), self.seq
        kinds = 0
        for event in events:
            kinds |= KINDS[event[0]]
        header = HEADER.pack(b"Ol", 1, 0, 1, kinds, 1, 0, before + 1)
        placed = header + blake2b(body, digest_size=16).digest()
        self.link = blake2b(self.link + placed + self.id.encode(), digest_size=16).digest()
        self.seq = before + len(events)
        record = placed + self.link + body
        return (self.seq, self.link, self.id, before), (before + 1, record, self.id)


#: The rows of one record, who waits for them, and whether they begin or end a run.
Entry = tuple[Run, Any, Any, asyncio.Future[None], int]


class Journal:
    """One queue, one thread that commits whatever is in it, one call back per commit."""

    def __init__(self, folder: Path, loop: asyncio.AbstractEventLoop) -> None:
        path = folder / "floor.db"
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        for table in TABLES:
            self._db.execute(table)
        self.settings = settings_of(lambda pragma: self._db.execute(pragma).fetchone()[0])
        self._loop = loop
        self._entries: list[Entry] = []
        self._batches: SimpleQueue[list[Entry] | None] = SimpleQueue()
        self._is_busy = False
        self.commits = 0
        self._thread = threading.Thread(target=self._main)
        self._thread.start()

    def append(self, run: Run, *events: Event) -> asyncio.Future[None]:
        """Done when the events are durable."""
        done = self._loop.create_future()
        moved, appended = run.pack(events)
        self._entries.append((run, moved, appended, done, events[-1][0]))
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._give)
        return done

    def _give(self) -> None:
        """Everything of this tick, as one batch."""
        batch, self._entries = self._entries, []
        self._batches.put(batch)

    def _main(self) -> None:
        while (batch := self._batches.get()) is not None:
            self._commit(batch)
            self._loop.call_soon_threadsafe(self._settle, batch)

    def _commit(self, batch: list[Entry]) -> None:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        begun = [(entry[0].id, entry[0].began_ms) for entry in batch if entry[4] == CLAIMED]
        if begun:
            db.executemany(BEGIN, begun)
        moved = db.executemany(MOVE, [entry[1] for entry in batch]).rowcount
        assert moved == len(batch), "another writer moved a head"
        db.executemany(APPEND, [entry[2] for entry in batch])
        now = time.time_ns() // 1_000_000
        ended = [(now, entry[0].id) for entry in batch if entry[4] == ENDED]
        if ended:
            db.executemany(END, ended)
        db.execute("COMMIT")
        self.commits += 1

    def _settle(self, batch: list[Entry]) -> None:
        for *_, done, _ in batch:
            done.set_result(None)
        self._is_busy = bool(self._entries)
        if self._is_busy:
            self._give()
        else:
            # What these runs append in their turn goes together.
            self._is_busy = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_busy = bool(self._entries)
        if self._is_busy:
            self._give()

    def close(self) -> None:
        """After the last commit."""
        self._batches.put(None)
        self._thread.join()
        self._db.close()


MARKS = Marks()


async def work(argument: str) -> str:
    """A trivial step."""
    return MARKS.body(argument)


def call_of(way: str) -> Callable[[str], Awaitable[str]]:
    """How a body is called."""
    if way == "task":
        return lambda argument: asyncio.get_running_loop().create_task(work(argument))
    return work


CALL = call_of(kind("await"))


async def run_steps(journal: Journal, name: str, count: int) -> None:
    """The flow: its start, its steps, its end."""
    run = Run(name)
    arguments = encode({"run": name, "count": count})
    code = bytes(16), bytes(16), "3.11", run.began_ms
    place: Event = name, "default", None, None, {}, {}, False, None
    began = (STARTED, "run_steps", "1", arguments, *code, *place)
    await journal.append(run, began, (CLAIMED, 0, 1, "587e0388db51ef86", True))
    events: tuple[Event, ...] = ()
    for number in range(count):
        argument, step = argument_of(name, number), f"0/work#{number + 1}"
        now = run.now()
        intent = INTENT, now, step, 1, encode({"argument": argument}), b"", "", now + LIMIT_MS
        await journal.append(run, *events, intent)
        value = await CALL(argument)
        events = ((OUTCOME, run.now(), step, 1, encode(value), ""),)
    await journal.append(run, *events, (ENDED, run.now(), encode(count)))


def measured(folder: Path, operations: int, act: Callable[[Journal], Awaitable[Any]]) -> Answer:
    """Do this with an open journal, and tell what it cost."""
    watch = Stopwatch()

    async def main() -> Answer:
        journal = Journal(folder, asyncio.get_running_loop())
        try:
            with watch.running():
                await act(journal)
        finally:
            journal.close()
        return {"commits": journal.commits, "settings": journal.settings}

    told = asyncio.run(main())
    return {**watch.answer(operations, MARKS.gaps()), **told}


def sequential(size: int, folder: Path) -> Answer:
    """One run."""
    return measured(folder, size, lambda journal: run_steps(journal, "0", size))


def many(size: int, folder: Path) -> Answer:
    """Many runs at once."""

    async def act(journal: Journal) -> None:
        names = map(str, range(size))
        await asyncio.gather(*(run_steps(journal, name, STEPS_PER_RUN) for name in names))

    return measured(folder, size * STEPS_PER_RUN, act)


def starts(size: int, folder: Path) -> Answer:
    """Runs of one step, a hundred under way at once."""

    def act(journal: Journal) -> Awaitable[None]:
        return in_turn(size, lambda name: run_steps(journal, name, 1))

    return measured(folder, size, act)


if __name__ == "__main__":
    main(
        {"sequential": sequential, "many": many, "starts": starts},
        f"SQLite {sqlite3.sqlite_version}",
    )
