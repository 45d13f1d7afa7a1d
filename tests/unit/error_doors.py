"""Doors at which users meet our errors: what they did, and what it says there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive import errors
from outlive.app.app import App
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore

QUICK = Settings(lease_seconds=60, poll_seconds=0.01, idle_seconds=0.0)
PATIENCE_SECONDS = 20

Door = Callable[["Place"], Awaitable[object]]
#: By error: the door at which it is met, and what it says there.
DOORS: dict[type[errors.OutliveError], tuple[Door, str]] = {}


class Place:
    """Where a door stands: an app in memory, and a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore(ports=Ports(), lease_seconds=60)
        self.app = App(self.store, settings=QUICK)

    async def fail(self, flow: Any, *args: Any) -> None:
        """Let a run fail, and raise what its flow raised."""
        with pytest.raises(errors.RunFailed) as failed:
            await (await self.app.start(flow, *args, id="r"))
        assert failed.value.__cause__ is not None, failed.value
        raise failed.value.__cause__

    async def waiting(self, flow: Any, id: str = "r") -> outlive.Handle[Any]:
        """A run that waits."""
        handle = await self.app.start(flow, id=id)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await handle.status() != "waiting":
                await asyncio.sleep(0.01)
        return handle


def raises(error: type[errors.OutliveError], text: str) -> Callable[[Door], Door]:
    def register(door: Door) -> Door:
        assert error not in DOORS, error
        DOORS[error] = (door, text)
        return door

    return register


# what the doors lead to


class BankDown(Exception):
    """Of a type that no step declares."""


@outlive.flow
async def echo(value: int = 0) -> int:
    return value


@outlive.flow
async def listen() -> Any:
    return await outlive.wait_signal("go")


@outlive.flow
async def ask() -> int:
    number: int = await outlive.ask("How many?", type=int)
    return number


@outlive.flow
async def serve() -> str:
    async for request in outlive.requests("add", type=int):
        if request.value == 0:
            return "left without a word"
        await request.reply(request.value + 1)
    return "idle"


@outlive.effect(key="refund")
async def refund(cents: int) -> int:
    return cents


@outlive.effect(doubt="fail")
async def pay() -> None:
    raise ConnectionResetError("no reply")


@outlive.effect
async def decline() -> None:
    raise outlive.NotHappened("the bank is closed")


@outlive.step
async def break_down() -> None:
    raise BankDown("no route")


@outlive.step
async def nest() -> int:
    return await refund(1)


@outlive.step
async def count(number: int) -> int:
    return number


# UsageError


@raises(
    errors.NotInRun, r"refund was called outside a run; .*outlive\.run\(\), or use refund\.plain"
)
async def call_outside(place: Place) -> None:
    await refund(1)


@raises(
    errors.InsideStep, r"refund was called inside .* step 0/nest#1; .*call refund from the flow"
)
async def call_in_body(place: Place) -> None:
    @outlive.flow
    async def nesting() -> int:
        return await nest()

    await place.fail(nesting)


@raises(errors.IoInFlow, r"flow code called .*; do this in a step")
async def connect_in_flow(place: Place) -> None:
    @outlive.flow
    async def connecting() -> None:
        await asyncio.open_connection("localhost", 1)

    await place.fail(connecting)


@raises(errors.NeverAwaited, r"echoed was called and never awaited, .*write `await echoed")
async def forget_await(place: Place) -> None:
    @outlive.step
    async def echoed() -> None:
        """Harmless."""

    @outlive.flow
    async def forgetful() -> None:
        echoed()  # type: ignore[unused-coroutine]

    await place.fail(forgetful)


@raises(errors.ValueRefused, r"\$\.value: .*object.*")
async def give_object(place: Place) -> None:
    await place.app.start(echo, object())  # type: ignore[arg-type]  # that is the point


