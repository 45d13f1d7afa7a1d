"""Count the way of an effect, a run and a resume: Python calls, files, SQL statements.

    python scripts/count_way.py [--json] [effect keyed many one_step resume signal]

Calls are counted with ``sys.setprofile`` on every thread, SQL with SQLite's own trace. A call is a
frame that is entered: a coroutine that goes on counts again. What user code does is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

#: A worker looks for work now and then: an effect alone is counted so often, and the least kept.
REPEATS = 15
RUNS, EFFECTS = 200, 20
#: What a thread's connection is set up with, when it is first used; and SQLite's own comments.
SET_UP = ("-- ", "PRAGMA ", "CREATE TEMP ", "SELECT sqlite_version", "SELECT name FROM sqlite_")
#: Of so many rounds of so many runs, the one with the least calls.
ONE_STEP_ROUNDS, ONE_STEP_RUNS = 12, 50


class Way:
    """What was called between ``begin`` and ``end``."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.sql: list[str] = []
        self._is_on = False

    def watch(self, _frame: FrameType, event: str, _arg: object) -> None:
        """A profile function."""
        if self._is_on and event == "call":
            code = _frame.f_code
            if code.co_filename != __file__:
                self.calls[code.co_filename, code.co_qualname] += 1

    def trace(self, statement: str) -> None:
        """A trace callback of SQLite; what triggers do inside a statement is its own."""
        if self._is_on and not statement.startswith(SET_UP) and statement not in self.sql[-1:]:
            self.sql.append(statement)

    def begin(self) -> None:
        """Count from here on."""
        self.calls.clear()
        self.sql.clear()
        self._is_on = True

    def end(self) -> None:
        """Count no further."""
        self._is_on = False

    def counts(self, per: int = 1) -> dict[str, Any]:
        """The figures, for each of so many."""
        layers: Counter[str] = Counter()
        files = set()
        for (file, _), number in self.calls.items():
            layers[_layer(file)] += number
            if _layer(file) not in _OTHERS:
                files.add(file)
        return {
            "calls": round(self.calls.total() / per, 1),
            "own_calls": round(
                sum(layers[name] for name in layers if name not in _OTHERS) / per, 1
            ),
            "own_files": len(files),
            "sql": round(len(self.sql) / per, 2),
            "layers": {name: round(n / per, 1) for name, n in layers.most_common()},
        }


_OTHERS = frozenset({"asyncio", "msgspec", "concurrent", "other"})


def _layer(file: str) -> str:
    parts = Path(file).parts
    if "outlive" in parts:
        return parts[len(parts) - parts[::-1].index("outlive")]
    return next((part for part in ("asyncio", "msgspec", "concurrent") if part in parts), "other")


WAY = Way()


def _watch_all() -> None:
    """Profile this thread and those to come, and trace every connection."""
    threading.setprofile(WAY.watch)
    sys.setprofile(WAY.watch)
    connect = sqlite3.connect

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*args, **kwargs)
        db.set_trace_callback(WAY.trace)
        return db

    sqlite3.connect = traced  # type: ignore[assignment]


import outlive  # noqa: E402
from outlive.app.open import open_app  # noqa: E402


@outlive.effect
async def charge(n: int) -> int:
    return n


@outlive.effect(key="order-{run}-{n}")
async def charge_once(run: str, n: int) -> int:
    return n


@outlive.step
async def read(n: int) -> int:
    return n


@outlive.flow
async def one_of_each(run: str, kind: str) -> int:
    for n in range(12):
        await (charge(n) if kind == "effect" else charge_once(run, n))
    least: Counter[tuple[str, str]] = Counter()
    sql: list[str] = []
    value = 0
    for n in range(12, 12 + REPEATS):
        WAY.begin()
        value = await (charge(n) if kind == "effect" else charge_once(run, n))
        WAY.end()
        if not least or WAY.calls.total() < least.total():
            least, sql = WAY.calls.copy(), list(WAY.sql)
    WAY.calls, WAY.sql = least, sql
    return value


@outlive.flow
async def many(effects: int) -> int:
    total = 0
    for n in range(effects):
        total += await charge(n)
    return total


@outlive.flow
async def one_step(n: int) -> int:
    return await read(n)


@outlive.effect(doubt="retry")
async def wait_here(n: int) -> int:
    if os.environ.get("WAY_DIES") and n == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    WAY.end()
    return n


@outlive.flow
async def resumed() -> int:
    total = 0
    for n in range(6):
        total += await wait_here(n)
    return total


