"""One small test per rule of waiting, ending badly, other runs and chapters."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

import outlive
from outlive.app.app import App
from outlive.engine.inputs import encode_own
from outlive.envelope import bare
from outlive.errors import RunFailed
from outlive.journal.lane import run_immediate
from outlive.journal.mail import write_letter
from outlive.journal.reader import read_events
from outlive.journal.seal.keys import MasterKeys, new_key
from outlive.journal.seal.sealed_store import SealedStore
from outlive.model.events import (
    Answered,
    EffectDone,
    EffectRaised,
    Event,
    MailRead,
    QuestionAsked,
    RunUndoing,
)
from outlive.model.mail import Answer, ChildNews, Signal, parse_letter
from outlive.model.run import fold
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Entry, Posted, Posting
from outlive.testing.clock import FakeClock
from outlive.testing.suite.entries import post_one

Play = Callable[[App, MemoryStore], Awaitable[Any]]

SETTINGS = Settings(lease_seconds=5.0, poll_seconds=0.01, idle_seconds=0.0)
#: A mutant that makes a run hang is given up after so many seconds.
PATIENCE_SECONDS = 3


def play(scene: Play, store: MemoryStore | None = None, ports: Ports | None = None) -> Any:
    async def main() -> Any:
        disk = store or MemoryStore()
        async with App(disk, ports=ports, settings=SETTINGS) as app:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await scene(app, disk)

    return asyncio.run(main())


async def events_of(store: MemoryStore, run_id: str, *kinds: type) -> list[Any]:
    reading = await store.read(run_id)
    found: Sequence[Event] = [] if reading is None else read_events(reading)
    return [event for event in found if isinstance(event, kinds)]


async def until_there(store: MemoryStore, run_id: str, kind: type) -> None:
    while not await events_of(store, run_id, kind):
        await asyncio.sleep(0.001)


async def send(store: MemoryStore, run_id: str, number: int) -> None:
    mail_id, letter = f"signal/{number}", Signal("s", encode_own(number))
    await post_one(store, run_id, mail_id, write_letter(run_id, mail_id, letter))


async def reply(store: MemoryStore, mail_id: str, letter: Answer) -> None:
    await post_one(store, "r", mail_id, write_letter("r", mail_id, letter))


# ---------------------------------------------------------------- mail


class _Busy(MemoryStore):
    """Somebody posts at the very moment at which a run goes to sleep."""

    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
        for entry in batch:
            if entry.lease == "free" and not (entry.header and entry.header.ended_at):
                await send(self, entry.run_id, 1)
        return await super().commit(batch, wait=wait)


def sleepers_hear_their_mail(folder: Path) -> None:
    """A signal that comes in while its run goes to sleep wakes it up again."""

    @outlive.flow
    async def waiting() -> int:
        return await outlive.wait_signal("s", int)  # type: ignore[no-any-return]

    async def scene(app: App, store: MemoryStore) -> Any:
        return await (await app.start(waiting, id="r")).outcome()

    assert 1 == play(scene, _Busy())


def signals_keep_their_order(folder: Path) -> None:
    """Signals are heard in the order in which they were posted."""

    @outlive.flow
    async def listening() -> list[int]:
        return [await outlive.wait_signal("s", int) for _ in range(3)]

    async def scene(app: App, store: MemoryStore) -> Any:
        handle = await app.submit(listening, id="r")
        for number in range(3):
            await send(store, "r", number)
        async with app.worker([listening]):
            return await handle.outcome()

    assert [0, 1, 2] == play(scene)


def moved_mail_is_kept_aside(folder: Path) -> None:
    """A letter under the id of another does not count; the run goes on with the next."""
    assert [2] == _heard_beside("signal/9", key="")


def plain_mail_is_kept_aside(folder: Path) -> None:
    """A letter without a seal does not count for a run that is sealed."""
    assert [2] == _heard_beside("signal/1", key=new_key(os.urandom))


def _heard_beside(written_for: str, key: str) -> Any:
    """What a run hears that gets a letter past its store, then one by its handle."""
    disk = MemoryStore()

    @outlive.flow
    async def listening() -> list[int]:
        return [await outlive.wait_signal("s", int)]

    async def scene(app: App, store: MemoryStore) -> Any:
        handle = await app.submit(listening, id="r")
        forged = write_letter("r", written_for, Signal("s", encode_own(1)))
        await post_one(disk, "r", "signal/1", forged)
        await handle.signal("s", 2)
        async with app.worker([listening]):
            return await handle.outcome()

    keys = MasterKeys.parse(key, os.urandom) if key else None
    return play(scene, disk if keys is None else cast(Any, SealedStore(disk, keys)))


def answers_count_once(folder: Path) -> None:
    """Of two answers that both reached the run one is taken."""

    @outlive.flow
    async def asking() -> list[str]:
        first = await outlive.ask("Well?")
        await outlive.wait_signal("s", int)
        return [first]

    async def scene(app: App, store: MemoryStore) -> Any:
        handle = await app.start(asking, id="r")
        await until_there(store, "r", QuestionAsked)
        question = (await events_of(store, "r", QuestionAsked))[0].question
        for name in ("ann", "bob"):
            letter = Answer(question, f'"{name}"'.encode(), name)
            await reply(store, f"answer/{name}", letter)
        await send(store, "r", 1)
        await handle.outcome()
        return await events_of(store, "r", Answered)

    assert ["ann"] == [event.by for event in play(scene)]


def answers_are_for_their_text(folder: Path) -> None:
    """A yes to one text is not taken for another that changed code asks at the same place."""

    def deleting(name: str) -> Any:
        @outlive.flow(name="deleting")
        async def flow() -> bool:
            return await outlive.ask(f"delete {name}?", type=bool)  # type: ignore[no-any-return]

        return flow

    async def asked(app: App, store: MemoryStore) -> None:
        await app.start(deleting("beta"), id="r")
        await until_there(store, "r", QuestionAsked)

    async def answered(app: App, store: MemoryStore) -> Any:
        await reply(store, "answer/1", Answer("0/ask#1", b"true", "ann"))
        handle = await app.start(deleting("delta"), id="r")
        await until_there(store, "r", MailRead)
        await reply(store, "answer/2", Answer("0/ask#1~2", b"false", "ann"))
        return await handle.outcome()

    store = MemoryStore()
    play(asked, store)
    assert not play(answered, store)


# ---------------------------------------------------------------- ends


def doubts_are_settled_before_undoing(folder: Path) -> None:
    """Nothing is undone while nobody knows whether another effect of the run happened."""

    async def scene(app: App, store: MemoryStore) -> list[Any]:
        has_begun = asyncio.Event()

        async def take_back() -> None:
            """Harmless."""

        @outlive.effect(undo=take_back)
        async def pay() -> None:
            """Always comes off."""

        @outlive.effect
        async def ring() -> None:
            has_begun.set()
            raise OSError("the line went dead")

        @outlive.step
        async def fail() -> None:
            await has_begun.wait()
            raise ValueError("no good")

        @outlive.flow
        async def shop() -> None:
            await pay()
            await asyncio.gather(ring(), fail())

        handle = await app.start(shop, id="r")
        while (await _head(store)).worker is not None:
            await asyncio.sleep(0.001)
        await app.resolve("r", "0.1/ring#1", "happened")
        with pytest.raises(RunFailed):
            await handle.outcome()
        return await events_of(store, "r", EffectDone, RunUndoing)

    kinds = [getattr(event, "by", "undoing") for event in play(scene)]
    assert ["", "human", "undoing", ""] == kinds


def the_last_is_undone_first(folder: Path) -> None:
    """What happened is undone in reverse."""

    async def scene(app: App, store: MemoryStore) -> list[str]:
        async def take_back(name: str) -> None:
            """Harmless."""

        @outlive.effect(undo=take_back)
        async def pay(name: str) -> None:
            """Always comes off."""

        @outlive.flow
        async def shop() -> None:
            for name in "abc":
                await pay(name)
            raise ValueError("no good")

        with pytest.raises(RunFailed):
            await (await app.start(shop, id="r")).outcome()
        ends = await events_of(store, "r", EffectDone, EffectRaised)
        return [event.step for event in ends if event.step.startswith("undo:")]

    assert [f"undo:0/pay#{number}" for number in (3, 2, 1)] == play(scene)


def deadlines_survive_restarts(folder: Path) -> None:
    """A run whose deadline passed while nobody drove it is not driven any further."""
    clock = FakeClock()
    ports = Ports(clock=clock)
    store = MemoryStore(ports=ports, lease_seconds=1000.0)

    @outlive.flow(deadline="1m")
    async def waiting() -> int:
        return await outlive.wait_signal("s", int)  # type: ignore[no-any-return]

    async def begin(app: App, disk: MemoryStore) -> None:
        await app.start(waiting, id="r")
        while (await _head(disk)).worker is not None:
            await asyncio.sleep(0.001)

    async def go_on(app: App, disk: MemoryStore) -> None:
        await send(disk, "r", 1)
        await (await app.start(waiting, id="r")).outcome()

    play(begin, store, ports)
    clock.advance(61)
    with pytest.raises(RunFailed, match="deadline"):
        play(go_on, store, ports)


async def _head(store: MemoryStore) -> Any:
    reading = await store.read("r")
    assert reading is not None
    return reading.head


# ---------------------------------------------------------------- other runs, chapters


class _Told(MemoryStore):
    """Looks what is durable of a child when its parent is told."""

    def __init__(self) -> None:
        super().__init__()
        self.was_over: list[bool] = []
        self._told = threading.Event()

    async def commit(self, batch: Any, *, wait: bool = True) -> Any:
        if not wait:
            return None  # it takes its time, so it is left to the keeper's thread
        if any(each.header is not None and each.header.status == "completed" for each in batch):
            self._told.wait(0.2)  # slow enough for whoever does not wait for it
        return await super().commit(batch)

    async def post(self, batch: Sequence[Posting]) -> Sequence[Posted]:
        for each in batch:
            letter = parse_letter(bare(each.body))
            if isinstance(letter, ChildNews):
                reading = run_immediate(self.read(letter.child_id))
                assert reading is not None
                self.was_over.append(fold(read_events(reading)).status == letter.status)
                self._told.set()
        return await super().post(batch)


@outlive.flow
async def small() -> int:
    return 1


@outlive.flow
async def large() -> int:
    return 1 + await outlive.call(small)  # type: ignore[no-any-return]


async def _call(app: App, store: MemoryStore) -> Any:
    async with app.worker([small, large]):
        return await (await app.submit(large, id="r")).outcome()


def parents_hear_of_their_children(folder: Path) -> None:
    """A parent that waits for its child gets its outcome."""
    assert 2 == play(_call)


def parents_hear_what_is_durable(folder: Path) -> None:
    """When a parent is told, its child's outcome is in the store."""
    store = _Told()

    play(_call, store)
    assert store.was_over
    assert store.was_over
    assert all(store.was_over)


