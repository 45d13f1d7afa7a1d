"""Queues as users meet them: declared, submitted to, limited, looked at."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import DefinitionRefused, TimedOut, UsageError
from outlive.stores.memory import MemoryStore
from tests.queues.conftest import STAYING, OpenApp


class Crowd:
    """Counts who is at work, by tenant and in all."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[str] = []

    async def visit(self, tenant: str) -> None:
        for name in (tenant, "all"):
            self.now[name] += 1
            self.most[name] = max(self.most[name], self.now[name])
        self.order.append(tenant)
        await asyncio.sleep(0.01)
        for name in (tenant, "all"):
            self.now[name] -= 1


crowd = Crowd()


@pytest.fixture(autouse=True)
def empty_crowd() -> None:
    crowd.__init__()  # type: ignore[misc]  # a new one at the same place


@outlive.step
async def visit(tenant: str) -> None:
    await crowd.visit(tenant)


@outlive.flow(queue="models")
async def visiting(tenant: str) -> str:
    await visit(tenant)
    return tenant


@outlive.flow(queue="models")
async def pausing(tenant: str) -> str:
    await visit(tenant)
    await outlive.sleep(0.02)
    await visit(tenant)
    return tenant


@outlive.flow(queue="models")
async def leading(depth: int) -> str:
    """Waits for a run of the same queue, with a time limit that keeps it in memory."""
    if not depth:
        await visit("last")
        return "deep"
    async with outlive.timeout(50):
        return await outlive.call(leading, depth - 1) + "."


@outlive.flow
async def parental(units: int) -> str:
    return await outlive.call(visiting.options(units=units), "child")


ALL = [visiting, pausing, leading]


async def outcomes(handles: list[outlive.Handle[str]]) -> list[str]:
    async with asyncio.timeout(60):
        return list(await asyncio.gather(*(handle.outcome() for handle in handles)))


async def test_workers_together_keep_the_limits(open_app: OpenApp) -> None:
    """Two workers never drive more than the queue allows, in all and per key."""
    models = outlive.Queue("models", concurrency=3, per_key=2)
    first, second = open_app(), open_app()
    async with first.worker(ALL, queues=[models]), second.worker(ALL, queues=["models"]):
        handles = [
            await first.submit(pausing, tenant, queue_key=tenant)
            for tenant in ["a"] * 8 + ["b"] * 4 + ["c"] * 2
        ]

        assert 14 == len(await outcomes(handles))

    assert 3 >= crowd.most["all"]
    assert 2 >= crowd.most["a"]


async def test_a_worker_keeps_its_own_limit(open_app: OpenApp) -> None:
    """Each holds so many, however many others there are."""
    app = open_app()
    await app.set_queue(outlive.Queue("models", per_worker=2))
    async with app.worker(ALL) as worker:
        handles = [await app.submit(visiting, "x") for _ in range(6)]
        while await handles[-1].status() != "completed":
            assert len(worker.driving) <= 2
            await asyncio.sleep(0.001)
        await outcomes(handles)

    assert 2 >= crowd.most["all"]


async def test_what_is_started_here_waits_for_its_turn(open_app: OpenApp) -> None:
    """``start`` goes through the same gate as ``submit``."""
    app = open_app()
    await app.set_queue(outlive.Queue("models", concurrency=1))

    handles = [await app.start(visiting, "x") for _ in range(5)]

    assert 5 == len(await outcomes(handles))
    assert 1 == crowd.most["all"]


async def test_who_waits_in_memory_makes_way(open_app: OpenApp) -> None:
    """A parent that waits for a child of its own queue gives it its place."""
    app = open_app()
    await app.set_queue(outlive.Queue("models", concurrency=1))
    async with app.worker(ALL):
        assert ["deep..."] == await outcomes([await app.submit(leading, 3)])
    assert ["deep.."] == await outcomes([await app.start(leading, 2)])