async def _count_single(url: str, kind: str) -> dict[str, Any]:
    async with open_app(url) as app:
        await (await app.start(one_of_each, "r", kind))
        return WAY.counts()


async def count_effect(url: str) -> dict[str, Any]:
    """One effect alone, from the flow's call to the flow's next line."""
    return await _count_single(url, "effect")


async def count_keyed(url: str) -> dict[str, Any]:
    """The same with a key of the user's."""
    return await _count_single(url, "keyed")


async def count_many(url: str) -> dict[str, Any]:
    """Many runs of many effects at once: the share of one effect; starts and ends left out."""
    found = []
    async with open_app(url) as app:
        for effects in (EFFECTS, 2 * EFFECTS):
            handles = [await app.start(many, effects) for _ in range(5)]
            await asyncio.gather(*handles)
            WAY.begin()
            handles = [await app.start(many, effects) for _ in range(RUNS)]
            await asyncio.gather(*handles)
            WAY.end()
            found.append((WAY.calls.copy(), list(WAY.sql), WAY.counts(RUNS * effects)))
    (fewer, _, whole), (more, _, _) = found
    WAY.calls = more - fewer
    WAY.calls = Counter({place: n for place, n in WAY.calls.items() if n > RUNS * EFFECTS // 40})
    WAY.sql.clear()
    counts = WAY.counts(RUNS * EFFECTS)
    return {**counts, "sql": whole["sql"], "with_start_and_end": whole["calls"]}


async def count_one_step(url: str) -> dict[str, Any]:
    """A run of one step, one of many that are started and awaited, one after the other."""
    async with open_app(url) as app:
        found = []
        for _ in range(ONE_STEP_ROUNDS):
            WAY.begin()
            for n in range(ONE_STEP_RUNS):
                await (await app.start(one_step, n))
            WAY.end()
            found.append(WAY.counts(ONE_STEP_RUNS))
        return min(found, key=lambda counts: counts["calls"])


async def count_resume(url: str) -> dict[str, Any]:
    """A run whose process was killed in its sixth effect, up to that effect's body."""
    env = {**os.environ, "WAY_DIES": "1"}
    died = await asyncio.to_thread(
        subprocess.run, [sys.executable, __file__, "--die", url], env=env, check=False
    )
    assert died.returncode == -signal.SIGKILL, died
    async with open_app(url) as app:
        await (await app.start(many, 1))
        await asyncio.sleep(1)
        WAY.begin()
        handle = await app.start(resumed, id="r")
        await handle
        return WAY.counts()


@outlive.flow
async def heard(number: int) -> int:
    total = 0
    for _ in range(number):
        total += await outlive.wait_signal("s", type=int)
        HEARD.set()
    return total


HEARD = asyncio.Event()
SIGNALS = 60


async def count_signal(url: str) -> dict[str, Any]:
    """A signal to a run in memory, until its flow has it."""
    async with open_app(url) as app:
        handle = await app.start(heard, 2 * SIGNALS)
        for _ in range(2):
            WAY.begin()
            for n in range(SIGNALS):
                HEARD.clear()
                await handle.signal("s", n)
                await HEARD.wait()
            WAY.end()
        await handle
        return WAY.counts(SIGNALS)


async def _die(url: str) -> None:
    async with open_app(url) as app:
        await (await app.start(resumed, id="r"))


CHAPTERS: dict[str, Callable[[str], Awaitable[dict[str, Any]]]] = {
    "effect": count_effect,
    "keyed": count_keyed,
    "many": count_many,
    "one_step": count_one_step,
    "resume": count_resume,
    "signal": count_signal,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("chapters", nargs="*", default=[])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--top", type=int, default=0, help="also print the most frequent calls")
    parser.add_argument("--die", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.die:
        asyncio.run(_die(options.die))
        return
    _watch_all()
    found: dict[str, dict[str, Any]] = {}
    for name in options.chapters or CHAPTERS:
        with tempfile.TemporaryDirectory() as folder:
            counting: Any = CHAPTERS[name](f"sqlite:///{folder}/way.db")
            found[name] = asyncio.run(counting)
        if not options.json:
            print(name, found[name])
        for (file, function), number in WAY.calls.most_common(options.top):
            print(f"  {number:7} {Path(file).parent.name}/{Path(file).name}:{function}")
        if options.top:
            print("  ", *WAY.sql[:40], sep="\n   ")
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
