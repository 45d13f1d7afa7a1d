"""Where the processor's time goes: by layer, while runs do effects and while they begin and end.

python -m bench.where [FILE]      prints JSON, and writes it

A thread looks a thousand times a second at what every other thread does. What processor time a
thread took since the last look counts for the innermost layer that it is in now; time in C
(SQLite, hashing, encoding) counts for the layer that called. Looking takes time itself, so the
shares are to be believed, not their sum: how long an operation takes is measured in a turn where
nobody looks.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import outlive
from bench.chapter import table
from bench.contest import in_turn
from bench.environments import ROOT
from bench.figures import seconds
from outlive.app.app import App
from tests.harness.postgres_server import PostgresServer

RESULTS = ROOT / "bench" / "results" / "where.json"
LOOK_SECONDS = 0.001
RUNS, STEPS, STARTS = 200, 20, 1_000
WARM_UP = 50

#: Whatever comes first: what stands in the file's path, and what that is.
PLACES = (
    ("/outlive/stores/", "the store: statements, and SQLite or the connection itself"),
    ("/outlive/journal/", "the journal: records, values, group commit, hand-over to its thread"),
    ("/outlive/model/", "the model: events, folds"),
    ("/outlive/worker/", "the worker: leases, looks, loading"),
    ("/outlive/engine/", "the engine: calls, replay, delivery, bodies"),
    ("/outlive/", "the app: starts, handles, outcomes"),
    ("/asyncio/", "asyncio: tasks, callbacks, waking up"),
    ("/selectors.py", "asyncio: tasks, callbacks, waking up"),
    ("/threading.py", "threads that wait for one another"),
    ("/queue.py", "threads that wait for one another"),
)
OTHER = "everything else, the flows' own code included"


@outlive.effect(name="where_act")
async def act(argument: str) -> str:
    """Nothing much."""
    return argument * 2


@outlive.flow(name="where_acts")
async def acts(steps: int) -> int:
    """Effects, one after the other."""
    for number in range(steps):
        await act(f"{number:0100}")
    return steps


class Looker:
    """Whose time it is."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._is_over = threading.Event()
        self._before: dict[int, float] = {}

    @contextmanager
    def looking(self) -> Iterator[None]:
        """As long as the block runs."""
        thread, usual = threading.Thread(target=self._main, daemon=True), sys.getswitchinterval()
        # Or it would be let in only where a thread waits, and see nothing else.
        sys.setswitchinterval(LOOK_SECONDS / 100)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()
            sys.setswitchinterval(usual)

    def _main(self) -> None:
        own = threading.get_ident()
        while not self._is_over.wait(LOOK_SECONDS):
            for thread, frame in sys._current_frames().items():
                if thread != own:
                    self._count(thread, frame)

    def _count(self, thread: int, frame: FrameType) -> None:
        try:
            spent = time.clock_gettime(time.pthread_getcpuclockid(thread))
        except OSError:
            return  # it has just ended
        since = spent - self._before.get(thread, spent)
        self._before[thread] = spent
        if since > 0:
            self.seconds[layer_of(frame)] += since

    def shares(self) -> dict[str, float]:
        """Of all the time, the largest first."""
        whole = sum(self.seconds.values())
        return {name: round(each / whole, 4) for name, each in self.seconds.most_common()}


def layer_of(frame: FrameType | None) -> str:
    """The innermost layer that a thread is in."""
    while frame is not None:
        path = frame.f_code.co_filename
        for part, layer in PLACES:
            if part in path:
                return layer
        frame = frame.f_back
    return OTHER


async def effects(app: App, name: str) -> int:
    """Many runs at once, of many effects each."""

    async def each(number: int) -> None:
        await (await app.start(acts, STEPS, id=f"{name}-{number}")).outcome()

    await asyncio.gather(*map(each, range(RUNS)))
    return RUNS * STEPS


async def starts(app: App, name: str) -> int:
    """Runs of one effect each, a hundred under way at once."""

    async def each(run: str) -> None:
        await (await app.start(acts, 1, id=f"{name}-{run}")).outcome()

    await in_turn(STARTS, each)
    return STARTS


