"""A store that works elsewhere is given its work before a long turn is over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from outlive.journal.keeper import EARLY_RUNS, ThreadKeeper
from outlive.journal.log import RunLog
from outlive.model.events import RunStarted
from outlive.store import Conflict, Entry
from outlive.stores.memory import MemoryStore

PATIENCE_SECONDS = 10.0


class Turn:
    """A side in the middle of a turn: what it is to call later waits for its end."""

    def __init__(self) -> None:
        self.later: list[Callable[[], object]] = []
        self.told = threading.Semaphore(0)

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        self.later.append(partial(callback, *args))

    def call_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        callback(*args)
        self.told.release()

    def end(self) -> None:
        for call in self.later:
            call()


class Elsewhere(MemoryStore):
    """As a server: it does its work while others do theirs."""

    threads: int | None = 8

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []
        self.begun = threading.Event()

    async def commit(self, batch: Sequence[Entry]) -> Sequence[Conflict | None]:
        self.batches.append([entry.run_id for entry in batch])
        self.begun.set()
        return await super().commit(batch)


class Here(Elsewhere):
    """It works in this process: whatever it does, it takes from the turn."""

    threads = None


def start(writer: ThreadKeeper, side: Turn, run_id: str) -> None:
    log = RunLog(writer.keeper, side, run_id, worker="w")
    log.append(RunStarted("f", "1", b"", b"", b"", "3.11", 0, run_id, "default"))


def test_the_first_of_many_runs_are_committed_while_the_turn_goes_on() -> None:
    store, side = Elsewhere(), Turn()
    writer = ThreadKeeper(store)
    for number in range(EARLY_RUNS):
        start(writer, side, f"first {number}")
    assert store.begun.wait(PATIENCE_SECONDS)
    assert side.told.acquire(timeout=PATIENCE_SECONDS)
    for number in range(3):
        start(writer, side, f"more {number}")
    assert 1 == len(store.batches)

    side.end()
    writer.close()

    assert [EARLY_RUNS, 3] == [len(batch) for batch in store.batches]
    assert EARLY_RUNS + 3 == len({run_id for batch in store.batches for run_id in batch})


def test_a_few_share_a_flush_at_the_end_of_the_turn() -> None:
    store, side = Elsewhere(), Turn()
    writer = ThreadKeeper(store)
    for number in range(EARLY_RUNS - 1):
        start(writer, side, str(number))

    side.end()
    writer.close()

    assert [EARLY_RUNS - 1] == [len(batch) for batch in store.batches]


def test_a_store_of_this_process_waits_for_the_turn() -> None:
    store, side = Here(), Turn()
    writer = ThreadKeeper(store)
    for number in range(EARLY_RUNS * 2):
        start(writer, side, str(number))
    assert not store.begun.is_set()

    side.end()
    writer.close()

    assert [EARLY_RUNS * 2] == [len(batch) for batch in store.batches]
