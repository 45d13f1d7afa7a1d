"""A store that works elsewhere is given its work before a long turn is over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from outlive.journal.keeper import EARLY_RUNS, Keeper, ThreadKeeper
from outlive.journal.lane import run_immediate
from outlive.journal.log import RunLog
from outlive.model.events import RunStarted
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Entry
from outlive.worker.worker import Worker

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
        self.entries: list[Sequence[Entry]] = []
        self.begun = threading.Event()

    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
        self.entries.append(batch)
        self.begun.set()
        return await super().commit(batch, wait=wait)


class Here(Elsewhere):
    """It works in this process: whatever it does, it takes from the turn."""

    threads = None


def started(run_id: str) -> RunStarted:
    return RunStarted("f", "1", b"", b"", b"", "3.11", 0, run_id, "default")


def start(keeper: Keeper, side: Turn, run_id: str) -> None:
    RunLog(keeper, side, run_id, worker="w").append(started(run_id))


def test_the_first_of_many_runs_are_committed_while_the_turn_goes_on() -> None:
    store, side = Elsewhere(), Turn()
    writer = ThreadKeeper(store)
    for number in range(EARLY_RUNS):
        start(writer.keeper, side, f"first {number}")
    assert store.begun.wait(PATIENCE_SECONDS)
    assert side.told.acquire(timeout=PATIENCE_SECONDS)
    for number in range(3):
        start(writer.keeper, side, f"more {number}")
    assert 1 == len(store.entries)

    side.end()
    writer.close()

    assert [EARLY_RUNS, 3] == [len(batch) for batch in store.entries]
    assert EARLY_RUNS + 3 == len({entry.run_id for batch in store.entries for entry in batch})


def rung(store: Elsewhere, runs: int) -> int:
    """How often the bell rings in a turn in which so many runs have something to write."""
    rings: list[None] = []
    keeper, side = Keeper(store, lambda: rings.append(None)), Turn()
    for number in range(runs):
        start(keeper, side, str(number))
    return len(rings)


def test_the_bell_rings_early_once_for_many_runs() -> None:
    assert 0 == rung(Elsewhere(), EARLY_RUNS - 1)
    assert 1 == rung(Elsewhere(), EARLY_RUNS)
    assert 1 == rung(Elsewhere(), EARLY_RUNS * 3)


def test_a_store_of_this_process_waits_for_the_turn() -> None:
    assert 0 == rung(Here(), EARLY_RUNS * 3)


async def test_a_start_and_its_claim_do_not_come_apart() -> None:
    """However soon the keeper comes: a run that is nobody's would be taken by others."""
    store, side = Elsewhere(), Turn()
    keeper = Keeper(store, lambda: run_immediate(keeper.flush_once()))
    keeper._early = 1  # in the middle of the first append
    begun: list[RunLog] = []

    def log_for(run_id: str) -> RunLog:
        begun.append(RunLog(keeper, side, run_id, worker="w"))
        return begun[-1]

    worker = SimpleNamespace(
        id="w",
        _check_staying=lambda: None,
        _loading=SimpleNamespace(log_for=log_for),
        _begun=lambda *_: None,
        _not_begun=lambda *_: None,
    )
    Worker.start_run(cast("Worker", worker), "r", started("r"))

    ((entry,),) = store.entries
    assert ("take", "w", 2) == (entry.lease, entry.worker, entry.last)
