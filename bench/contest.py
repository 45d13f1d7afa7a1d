"""What every contestant shares: the same bytes, the same clocks, the same form of answer.

Only the standard library is used here: each contestant runs in an environment of its own.

A contestant is ``python -m bench.contestants.NAME WORK SIZE FOLDER [KIND]``. It does the work on a
store in the folder and prints one JSON object. What it measures is the time between the end of one
step's body and the beginning of the next one's of the same run: everything that the engine does,
and nothing that the step does.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ARGUMENT_BYTES = 100
OUTCOME_BYTES = 200
STEPS_PER_RUN = 20
SIGNALS_PER_RUN = 20
CALLS_PER_AGENT = 10
MODEL_SECONDS = 0.2
BRANCHES = 100
#: How long a process that is to die lets what it did come to rest.
SETTLING_SECONDS = 0.5
#: One-step runs that are under way at once.
STARTS_AT_ONCE = 100
#: The last steps of a long run, whose cost is told separately.
LAST_STEPS = 100
#: Set by the runner in the round that counts and is not timed.
COUNTING = "BENCH_COUNT"
#: Set by the runner for whoever runs on PostgreSQL: where, and the server's first process.
POSTGRES = "BENCH_POSTGRES"
POSTGRES_PID = "BENCH_POSTGRES_PID"
#: What of PostgreSQL's settings says how durable a commit is.
DURABILITY = ("fsync", "synchronous_commit", "full_page_writes")

Answer = dict[str, Any]
Work = Callable[[int, Path], Answer]


def argument_of(run: str, number: int) -> str:
    """All that a step is called with, a hundred bytes; every other one of a run is new."""
    return f"{run} argument {number if number % 2 else 0} ".ljust(ARGUMENT_BYTES, "a")


def run_in(argument: str) -> str:
    """Which run it was made for."""
    return argument.partition(" ")[0]


def outcome_of(number: int) -> str:
    """Two hundred bytes; every other one is new."""
    return f"outcome {number if number % 2 else 0} ".ljust(OUTCOME_BYTES, "o")


async def in_turn(size: int, each: Callable[[str], Awaitable[object]]) -> None:
    """So many runs, by name, a hundred under way at once: whoever has ended one begins the next.

    Not a thousand tasks before a semaphore: a wake-up of it goes through all that were woken.
    """
    runs = map(str, range(size))

    async def begin() -> None:
        for run in runs:
            await each(run)

    await asyncio.gather(*(begin() for _ in range(min(size, STARTS_AT_ONCE))))


def delay_of(number: int, agents: int) -> float:
    """When this agent begins, if they begin evenly spread over one call of the model."""
    return MODEL_SECONDS * number / agents


class Marks:
    """When the bodies of each run began and ended."""

    def __init__(self) -> None:
        self.begun: dict[str, list[float]] = defaultdict(list)
        self.ended: dict[str, list[float]] = defaultdict(list)

    def body(self, argument: str) -> str:
        """A trivial step's body."""
        now = time.perf_counter()
        run = run_in(argument)
        begun = self.begun[run]
        outcome = outcome_of(len(begun))
        begun.append(now)
        self.ended[run].append(time.perf_counter())
        return outcome

    async def think(self, argument: str) -> str:
        """The body of a pretend model call."""
        run = run_in(argument)
        self.begun[run].append(time.perf_counter())
        await asyncio.sleep(MODEL_SECONDS)
        outcome = outcome_of(len(self.begun[run]))
        self.ended[run].append(time.perf_counter())
        return outcome

    def gaps(self) -> list[float]:
        """What lay between two bodies of the same run, in the order of a single run's steps."""
        return [
            later - earlier
            for run, begun in self.begun.items()
            for earlier, later in zip(self.ended[run], begun[1:], strict=False)
        ]

    def count(self) -> int:
        """How many bodies ran."""
        return sum(map(len, self.begun.values()))


def quantile(values: list[float], share: float) -> float:
    """The value below which this share of them lies."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def spread_of(gaps: list[float]) -> Answer:
    """Median and tail of the time per operation."""
    if not gaps:
        return {}
    return {
        "p50": quantile(gaps, 0.5),
        "p99": quantile(gaps, 0.99),
        "p50_last": quantile(gaps[-LAST_STEPS:], 0.5),
    }


class Stopwatch:
    """Seconds and processor seconds of a stretch of work, all threads included."""

    def __init__(self, server: int = 0) -> None:
        """``server``: a process whose time is told beside, with its children's."""
        self.seconds = self.cpu = self.server_cpu = 0.0
        self._server = server or int(os.environ.get(POSTGRES_PID, 0))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure what is done inside."""
        theirs = cpu_of(self._server) if self._server else 0.0
        began, cpu = time.perf_counter(), time.process_time()
        yield
        self.seconds, self.cpu = time.perf_counter() - began, time.process_time() - cpu
        self.server_cpu = (cpu_of(self._server) if self._server else 0.0) - theirs

    def answer(self, operations: int, gaps: list[float]) -> Answer:
        """The usual figures."""
        return {
            "operations": operations,
            "seconds": self.seconds,
            "cpu": self.cpu,
            **({"server_cpu": self.server_cpu} if self._server else {}),
            **spread_of(gaps),
        }


def settings_of(ask: Callable[[str], Any]) -> Answer:
    """Durability as the contestant's own connection has it, read back and not assumed."""
    names = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
    return {
        "journal_mode": str(ask("PRAGMA journal_mode")),
        "synchronous": names[int(ask("PRAGMA synchronous"))],
    }


def postgres_url() -> str:
    """The database to run on; none: the folder is to be used."""
    return os.environ.get(POSTGRES, "")


def postgres_settings(ask: Callable[[str], Any]) -> Answer:
    """Durability as the contestant's own connection has it, read back and not assumed."""
    return {name: str(ask(f"SHOW {name}")) for name in DURABILITY}


def cpu_of(pid: int) -> float:
    """Processor seconds of a process, of its children, and of those that it has outlived."""
    ticks = sum(_ticks(pid)) + sum(sum(_ticks(child)[:2]) for child in _children(pid))
    return ticks / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> list[int]:
    """User and system time of a process, and of its children that have ended."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return [0]
    return [int(each) for each in told.rpartition(")")[2].split()[11:15]]


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def disk_bytes(folder: Path) -> int:
    """What lies on disk once every write-ahead log is folded into its database."""
    for database in folder.glob("*.db"):
        with sqlite3.connect(database) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()
    return sum(path.stat().st_size for path in folder.glob("*.db*"))


def resident_bytes() -> int:
    """What this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def die() -> None:
    """As kill -9 does it, from inside."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def free_port() -> int:
    """A port of loopback that nobody listens on right now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def count_statements() -> Callable[[], int]:
    """Let every connection that is opened from here on count what it executes."""
    counter = itertools.count()
    connect = sqlite3.connect

    def counting(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.set_trace_callback(lambda _: next(counter))
        return connection

    sqlite3.connect = sqlite3.dbapi2.connect = counting  # type: ignore[assignment]
    return lambda: next(counter)


def main(works: dict[str, Work], version: str) -> None:
    """Do the work that the command line names, and print what it cost."""
    work, size, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    counting = os.environ.get(COUNTING) and not postgres_url()
    count = count_statements() if counting else None
    answer = works[work](size, folder)
    if count is not None:
        answer["statements"] = count()
    if found := disk_bytes(folder):
        answer["bytes"] = found
    answer["version"] = version
    print(json.dumps(answer))


def kind(default: str) -> str:
    """The fourth word of the command line: a contestant's way of doing it."""
    return sys.argv[4] if len(sys.argv) > 4 else default
