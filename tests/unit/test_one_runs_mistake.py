"""One run's mistake, however odd, is told to that run; the app and its other runs go on."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import DefinitionRefused, OutliveError, RunError, RunFailed
from outlive.journal.keeper import Keeper
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Entry
from outlive.testing.suite.entries import entry

HALF = "half of an emoji: \ud83d"
LIMIT = "20s"


class Outcry(BaseException):
    """What no ``except Exception`` catches."""


@outlive.step
async def double(number: int) -> int:
    return 2 * number


@outlive.flow(name="mistake_other")
async def other() -> int:
    return await double(2)


async def check_others(app: App) -> None:
    assert 4 == await (await app.start(other)).outcome(LIMIT)


# ---------------------------------------------------------------- texts


@outlive.effect(key="pay:{cents}")
async def pay(cents: int) -> int:
    return cents


@outlive.effect(key=lambda cents: HALF)
async def pay_by_half(cents: int) -> int:
    return cents


ASKS: dict[str, Callable[[], Awaitable[Any]]] = {
    "ask": lambda: outlive.ask(HALF),
    "approve": lambda: outlive.approve(pay, 1, by=HALF),
    "approve by a number": lambda: outlive.approve(pay, 1, by=5),  # type: ignore[arg-type]
    "key": lambda: pay_by_half(1),
    "signal": lambda: outlive.wait_signal(HALF),
    "signal by a number": lambda: outlive.wait_signal(5),  # type: ignore[arg-type]
    "call": lambda: outlive.call(other.options(tags={"t": HALF})),
    "spawn": lambda: outlive.spawn(other.options(pins={"m": HALF})),
}


@pytest.mark.parametrize("name", ASKS)
async def test_texts_that_no_store_keeps_are_refused_in_the_flow(name: str) -> None:
    """A model's text may be cut in half; what is no text never gets as far as the journal."""

    @outlive.flow
    async def asking() -> str:
        try:
            await ASKS[name]()
        except OutliveError as error:
            return str(error)
        return "not refused"

    async with App(MemoryStore()) as app:
        assert "text" in await (await app.start(asking)).outcome(LIMIT)
        await check_others(app)


def test_texts_that_no_store_keeps_are_refused_where_they_are_written() -> None:
    """Versions are texts, too."""
    for options in ({"version": 2}, {"version": HALF}, {"accepts": (1,)}, {"accepts": "1"}):
        with pytest.raises(DefinitionRefused, match="version"):
            outlive.flow(**options)(other.fn)  # type: ignore[call-overload]
    with pytest.raises(DefinitionRefused, match="tags are texts"):
        other.options(tags={"t": HALF})


async def test_a_patch_is_named_by_a_text() -> None:
    """What can't be written is refused before it is recorded."""

    @outlive.flow
    async def patching() -> bool:
        return outlive.patched(HALF)

    async with App(MemoryStore()) as app:
        with pytest.raises(RunFailed, match="a patch is named by a text"):
            await (await app.start(patching)).outcome(LIMIT)
        await check_others(app)


def test_a_run_whose_events_cant_be_written_stops_alone() -> None:
    """The keeper goes on with the others."""
    store = MemoryStore()
    told: dict[str, Any] = {}

    class Here:
        def call_soon(self, callback: Any, *args: Any) -> None: ...

        def call_threadsafe(self, callback: Any, *args: Any) -> None:
            callback(*args)

    class Log:
        side, marked_at, queue = Here(), 0, ()

        def __init__(self, run_id: str) -> None:
            self.run_id = run_id

        def take(self) -> Entry:
            return entry(self.run_id, 0, HALF.encode() if self.run_id == "bad" else b"record")

        def settle(self, upto: int, error: OutliveError | None) -> None:
            told[self.run_id] = error

    keeper = Keeper(store, lambda: None)
    for run_id in ("bad", "good"):
        keeper.mark(Log(run_id))  # type: ignore[arg-type]  # as much of one as it needs
    with suppress(StopIteration):
        keeper.flush_once().send(None)

    assert isinstance(told.pop("bad"), RunError)
    assert {"good": None} == told
    assert keeper.failure is None


