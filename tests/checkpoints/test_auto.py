"""Runs whose steps are saved by themselves: at their boundaries, with retries, once each."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from outlive import Retry
from outlive.checkpoints import DurableRunner, SnapshotStore, current_run
from outlive.errors import UsageError

QUICK = Retry(attempts=3, delay=0)


class Crash(BaseException):
    """The process dies here, as far as this code can tell."""


async def story(runner: DurableRunner, ran: list[str], crash_at: int | None = None) -> list[Any]:
    """Three steps that change the state, one of them twice."""

    @runner.step
    async def add(state: dict[str, Any], text: str) -> tuple[str, int]:
        if len(ran) == crash_at:
            raise Crash
        ran.append(text)
        state.setdefault("texts", []).append(text)
        return text, len(state["texts"])

    async with runner.auto("r", {"texts": ["begin"]}) as run:
        told: list[Any] = [await add(run.state, text) for text in ("a", "b", "c")]
        told.append(await run.step("sum", total, run.state))
        return [*told, run.state]


async def total(state: dict[str, Any]) -> int:
    return len(state["texts"])


@pytest.mark.parametrize("crash_at", [None, 0, 1, 2])
async def test_steps_that_are_done_are_not_run_again(path: Path, crash_at: int | None) -> None:
    """Wherever it died: the same outcomes, the same state, each step once."""
    ran: list[str] = []
    if crash_at is not None:
        with pytest.raises(Crash):
            async with SnapshotStore(f"sqlite:///{path}") as store:
                await story(DurableRunner(store), ran, crash_at)
    for _ in range(2):
        async with SnapshotStore(f"sqlite:///{path}") as store:
            runner = DurableRunner(store)
            told = await story(runner, ran)
            steps = [each.step_id for each in await runner.list_checkpoints("r")]
        expected = [("a", 2), ("b", 3), ("c", 4), 4, {"texts": ["begin", "a", "b", "c"]}]
        assert expected == told
        assert ["add", "add#2", "add#3", "sum"] == steps

    assert ["a", "b", "c"] == ran


async def test_a_failed_step_leaves_no_trace_and_is_tried_again(
    runner: DurableRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt finds the state as the first did; pauses grow; only good ends are saved."""
    paused: list[float] = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    seen: list[dict[str, Any]] = []
    retry = Retry(attempts=4, delay="1s", factor=2, jitter=False)

    @runner.step(retry=retry)
    async def flaky(state: dict[str, Any]) -> str:
        seen.append({**state, "items": list(state["items"])})
        state["items"].append(len(seen))
        state["half"] = True
        if len(seen) < 4:
            raise OSError("down")
        return "up"

    async with runner.auto("r", {"items": [0]}) as run:
        mine = run.state
        assert "up" == await flaky(run.state)
        assert mine is run.state

    assert [{"items": [0]}] * 4 == seen
    assert [1.0, 2.0, 4.0] == paused
    (only,) = await runner.list_checkpoints("r")
    assert {"items": [0, 4], "half": True} == only.state


async def test_an_error_that_is_not_worth_it_is_not_tried_again(runner: DurableRunner) -> None:
    """And when attempts are used up the run fails, and can be gone on with."""
    calls: list[int] = []
    words = ["first"]

    async def one() -> str:
        return words.pop()

    async def broken() -> None:
        calls.append(len(calls))
        raise ValueError("no")

    only_os = DurableRunner(runner.store, retry=Retry(attempts=5, delay=0, only=(OSError,)))

    async def play(runner: DurableRunner) -> None:
        async with runner.auto("r") as run:
            assert "first" == await run.step("one", one)
            await run.step("two", broken)

    with pytest.raises(ValueError, match="no"):
        await play(only_os)
    assert [0] == calls
    told = [event async for event in runner.events("r")]
    assert ("run.ended", "failed", "ValueError: no") == tuple(
        told[-1][name] for name in ("event_type", "status", "error")
    )
    with pytest.raises(ValueError, match="no"):
        await play(DurableRunner(runner.store, retry=QUICK))

    assert 4 == len(calls)


async def test_one_can_go_back_to_a_step(runner: DurableRunner) -> None:
    """What came behind it no longer counts, is run again, and stays in the history."""
    async with runner.auto("r", {"n": 0}) as run:
        for number in range(4):
            run.state["n"] = number
            await run.checkpoint(f"s{number}")
        state = await run.rollback("s1", why="the model changed its mind")
        assert state is run.state
        assert {"n": 1} == state
        assert {"s0", "s1"} == run.done
        run.state["n"] = 22
        await run.checkpoint("s2")

    assert ["s0", "s1", "s2"] == [each.step_id for each in await runner.list_checkpoints("r")]
    assert {"n": 22} == await runner.resume("r")
    history = await runner.history("r")
    assert [True, True, False, False, True] == [each.is_current for each in history]
    old = await runner.store.get_snapshot("r", history[3].seq)
    assert old is not None
    assert {"n": 3} == old.state
    assert {"n": 0} == await runner.rollback("r", "s0")
    with pytest.raises(UsageError, match="run r has no checkpoint of step 's2'; the last are s0"):
        await runner.rollback("r", "s2")


async def test_auto_snapshots_can_be_turned_off(snapshots: SnapshotStore) -> None:
    """Then only what the user saves is saved."""
    runner = DurableRunner(snapshots, enable_auto_snapshot=False)
    async with runner.auto("r") as run:
        assert 1 == await run.step("one", asyncio.sleep, 0, 1)
        run.state["n"] = 1
        await run.checkpoint("mine")

    assert ["mine"] == [each.step_id for each in await runner.list_checkpoints("r")]


async def test_what_succeeded_can_be_cleaned_up_at_once(runner: DurableRunner) -> None:
    """And what did not succeed never is."""

    async def play(divisor: int) -> None:
        async with runner.auto("r", cleanup=True) as run:
            await run.checkpoint("s")
            assert 1 // divisor

    with pytest.raises(ZeroDivisionError):
        await play(0)
    assert 1 == len(await runner.list_checkpoints("r"))
    await play(1)

    assert [] == await runner.store.runs()


async def test_steps_of_a_run_come_one_after_the_other(runner: DurableRunner) -> None:
    """Side by side they would share one state; inside a step they are plain calls."""

    @runner.step
    async def inner() -> str:
        await asyncio.sleep(0)
        return "inner"

    @runner.step
    async def outer() -> str:
        assert current_run() is not None
        return "outer " + await inner()

    assert "inner" == await inner()
    async with runner.auto("r") as run:
        assert "outer inner" == await outer()
        assert {"outer"} == run.done
        with pytest.raises(UsageError, match="step inner was called while another step of run r"):
            await asyncio.gather(inner(), inner())
    assert current_run() is None