TITLES = {"effects": "an effect, 200 runs at once", "starts": "a run of one effect"}
WORDS = (
    "All threads of the process together, by `python -m bench.where`, which samples a thousand "
    "times a second which layer each thread is in. Time in C (SQLite, hashing, encoding) counts "
    "for its caller."
)
NEEDED = """\
No part of it stands out any more: an effect that shares its flush with others is bound by the
interpreter, not by the disk. What would be needed for the goals on processor time that are not
reached:

- the body of an effect is a task of the user's loop, so that it may do whatever a task may; calling
  bodies that never wait without one would save much of asyncio's share, and change what they see;
- the store's share is mostly SQLite itself: a row, an entry of an index and a head for each run; to
  need fewer of them runs would have to share records;
- the rest is calls of Python functions: an effect takes 2,530 byte codes in 112 calls on the loop's
  thread (counted on Python 3.11), and no function has more than a twentieth of them. Of its 290,000
  instructions of the processor (by callgrind) two thirds are on that thread, a sixth in SQLite.
  Compiling the twenty modules that an effect passes through (with mypyc) made 200 runs at once 5 to
  8 % quicker, and one run not at all; with uvloop in place of asyncio's loop neither changed by
  more than the noise. What is left is to do less.

Other goals that are not reached, by traces of single runs:

- after `carry`, in an app that is open, about 5 ms: 1.5 until the worker is there, 1.3 to read the
  run and be offered it, 1.5 for the first commit of a process, whose connection gets its triggers
  then, and 1 to 2 for what a flow needs once (its signature, its codecs). Opening the file and
  reading its settings back is another 3. Less would mean to prepare it before anybody asks;
- effects one after the other on PostgreSQL: the bare commit itself is 2.9 to 3.9 times as quick as
  Absurd, 3.9 to 5.1 times as quick as Restate, 9 to 13 times as quick as DBOS. To be as far ahead
  as was aimed at, an effect would have to take 1.1 to 1.3 times as long as the bare commit. Of some
  220 µs that it takes longer, the server has 50 to 80 (the head that fences others moves with each
  record; its commit is prepared, and no quicker as one statement), the engine 90, the journal 25,
  the store 45: each is a few dozen calls of Python on a processor that has just been waiting.
"""

WORKS: dict[str, Callable[[App, str], Awaitable[int]]] = {"effects": effects, "starts": starts}


async def look_at(url: str) -> dict[str, Any]:
    """Each work, timed, and then watched."""
    found: dict[str, Any] = {}
    async with outlive.open(url) as app:
        for number in range(WARM_UP):
            await (await app.start(acts, 1, id=f"warm-{number}")).outcome()
        for name, work in WORKS.items():
            began = time.process_time()
            operations = await work(app, f"{name}-timed")
            spent, looker = time.process_time() - began, Looker()
            with looker.looking():
                await work(app, f"{name}-watched")
            found[name] = {
                "operations": operations,
                "cpu_seconds": spent / operations,
                "shares": looker.shares(),
            }
    return found


def written(told: dict[str, Any]) -> list[str]:
    """The page's section."""
    columns = [(store, work, told[store][work]) for work in WORKS for store in told]
    layers = Counter[str]()
    for *_, each in columns:
        layers.update(each["shares"])
    rows = [
        [
            layer,
            *(seconds(each["cpu_seconds"] * each["shares"].get(layer, 0)) for *_, each in columns),
        ]
        for layer, _ in layers.most_common()
    ]
    whole = ["**all of it**", *(f"**{seconds(each['cpu_seconds'])}**" for *_, each in columns)]
    head = ["processor time", *(f"{TITLES[work]}, {store}" for store, work, _ in columns)]
    return ["## Where the time goes", "", WORDS, "", *table(head, [*rows, whole]), "", NEEDED, ""]


def main(words: list[str]) -> None:
    """On both stores."""
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as server:
        told = {
            "SQLite": asyncio.run(look_at(f"sqlite:///{folder}/where.db")),
            "PostgreSQL": asyncio.run(look_at(server.url())),
        }
    text = json.dumps(told, indent=1) + "\n"
    print(text, end="")
    if words:
        Path(words[0]).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
