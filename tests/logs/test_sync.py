"""The synchronous door of a log: from any thread, with or without a loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import outlive
from outlive import App, LogView, LogWrite, PlainLog
from outlive import sync as plain
from outlive.errors import AppClosed, IoInFlow, UsageError

THREADS, EACH = 8, 25


@pytest.fixture
def opened(place: str, key: str | None) -> Iterator[App]:
    """An app that no loop has seen."""
    with outlive.open(place, key=key, drive=False) as app:
        yield app


def count(view: LogView) -> list[int]:
    return [len(view.entries) + 1]


def use(log: PlainLog) -> None:
    """Each verb once."""
    entries = log.append("a", lambda view: LogWrite(values=[1, "x" * 900], tags={"t": "1"}))
    assert ["x" * 900] == [entry.value for entry in log.read("a", after=entries[0].seq)]
    log.append_all(["a", "b"], lambda views: {key: ["both"] for key in views})
    assert ["a", "b"] == [found.key for found in log.find().items]
    assert ["a"] == [found.key for found in log.find(tag=("t", "1")).items]
    assert [] == list(log.due())
    assert 2 == log.drop(["a", "b", "c"])
    assert [] == list(log.find().items)


def test_on_the_main_thread_without_a_loop(opened: App) -> None:
    """Each verb works where nothing is async."""
    use(opened.log("l").sync)


def test_on_a_plain_thread(opened: App) -> None:
    """And on any other thread."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(use, opened.log("l").sync).result()


async def test_inside_a_running_loop(opened: App) -> None:
    """The loop waits for the store, and goes on."""
    use(opened.log("l").sync)


async def test_both_doors_at_once(opened: App) -> None:
    """A loop and eight threads count at the same keys: none is lost, none is told too early."""
    log = opened.log("l")

    def work() -> None:
        for number in range(EACH):
            log.sync.append(f"k{number % 2}", count)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for number in range(EACH):
        await log.append(f"k{number % 2}", count)
        log.sync.append(f"k{number % 2}", count)
    while any(thread.is_alive() for thread in threads):
        await asyncio.sleep(0.01)

    found = [[entry.value for entry in await log.read(key)] for key in ("k0", "k1")]
    assert all(list(range(1, len(some) + 1)) == some for some in found)
    assert (THREADS + 2) * EACH == sum(map(len, found))


def test_eight_threads_share_flushes(opened: App) -> None:
    """Who comes while another commits goes with the next batch."""
    log, group = opened.log("l").sync, opened._logs.group
    gate = threading.Barrier(THREADS)

    def work(number: int) -> None:
        gate.wait()
        for _ in range(EACH):
            log.append(f"k{number}", count)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(work, range(THREADS)))

    assert THREADS * EACH == group.counts.appends
    assert group.counts.commits <= group.counts.appends
    assert all(EACH == len(log.read(f"k{number}")) for number in range(THREADS))


def test_the_plain_app_has_it(place: str, key: str | None) -> None:
    """``outlive.sync`` opens the same, also where a loop runs."""

    async def main() -> None:
        app = plain.open(place, key=key)
        use(app.log("l"))
        await asyncio.to_thread(app.close)

    asyncio.run(main())


def test_a_decision_may_not_append(opened: App) -> None:
    """It would wait for itself."""
    log = opened.log("l").sync

    def decide(view: LogView) -> Any:
        log.append("other", count)

    with pytest.raises(UsageError, match="appends to nothing itself"):
        log.append("a", decide)
    assert 1 == len(log.append("a", count))


def test_flow_code_may_not_either() -> None:
    """A replay would append again: the remedy is a step, where it works."""

    @outlive.flow
    def direct() -> None:
        log.append("a", count)

    @outlive.step
    def noted() -> int:
        return log.append("a", count)[0].value

    @outlive.flow
    async def by_step() -> int:
        return await noted()

    with outlive.open("memory://") as app:
        log = app.log("l").sync
        with pytest.raises((IoInFlow, outlive.errors.OutliveError)):
            app.run(direct)
        assert [] == list(log.read("a"))
        assert 1 == app.run(by_step)


def test_a_closed_app_says_so(opened: App) -> None:
    """Each verb of a log that somebody still has."""
    log = opened.log("l").sync
    opened.close()
    for call in (
        lambda: log.append("a", count),
        lambda: log.read("a"),
        lambda: log.find(),
        lambda: log.drop(["a"]),
    ):
        with pytest.raises(AppClosed):
            call()


def test_an_interrupted_append_leaves_the_door_open(opened: App) -> None:
    """Ctrl-C in a decision ends that call, and nobody waits for ever."""
    log = opened.log("l").sync

    def interrupted(view: LogView) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        log.append("a", interrupted)
    assert 1 == len(log.append("a", count))


def test_a_loop_that_died_is_not_waited_for(opened: App) -> None:
    """What it left is carried out or dropped; others go on."""
    log = opened.log("l")

    async def leave() -> None:
        tasks = [asyncio.create_task(log.append(f"k{n}", count)) for n in range(20)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()

    for _ in range(5):
        asyncio.run(leave())
    until = time.monotonic() + 30
    assert 1 == len(log.sync.append("own", count))
    assert time.monotonic() < until
