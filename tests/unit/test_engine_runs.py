"""Runs: their ids, who may go on with them, and how the app that drives them ends."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import (
    AppClosed,
    RunFailed,
    RunIdRefused,
    RunIdTaken,
    RunNotFound,
    TimedOut,
    UsageError,
)
from outlive.model.events import Claimed, StepDone
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.sqlite.store import SQLiteStore
from tests.harness.scene import STAYING, Scene

QUICK = Settings(lease_seconds=1.0, poll_seconds=0.02, idle_seconds=60.0)


@outlive.step
async def add(number: int) -> int:
    return number + 1


@outlive.flow
async def counting(number: int, table: dict[str, int] | None = None) -> int:
    return await add(number) + sum((table or {}).values())


@outlive.flow
async def other(number: int) -> int:
    return number


# ---------------------------------------------------------------- ids


async def test_the_same_id_with_the_same_arguments_goes_on(scene: Scene) -> None:
    """A run that is over gives its outcome again; nothing is run or written."""
    first = await scene.open().start(counting, 1, id="r")
    assert await scene.outcome(first) == 2
    before = await first.read()

    again = await scene.open().start(counting, number=1, id="r")

    assert await scene.outcome(again) == 2
    assert await again.read() == before


async def test_a_run_that_failed_fails_again_in_the_same_way(scene: Scene) -> None:
    """Its outcome is its error; it is not run once more."""
    ran: list[int] = []

    @outlive.flow
    async def failing() -> None:
        ran.append(1)
        raise KeyError("no")

    for _ in range(2):
        with pytest.raises(RunFailed, match="KeyError") as caught:
            await scene.run(failing)
        assert isinstance(caught.value.__cause__, KeyError)
    assert ran == [1]


async def test_the_order_of_a_dict_makes_no_other_run(scene: Scene) -> None:
    """Equal arguments are equal."""
    await scene.run(counting, 1, {"a": 1, "b": 2})

    assert await scene.run(counting, 1, {"b": 2, "a": 1}) == 5


@pytest.mark.parametrize("verb", ["start", "submit"])
async def test_an_id_belongs_to_one_flow_and_its_arguments(scene: Scene, verb: str) -> None:
    """Anything else under that id is refused, and changes nothing."""
    await scene.run(counting, 1)
    app = scene.open()
    before = await (await app.get("r")).read()

    with pytest.raises(RunIdTaken, match="other arguments"):
        await getattr(app, verb)(counting, 2, id="r")
    with pytest.raises(RunIdTaken, match="counting"):
        await getattr(app, verb)(other, 1, id="r")

    assert await (await app.get("r")).read() == before


async def test_a_run_without_an_id_gets_one(scene: Scene) -> None:
    """Two of them are two runs."""
    app = scene.open()

    one, two = await app.start(other, 1), await app.start(other, 1)

    assert one.id != two.id
    assert [await scene.outcome(one), await scene.outcome(two)] == [1, 1]


@pytest.mark.parametrize("run_id", ["", "\0", "x" * 600, "key/x", "\ud800", 7])
async def test_impossible_ids_are_refused(scene: Scene, run_id: Any) -> None:
    """By every verb that takes one."""
    app = scene.open()

    for verb in (app.start(other, 1, id=run_id), app.submit(other, 1, id=run_id)):
        with pytest.raises(RunIdRefused):
            await verb


async def test_an_unknown_run_is_not_found(scene: Scene) -> None:
    """The error names it."""
    app = scene.open()

    for verb in (app.get("nobody"), app.nudge("nobody", ""), app.resolve("nobody", "s", "fail")):
        with pytest.raises(RunNotFound, match="nobody"):
            await verb


async def test_what_is_no_flow_is_refused(scene: Scene) -> None:
    """Before anything happens."""
    with pytest.raises(UsageError, match="not a flow"):
        await scene.open().start(add, 1)  # type: ignore[arg-type]  # that is the point


async def test_waiting_has_a_limit_and_the_run_none(scene: Scene) -> None:
    """A time-out of whoever waits does not touch the run."""

    @outlive.flow
    async def slow() -> str:
        await outlive.sleep("1h")
        return "done"

    handle = await scene.open(STAYING).start(slow, id="r")
    waiting = asyncio.ensure_future(handle.outcome("1m"))
    await scene.until(waiting.done, step=1)

    with pytest.raises(TimedOut, match="goes on as it can"):
        waiting.result()
    assert await scene.outcome(handle, step=60) == "done"


async def test_a_submitted_run_waits_for_a_worker(scene: Scene) -> None:
    """Nothing is driven where it was submitted."""
    handle = await scene.open().submit(counting, 1, id="r")
    assert await handle.status() == "pending"

    async with scene.open().worker([counting, other]):
        assert await scene.outcome(handle) == 2


async def test_a_worker_leaves_alone_what_it_does_not_know(scene: Scene) -> None:
    """A flow that is not registered here is somebody else's."""
    handle = await scene.open().submit(counting, 1, id="r")

    async with scene.open().worker([other]):
        for _ in range(50):
            scene.clock.advance(0.1)
            await asyncio.sleep(0)

    assert await handle.status() == "pending"
    assert not await scene.events(handle, Claimed)


