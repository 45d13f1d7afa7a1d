"""Code that can't be right: told, and held against the run, whoever catches it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import enumerate as enumerate_threads
from typing import Any

import anyio.to_thread
import pytest

import outlive
from outlive.errors import IoInFlow, RunFailed
from outlive.model.events import EffectIntended, EffectRaised, StepDone
from tests.harness.scene import Scene


@outlive.step
async def search(query: str) -> str:
    return query


@outlive.effect
async def pay() -> None:
    """Always comes off."""


async def failure(scene: Scene, flow: Any, run_id: str = "r") -> RunFailed:
    """How a run of this flow fails."""
    handle = await scene.open().start(flow, id=run_id)
    with pytest.raises(RunFailed) as failed:
        await scene.outcome(handle)
    return failed.value


# ---------------------------------------------------------------- never awaited


async def test_a_step_that_is_never_awaited_fails_the_run(scene: Scene) -> None:
    """It was not done, and the flow thinks that it was."""

    @outlive.flow
    async def forgetful() -> str:
        await search("one")
        search("two")  # type: ignore[unused-coroutine]
        return await search("three")

    failed = await failure(scene, forgetful)

    assert failed.type_name == "NeverAwaited"
    assert "search was called and never awaited" in failed.message


@pytest.mark.parametrize("verb", ["effect", "sleep", "kept"])
async def test_whatever_must_be_awaited_is_told_by_name(scene: Scene, verb: str) -> None:
    """An effect, a verb of ours, and what was kept in a variable."""

    @outlive.flow
    async def forgetful() -> str:
        kept = []
        match verb:
            case "effect":
                pay()  # type: ignore[unused-coroutine]
            case "sleep":
                outlive.sleep("1s")  # type: ignore[unused-coroutine]
            case _:
                kept.append(search("two"))
        return await search(str(len(kept)))

    failed = await failure(scene, forgetful)

    assert {"effect": "pay", "sleep": "outlive.sleep", "kept": "search"}[verb] in failed.message


async def test_what_is_awaited_later_or_cancelled_is_no_mistake(scene: Scene) -> None:
    """Kept for gather, given to a task that is cancelled before it began, closed."""

    @outlive.flow
    async def fine() -> list[str]:
        calls: list[Any] = [search(str(number)) for number in range(3)]
        await search("before")
        calls.append(asyncio.ensure_future(search("cancelled")))
        search("closed").close()  # type: ignore[attr-defined]
        return await asyncio.gather(*calls[:3])

    handle = await scene.open().start(fine, id="r")
    assert await scene.outcome(handle) == ["0", "1", "2"]


async def test_many_awaited_calls_are_not_kept(scene: Scene, monkeypatch: Any) -> None:
    """A flow may go on for ever."""
    monkeypatch.setattr("outlive.engine.calls.CALLED_MAX", 10)
    most = 0

    @outlive.flow
    async def long() -> None:
        nonlocal most
        for _ in range(10):
            await asyncio.gather(*(search("x") for _ in range(4)))
            await outlive.sleep(0)
            here: Any = outlive.engine.place.place.get()
            most = max(most, len(here.drive.called))

    await scene.outcome(await scene.open().start(long, id="r"))
    assert most < 20


# ---------------------------------------------------------------- refusals stick


async def test_io_in_a_flow_fails_the_run_whoever_catches_it(scene: Scene) -> None:
    """And nothing more is begun."""

    @outlive.flow
    async def stubborn() -> str:
        with suppress(IoInFlow):
            await asyncio.open_connection("localhost", 1)
        with suppress(Exception):
            await pay()
        return "as if nothing had happened"

    failed = await failure(scene, stubborn)

    assert failed.type_name == "IoInFlow"
    cause = failed.__cause__
    assert cause is not None
    assert "in test_io_in_a_flow" in "".join(cause.__notes__)
    handle = await scene.open().get("r")
    assert [] == await scene.events(handle, EffectIntended)


@pytest.mark.parametrize("kind", [outlive.step, outlive.effect], ids=["step", "effect"])
async def test_the_leaf_rule_fails_the_run_whoever_catches_it(scene: Scene, kind: Any) -> None:
    """The body that catches it, and the flow that does."""

    @kind
    async def outer() -> str:
        with suppress(Exception):
            await pay()
        return "as if it had paid"

    @outlive.flow
    async def nested() -> str:
        with suppress(Exception):
            return await outer()  # type: ignore[no-any-return]
        with suppress(Exception):
            await search("more")
        return "caught"

    failed = await failure(scene, nested)

    assert failed.type_name == "InsideStep"
    handle = await scene.open().get("r")
    assert [] == await scene.events(handle, StepDone)
    happened = [event.happened for event in await scene.events(handle, EffectRaised)]
    assert happened == ([] if kind is outlive.step else [True])


async def test_the_store_is_not_touched_by_a_flow_whoever_catches_it(scene: Scene) -> None:
    """Nor by a framework that it calls."""

    @outlive.flow
    async def reaching() -> str:
        with suppress(Exception):
            await outlive.start(reaching, id="another")
        return "as if it had been started"

    failed = await failure(scene, reaching)

    assert failed.type_name == "UsageError"


# ---------------------------------------------------------------- threads


async def to_thread() -> None:
    await asyncio.to_thread(int)


async def by_executor() -> None:
    await asyncio.get_running_loop().run_in_executor(None, int)


async def by_anyio() -> None:
    await anyio.to_thread.run_sync(int)


@pytest.mark.parametrize("call", [to_thread, by_executor, by_anyio])
async def test_threads_in_flow_code_are_refused_with_the_remedy(scene: Scene, call: Any) -> None:
    """Frameworks do so with plain tools; the remedy is theirs."""

    @outlive.flow
    async def threading() -> str:
        with suppress(Exception):
            await call()
        return "computed"

    failed = await failure(scene, threading)

    assert failed.type_name == "IoInFlow"
    for word in ("asyncio.to_thread", "anyio.to_thread", "@outlive.step", "`async def`"):
        assert word in failed.message
    left = [thread for thread in enumerate_threads() if thread.name == "AnyIO worker thread"]
    for thread in left:
        thread.join(60)
        assert not thread.is_alive(), "it would keep the process for ever"