async def test_a_worker_of_one_queue_leaves_the_others(open_app: OpenApp) -> None:
    """It takes what is in its queues and nothing else."""
    app = open_app()
    async with app.worker(ALL, queues=["models"]):
        here = await app.submit(visiting, "here")
        there = await app.submit(visiting, "there", queue="other")
        plain = await app.submit(visiting, "plain", queue="default")
        assert ["here"] == await outcomes([here])
        for handle in (there, plain):
            with pytest.raises(TimedOut):
                await handle.outcome(timeout=0.1)
    async with app.worker(ALL, queues=["other", "default"]):
        assert ["there", "plain"] == await outcomes([there, plain])


async def test_priorities_and_keys(open_app: OpenApp) -> None:
    """Lower numbers go first; among equals the keys take turns."""
    app = open_app()
    await app.set_queue(outlive.Queue("models", concurrency=1))
    calls = [("a", 0)] * 3 + [("b", 0), ("c", 0), ("late", 9), ("first", -5)]
    handles = [
        await app.submit(visiting, tenant, queue_key=tenant, priority=priority)
        for tenant, priority in calls
    ]
    async with app.worker(ALL):
        await outcomes(handles)

    assert ("first", "late") == (crowd.order[0], crowd.order[-1])
    assert {"a", "b", "c"} == set(crowd.order[1:4])


async def test_a_rate_paces_starts(open_app: OpenApp) -> None:
    """What the stretch has no units for waits, and is shown as waiting."""
    app = open_app()
    await app.set_queue(outlive.Queue("models", rate=outlive.Rate(1000, per="1h")))
    async with app.worker(ALL):
        first = await app.submit(visiting, "x", units=700)
        second = await app.submit(visiting, "y", units=301)
        assert ["x"] == await outcomes([first])
        with pytest.raises(TimedOut):
            await second.outcome(timeout=0.1)
        (state,) = await app.queues()
        assert (1, 0, 700) == (state.waiting, state.held, state.spent)

        await app.set_queue(outlive.Queue("models", rate=outlive.Rate(1001, per="1h")))
        assert ["y"] == await outcomes([second])


async def test_a_rate_that_is_lowered_keeps_nobody_out(open_app: OpenApp) -> None:
    """A run that exceeds it alone begins when nothing else counts, and takes all of it."""
    app = open_app()
    dear = await app.submit(visiting, "dear", units=50)
    await app.set_queue(outlive.Queue("models", rate=outlive.Rate(10, per="1h")))
    cheap = await app.submit(visiting, "cheap")
    async with app.worker(ALL):
        assert ["dear"] == await outcomes([dear])
        with pytest.raises(TimedOut):
            await cheap.outcome(timeout=0.1)
        assert 10 == (await app.queues())[0].spent

        await app.set_queue(outlive.Queue("models", rate=outlive.Rate(11, per="1h")))
        assert ["cheap"] == await outcomes([cheap])


async def test_a_child_may_exceed_the_rate_alone(open_app: OpenApp) -> None:
    """Its parent does not wait for ever."""
    app = open_app()
    await app.set_queue(outlive.Queue("models", rate=outlive.Rate(10, per="1h")))
    async with app.worker([*ALL, parental]):
        assert ["child"] == await outcomes([await app.submit(parental, 99)])


async def test_the_same_id_is_the_same_run(open_app: OpenApp) -> None:
    """Submitted twice under one id a run waits once and runs once."""
    app = open_app()
    first = await app.submit(visiting, "x", id="once")
    second = await app.submit(visiting, "x", id="once")
    assert 1 == (await app.queues())[0].waiting
    async with app.worker(ALL):
        assert ["x", "x"] == await outcomes([first, second])
    assert ["x"] == crowd.order