# ---------------------------------------------------------------- leaving memory


async def test_a_flow_that_swallows_everything_keeps_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An agent that "never dies" is put to sleep all the same."""

    @outlive.flow
    async def stubborn() -> None:
        while True:
            try:
                await outlive.sleep("1h")
                await double(1)
            except:  # noqa: E722  # this is the mistake
                pass

    async with App(MemoryStore()) as app:
        with caplog.at_level(logging.CRITICAL, "outlive"):
            handle = await app.start(stubborn)
            while "waiting" != await handle.status():
                await asyncio.sleep(0)
        await check_others(app)
    del app, handle
    gc.collect()  # what would not end is not asked again


@pytest.mark.parametrize("raised", [asyncio.CancelledError, Outcry, ValueError])
async def test_a_finally_that_raises_keeps_nobody(raised: type[BaseException]) -> None:
    """Whatever it raises when its run is put to sleep."""

    @outlive.flow
    async def sleeper() -> None:
        try:
            await outlive.sleep("1h")
        finally:
            raise raised

    async with App(MemoryStore()) as app:
        handle = await app.start(sleeper)
        while "waiting" != await handle.status():
            await asyncio.sleep(0)
        await check_others(app)


# ---------------------------------------------------------------- bodies


@outlive.step
def run_dry() -> int:
    return next(iter([]))


@outlive.step
async def give_up() -> int:
    raise GeneratorExit


@outlive.effect(doubt="fail", timeout="1m")
async def give_up_paying() -> int:
    raise GeneratorExit


BODIES: dict[str, tuple[Callable[[], Awaitable[int]], str]] = {
    "StopIteration": (run_dry, "StopIteration"),
    "GeneratorExit": (give_up, "GeneratorExit"),
    "GeneratorExit of an effect": (give_up_paying, "GeneratorExit"),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_body_ends_with_whatever_it_raises(name: str) -> None:
    """Also with what no future can carry."""
    body, words = BODIES[name]

    @outlive.flow
    async def trying() -> int:
        return await body()

    async with App(MemoryStore()) as app:
        with pytest.raises(RunFailed, match=words):
            await (await app.start(trying)).outcome(LIMIT)
        await check_others(app)


async def test_an_error_that_hides_its_arguments_is_an_error_like_others() -> None:
    """Its text is told; what it was made with is not known."""

    class Evil(Exception):
        args = property(lambda self: 1 / 0)  # type: ignore[assignment]

    @outlive.flow
    async def raising() -> None:
        raise Evil("told")

    async with App(MemoryStore()) as app:
        with pytest.raises(RunFailed, match="Evil"):
            await (await app.start(raising)).outcome(LIMIT)
        await check_others(app)


async def test_a_check_is_given_what_was_sent() -> None:
    """Not what the flow has made of it since: then it would not find it, and it is sent twice."""
    sent: list[list[int]] = []
    batch = [1, 2]

    async def find(items: list[int], key: str) -> object:
        return 1 if items in sent else outlive.NOT_HAPPENED

    @outlive.effect(
        check=find, settle_after=0, timeout="5s", retry=outlive.Retry(attempts=3, delay="10ms")
    )
    async def send(items: list[int]) -> int:
        sent.append(list(items))
        while 3 not in batch:
            await asyncio.sleep(0)
        raise ConnectionError("the reply is lost")

    @outlive.flow
    async def sending() -> int:
        task = asyncio.create_task(send(batch))
        await outlive.sleep(0.01)
        batch.append(3)
        return await task

    async with App(MemoryStore()) as app:
        assert 1 == await (await app.start(sending)).outcome(LIMIT)

    assert [[1, 2]] == sent