def chapters_keep_the_mail(folder: Path) -> None:
    """What one chapter received and did not take the next one gets."""

    @outlive.flow
    async def chat(heard: list[int]) -> list[int]:
        heard = [*heard, await outlive.wait_signal("s", int)]
        if len(heard) < 3:
            await outlive.carry(heard)
        return heard

    async def scene(app: App, store: MemoryStore) -> Any:
        handle = await app.submit(chat, [], id="r")
        for number in range(3):
            await send(store, "r", number)
        async with app.worker([chat]):
            return await handle.outcome()

    assert [0, 1, 2] == play(scene)


def each_instant_has_a_run_of_its_own(folder: Path) -> None:
    """A schedule that was due three times started three runs."""
    clock = FakeClock()
    ports = Ports(clock=clock)

    @outlive.flow
    async def tick() -> datetime:
        return outlive.fired_at()

    async def scene(app: App, store: MemoryStore) -> Any:
        there = await app.schedule("s", tick, every="1s")
        async with app.worker([tick]):
            for number in range(1, 4):
                clock.advance(1)
                while there.next_at == (await app.schedules())[0].next_at:
                    await asyncio.sleep(0.001)
                (there,) = await app.schedules()
                while number != len((await app.find(flow="tick", status="completed")).items):
                    await asyncio.sleep(0.001)
            return await asyncio.gather(*[await app.get(run.id) for run in there.recent])

    at = play(scene, MemoryStore(ports=ports), ports)
    assert [1, 1] == [(two - one).total_seconds() for one, two in pairwise(at)]