async def test_events_come_as_they_become_durable(scene: Scene) -> None:
    """Every event once, in order, until the run is over."""
    handle = await scene.open().start(counting, 1, id="r")
    await scene.outcome(handle)

    seen = [event.raw async for event in handle.events()]

    assert seen == await handle.read()
    assert [type(event) for event in seen][2:3] == [StepDone]


# ---------------------------------------------------------------- lives and deaths of an app


def test_run_works_from_plain_code(tmp_path: Path) -> None:
    """Start or go on, and return the outcome; the file is closed again."""
    url = f"sqlite:///{tmp_path}/runs.db"

    assert outlive.run(counting, 1, id="r", store=url) == 2
    assert outlive.run(counting, 1, id="r", store=url) == 2
    with pytest.raises(RunIdTaken):
        outlive.run(counting, 2, id="r", store=url)


async def test_run_where_a_loop_runs_names_the_other_way(tmp_path: Path) -> None:
    """Blocking a running loop would be a trap."""
    with pytest.raises(UsageError, match=r"await outlive\.start"):
        outlive.run(counting, 1, store=f"sqlite:///{tmp_path}/runs.db")


async def test_a_closed_app_starts_nothing() -> None:
    """Closing twice is fine; anything else is refused."""
    app = App(MemoryStore(), settings=QUICK)
    await app.aclose()
    app.close()

    with pytest.raises(AppClosed):
        await app.start(counting, 1)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_after_a_fork_the_childs_app_is_closed(tmp_path: Path) -> None:
    """Two processes can't share threads, locks and connections; the parent's goes on."""
    async with App(SQLiteStore(tmp_path / "runs.db"), settings=QUICK) as app:
        assert await (await app.start(counting, 1, id="before")) == 2
        child = os.fork()
        if child == 0:
            os._exit(_code_of_child(app))
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        assert await (await app.start(counting, 2, id="after")) == 3


def _code_of_child(app: App) -> int:
    """0 if every way in is closed and closing is harmless."""
    verbs = (app.start(counting, 1), app.submit(counting, 1), app.get("before"), app.find())
    refused = 0
    for verb in verbs:
        try:
            verb.send(None)
        except AppClosed:
            refused += 1
        except BaseException as error:
            print(f"not refused: {error!r}", file=sys.stderr)
    app.close()
    return 0 if refused == len(verbs) else 1


@pytest.mark.alone("processes")
async def test_a_flow_that_blocks_its_loop_keeps_its_lease(tmp_path: Path) -> None:
    """Beats come from a thread of their own: nobody takes the run over meanwhile."""
    begun = tmp_path / "begun"

    @outlive.flow
    async def blocking() -> str:
        begun.touch()
        time.sleep(2.5 * QUICK.lease_seconds)  # that is the point
        return "done"

    def watch() -> list[str]:
        """Another process's worker, on a loop and connection of its own."""

        async def main() -> list[str]:
            rival = App(SQLiteStore(path, lease_seconds=1.0), settings=QUICK)
            async with rival, rival.worker([blocking]) as worker:
                taken: list[str] = []
                while not over:
                    taken += worker.driving
                    await asyncio.sleep(0.01)
                return taken

        return asyncio.run(main())

    path = tmp_path / "runs.db"
    over: list[bool] = []
    async with App(SQLiteStore(path, lease_seconds=1.0), settings=QUICK) as app:
        watching = asyncio.get_running_loop().run_in_executor(None, watch)
        handle = await app.start(blocking, id="r")
        outcome = await handle.outcome("20s")
        over.append(True)

        assert outcome == "done"
        assert await watching == []
        claims = [event for event in await handle.read() if isinstance(event, Claimed)]
        assert len(claims) == 1