async def test_a_declaration_changes_no_limits_that_are_set(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    """The store's limits hold; a worker that declares others is told so."""
    app = open_app()
    await app.set_queue(outlive.Queue("models", concurrency=3))

    with caplog.at_level(logging.WARNING, "outlive"):
        async with app.worker(ALL, queues=[outlive.Queue("models", concurrency=5)]):
            pass

    assert "3 at once" in caplog.text
    assert "5 at once" in caplog.text
    (state,) = await app.queues()
    assert state.limits is not None
    assert 3 == state.limits.concurrency


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"queue": ""}, "named by a text"),
        ({"queue": 5}, "named by a text"),
        ({"queue": "\ud800"}, "lone surrogate"),
        ({"queue": "q", "queue_key": "x" * 201}, "queue_key"),
        ({"queue": "q", "queue_key": "x\udfff"}, "lone surrogate"),
        ({"queue": "q", "priority": 101}, "priority=101"),
        ({"queue": "q", "priority": "high"}, "priority='high'"),
        ({"queue": "q", "units": 0}, "units=0"),
        ({"queue": "default", "units": 2}, "add queue="),
    ],
)
def test_options_that_make_no_sense(options: dict[str, object], why: str) -> None:
    """Each is refused at once, and the line says what to write."""
    with pytest.raises(DefinitionRefused, match=why):
        visiting.options(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "limits", "why"),
    [
        ("default", {}, "name another one"),
        ("", {}, "named by a text"),
        ("q", {"concurrency": 0}, "concurrency=0"),
        ("q", {"per_key": True}, "per_key=True"),
        ("q", {"per_worker": 1.5}, "per_worker=1.5"),
        ("q", {"rate": 100}, "outlive.Rate"),
    ],
)
def test_queues_that_make_no_sense(name: str, limits: dict[str, object], why: str) -> None:
    """A limit is a whole number from 1 on."""
    with pytest.raises(DefinitionRefused, match=why):
        outlive.Queue(name, **limits)  # type: ignore[arg-type]


def test_a_rate_needs_a_time() -> None:
    """From a millisecond to a year."""
    with pytest.raises(DefinitionRefused, match="units=0"):
        outlive.Rate(0)
    with pytest.raises(DefinitionRefused, match="from a millisecond"):
        outlive.Rate(1, per=0)


async def test_more_than_a_rate_ever_allows_is_refused(open_app: OpenApp) -> None:
    """Such a run would wait for ever."""
    app = open_app()
    await app.set_queue(outlive.Queue("models", rate=outlive.Rate(100)))

    for verb in (app.submit, app.start):
        with pytest.raises(UsageError, match=r"units=101 is more than queue 'models'"):
            await verb(visiting.options(units=101), "x")
    assert [] == list((await app.find()).items)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"flows": visiting}, r"a list of flows: write \[visiting\]"),
        ({"flows": [visit]}, "is not a flow"),
        ({"flows": ALL, "queues": "models"}, "queues='models': a worker takes a list"),
        ({"flows": ALL, "queues": outlive.Queue("q", per_key=1)}, "a worker takes a list"),
        ({"flows": ALL, "queues": [outlive.Queue("q", per_key=1), 5]}, "named by a text"),
        ({"flows": [5], "queues": [outlive.Queue("q", per_key=1)]}, "5 is not a flow"),
        ({"flows": ALL, "concurrency": 0}, "concurrency=0"),
        ({"flows": ALL, "concurrency": -1}, "concurrency=-1"),
    ],
)
async def test_workers_that_make_no_sense(options: dict[str, Any], why: str) -> None:
    """Each is refused before anything is written."""
    async with App(MemoryStore(), settings=STAYING) as app:
        with pytest.raises(UsageError, match=why):
            async with app.worker(**options):
                pass
        assert [] == list(await app.queues())


async def test_limits_are_those_of_a_queue() -> None:
    """A name alone sets none."""
    async with App(MemoryStore(), settings=STAYING) as app:
        with pytest.raises(UsageError, match="'models' is not a Queue"):
            await app.set_queue("models")  # type: ignore[arg-type]