@raises(errors.StreamFull, r"stream 'tokens' takes no more chunks: the store is \d+ bytes behind")
async def stream_too_fast(place: Place) -> None:
    @outlive.step
    async def hasty() -> None:
        async with outlive.stream("tokens") as out:
            while True:
                out.put(b"x" * 60_000)

    @outlive.flow
    async def flow() -> None:
        await hasty()

    await place.fail(flow)


@raises(errors.DefinitionRefused, r'doubt="check" needs a check= function')
async def declare_nonsense(place: Place) -> None:
    outlive.effect(doubt="check")


@raises(errors.UnknownStore, r"ftp.*sqlite://")
async def open_ftp(place: Place) -> None:
    outlive.open("ftp://somewhere")


@raises(errors.FlowNotRegistered, r"flow 'listen' is not registered .*known: echo.*; pass the flow")
async def resume_without_code(place: Place) -> None:
    await place.app.submit(listen, id="r")
    await place.app.resume("r", [echo])


@raises(errors.RunNotFound, r"no run has the id 'nobody'; `outlive runs` lists")
async def get_nobody(place: Place) -> None:
    await place.app.get("nobody")


@raises(errors.RunIdRefused, r"a run id can't begin with 'key/': keys live there")
async def start_as_key(place: Place) -> None:
    await place.app.start(echo, id="key/1")


@raises(errors.RunIdTaken, r"run id 'r' is taken: .*echo.* other arguments; choose another id")
async def start_twice(place: Place) -> None:
    await place.app.start(echo, 1, id="r")
    await place.app.start(echo, 2, id="r")


@raises(errors.StepNotInDoubt, r"run r has no effect '0/refund#1' in doubt; `outlive show` lists")
async def resolve_nothing(place: Place) -> None:
    await place.waiting(listen)
    await place.app.resolve("r", "0/refund#1", "happened")


@raises(errors.Waiting, r"run r \(flow listen\) waits for signal .*: `outlive signal r ")
async def wait_without_patience(place: Place) -> None:
    await (await place.waiting(listen)).outcome(on_wait="raise")


@raises(errors.RetryRefused, r"run r can't be tried again: it is completed, and only failed runs")
async def retry_done(place: Place) -> None:
    await (await place.app.start(echo, id="r"))
    await place.app.retry("r")


@raises(
    errors.ForkRefused,
    r"run r can't be forked like this: seq 99 is not there: its chapter goes from",
)
async def fork_nowhere(place: Place) -> None:
    await (await place.app.start(echo, id="r"))
    await place.app.fork("r", at=99)


@raises(errors.RunEnded, r"run r has ended \(completed\): .*; start another run, with another id")
async def signal_late(place: Place) -> None:
    handle = await place.app.start(echo, id="r")
    await handle
    await handle.signal("go")


@raises(errors.QuestionNotOpen, r"run r asks nothing right now; `outlive show r` tells")
async def answer_nothing(place: Place) -> None:
    await (await place.waiting(listen)).answer(1)


@raises(
    errors.AnswerRefused, r"question 0/ask#1 refuses this answer: .*str; it stays open and wants"
)
async def answer_wrongly(place: Place) -> None:
    await (await place.waiting(ask)).answer("many")


@raises(
    errors.AmbiguousCall,
    r"echo was called in the place 'agent' while 0@agent/echo#1 had not ended; .*id=call_id",
)
async def call_both(place: Place) -> None:
    @outlive.flow
    async def both() -> None:
        with outlive.place("agent"):
            await asyncio.gather(*(outlive.do("echo", asyncio.sleep, 1) for _ in range(2)))

    await place.fail(both)


@raises(errors.ScheduleNotFound, r"there is no schedule 'nightly'; `outlive schedules` lists")
async def pause_nothing(place: Place) -> None:
    await place.app.pause_schedule("nightly")


@raises(errors.AppClosed, r"the app was closed; open another")
async def start_closed(place: Place) -> None:
    await place.app.aclose()
    await place.app.start(echo)
