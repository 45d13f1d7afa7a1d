"""What a fresh look at the short ways found: ends of all kinds, answers, contexts, old mail."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import outlive
from outlive.app.app import App
from outlive.engine.host import LoopHost
from outlive.errors import CorruptRecord, RunFailed, StoreFailed
from outlive.journal.keeper import Answer, Loose, ThreadKeeper
from outlive.journal.lane import QUICK_TIMES
from outlive.journal.reader import read_first
from outlive.model.events import RunStarted
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Entry, Mail
from outlive.testing.clock import FakeClock
from outlive.testing.suite.entries import entry, post_one
from outlive.worker.entries import start_entry
from outlive.worker.neighbours import Postman

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


class Outcry(BaseException):
    """What no ``except Exception`` catches, as test frameworks raise it."""


@outlive.step
async def cry() -> str:
    raise Outcry("from a step")


@outlive.effect(doubt="fail", timeout="1m")
async def cry_out() -> str:
    raise Outcry("from an effect")


@outlive.flow
async def crying(*, loudly: bool) -> str:
    return await (cry_out() if loudly else cry())


@outlive.flow
async def whose() -> str:
    return tenant.get()


@pytest.mark.parametrize("loudly", [False, True])
async def test_a_body_that_raises_no_exception_has_ended(*, loudly: bool) -> None:
    """A step or effect ends with whatever its body raises; its run does not wait for ever."""
    async with App(MemoryStore()) as app:
        handle = await app.start(crying.options(id="r"), loudly=loudly)
        with pytest.raises(RunFailed, match="Outcry"):
            await handle.outcome("10s")


async def test_a_flow_begins_in_the_context_of_its_caller() -> None:
    """Whichever thread wrote its start, and whatever else happened in that turn."""
    async with App(MemoryStore()) as app:
        for number in range(2 * QUICK_TIMES):
            tenant.set(f"tenant {number}")
            assert f"tenant {number}" == await (await app.start(whose)).outcome("10s")


async def test_a_start_that_goes_wrong_is_told_to_its_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody waits for ever for a run that could not be begun here."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    async with App(MemoryStore()) as app:
        with monkeypatch.context() as patch:
            patch.setattr("outlive.engine.drive.Drive.begin", fail)
            with pytest.raises(ZeroDivisionError):
                async with asyncio.timeout(10):
                    await app.start(whose)


# the journal keeper


class Turn:
    """A side without a loop: what it was asked to call is called by hand."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []
        self.called = threading.Event()

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        self.calls.append(partial(callback, *args))

    def call_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        callback(*args)
        self.called.set()

    def pass_by(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def start_of(run_id: str) -> Entry:
    return start_entry(run_id, RunStarted("f", "1", b"", b"", b"", "3.11", 0, run_id, "default"))


def warmed(store: Any) -> tuple[ThreadKeeper, Turn]:
    """A keeper whose users may flush themselves."""
    writer, side = ThreadKeeper(store, FakeClock()), Turn()  # no flush takes any time
    told: list[Answer] = []
    for number in range(QUICK_TIMES):
        side.called.clear()
        writer.keeper.submit(Loose(start_of(f"warm {number}"), side, told.append))
        side.pass_by()
        assert side.called.wait(10)
    assert [None] * QUICK_TIMES == told
    side.called.clear()
    return writer, side


def test_whoever_is_told_by_its_own_flush_keeps_nobody_waiting() -> None:
    """An answer may lead to code that takes long; what others write is durable meanwhile."""
    writer, side = warmed(MemoryStore())
    other = Turn()
    heard: list[bool] = []

    def dawdle(_: Answer) -> None:
        writer.keeper.submit(Loose(start_of("b"), other, lambda _: None))
        writer.keeper.submit(Loose(start_of("c"), other, lambda _: None))
        other.pass_by()
        heard.append(other.called.wait(5))

    writer.keeper.submit(Loose(start_of("a"), side, dawdle))
    side.pass_by()
    assert not side.called.is_set(), "it was not this thread that flushed"
    writer.close()
    assert heard == [True]


def test_user_code_that_exits_does_not_end_the_keeper() -> None:
    """It ends its loop; everybody else is told, and what is written afterwards is kept."""
    writer, side = warmed(MemoryStore())
    told: list[Answer] = []

    def leave(_: Answer) -> None:
        raise SystemExit(3)

    writer.keeper.submit(Loose(start_of("a"), side, leave))
    with pytest.raises(SystemExit):
        side.pass_by()
    assert writer.keeper.failure is None
    writer.keeper.submit(Loose(start_of("b"), side, told.append))
    side.pass_by()
    writer.close()
    assert told == [None]


class Interrupted(MemoryStore):
    """A store whose thread is interrupted in the middle of a commit."""

    is_armed = False

    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
        if self.is_armed:
            raise KeyboardInterrupt
        return await super().commit(batch, wait=wait)


def test_an_interrupted_flush_is_answered() -> None:
    """Nobody knows what became of it, and whoever waits is told so; nothing is tried again."""
    store = Interrupted()
    writer, side = warmed(store)
    told: list[Answer] = []
    store.is_armed = True
    writer.keeper.submit(Loose(start_of("a"), side, told.append))
    with pytest.raises(KeyboardInterrupt):
        side.pass_by()
    assert [StoreFailed] == list(map(type, told))
    store.is_armed = False
    with pytest.raises(StoreFailed):
        writer.keeper.submit(Loose(start_of("b"), side, told.append))
    writer.close()


# journals, mail, tasks


async def test_a_journal_without_its_first_record_is_damaged() -> None:
    """Whoever asks for such a run again is told what is wrong with it."""
    store = MemoryStore()
    await store.commit([start_of("r")])
    reading = await store.read("r")
    assert reading is not None
    with pytest.raises(CorruptRecord):
        read_first(msgspec.structs.replace(reading, records=()))


class Box:
    """A run in memory, as far as a postman knows it."""

    def __init__(self) -> None:
        self.context = SimpleNamespace(stopped=False, chapter=None)
        self.mailbox = self
        self.taken: list[str] = []

    def take(self, mail: Sequence[Mail]) -> None:
        self.taken += [each.mail_id for each in mail]


async def test_mail_for_a_run_that_came_back_is_not_what_was_fetched_before() -> None:
    """It may have been consumed since, so that it is fetched once more."""
    store = MemoryStore()
    await store.commit([start_of("left"), start_of("stayed")])
    for run_id in ("left", "stayed"):
        await post_one(store, run_id, "m", b"")
    left, stayed, again = Box(), Box(), Box()
    drives: dict[str, Any] = {"left": left, "stayed": stayed}

    async def lane(work: Coroutine[Any, Any, Any]) -> Any:
        found = await work
        if drives["left"] is left:
            drives["left"] = again
            assert [None] == await store.commit([entry("left", 1, epoch=0, consumed=("m",))])
            await post_one(store, "left", "n", b"")
        return found

    host = SimpleNamespace(create_task=lambda work: tasks.append(asyncio.create_task(work)))
    setting: Any = SimpleNamespace(store=store, lane=lane, host=host)
    tasks: list[asyncio.Task[None]] = []
    await Postman(setting, drives, print).bring(["left", "stayed"])
    await asyncio.gather(*tasks)
    assert ([], ["m"], ["n"]) == (left.taken, stayed.taken, again.taken)


async def test_a_body_begins_in_a_turn_of_its_own_whatever_makes_tasks() -> None:
    """Steps that end at once do not begin within one another, though the factory is eager."""
    loop = asyncio.get_running_loop()
    begun: list[bool] = []

    async def work() -> None:
        begun.append(True)

    def eagerly(
        loop: asyncio.AbstractEventLoop, work: Any, context: Any = None
    ) -> asyncio.Future[Any]:
        assert work.send(None) is None, "it gives way"
        return asyncio.Task(work, loop=loop, context=context)

    loop.set_task_factory(eagerly)
    try:
        task = LoopHost(loop, ThreadPoolExecutor(1)).create_task(work())
    finally:
        loop.set_task_factory(None)
    assert begun == []
    await task
    assert begun == [True]
