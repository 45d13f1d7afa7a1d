"""A run that waits for everything that mail can bring, and what became of it."""

from __future__ import annotations

import asyncio
from typing import Any

import outlive
from outlive.app.app import App
from outlive.cli.verify import check_store
from outlive.journal.reader import read_events
from outlive.model.events import (
    Answered,
    CancelRequested,
    ChildEnded,
    ChildIntended,
    EffectDone,
    EffectDoubted,
    EffectIntended,
    EffectRaised,
    Event,
    MailRead,
    QuestionAsked,
    SignalReceived,
)
from outlive.model.mail import Answer, Cancel, ChildNews, Letter, Resolve, Signal

#: What mail can do to the run.
MOVED = (Answered, SignalReceived, ChildEnded, CancelRequested, EffectDone, EffectRaised)
PAID: list[int] = []


@outlive.effect(doubt="ask", timeout="5s")
async def doubtful() -> int:
    """Nobody knows whether it happened."""
    raise ConnectionResetError("the receiver hung up")


@outlive.effect(doubt="retry", timeout="5s")
async def pay(amount: int) -> int:
    PAID.append(amount)
    return amount


@outlive.flow
async def sleeper() -> str:
    await outlive.sleep("30000d")
    return "rested"


@outlive.flow
async def waiting() -> list[Any]:
    """Waits for an answer, a signal, a child and a word on a doubt."""
    return await asyncio.gather(
        outlive.ask("Pay?", bool),
        outlive.wait_signal("go", int),
        outlive.call(sleeper),
        doubtful(),
    )


@outlive.flow
async def paying() -> int:
    """Pays what it is told, as often as it is told."""
    while amount := await outlive.wait_signal("pay", int):
        await pay(amount)
    return sum(PAID)


async def events_of(app: App, run_id: str = "r") -> list[Event]:
    """The whole journal."""
    return read_events(await app.read(run_id))


async def until_waiting(app: App) -> list[Event]:
    """Start the run that waits; its events."""
    await app.start(waiting, id="r")
    while True:
        events = await events_of(app)
        kinds = {type(event) for event in events}
        if {QuestionAsked, ChildIntended, EffectDoubted} <= kinds:
            return events
        await asyncio.sleep(0.01)


def forged_letters(events: list[Event]) -> dict[str, Letter]:
    """By mail id: letters that would move the run, each as its true sender names it."""
    asked = next(event for event in events if isinstance(event, QuestionAsked))
    child = next(event for event in events if isinstance(event, ChildIntended))
    seq, intent = next(
        (seq, event) for seq, event in enumerate(events, 1) if isinstance(event, EffectIntended)
    )
    return {
        f"answer/{asked.question}/{len(events)}": Answer(asked.question, b"true", "eve"),
        "signal/1": Signal("go", b"7", True),
        f"child/{child.child_id}/9": ChildNews(child.child_id, "completed", b"null", None),
        f"resolve/{intent.step}/{seq}": Resolve(intent.step, intent.attempt, "happened", b"1", seq),
        "cancel/1": Cancel("eve"),
    }


async def until_aside(app: App, count: int, run_id: str = "r") -> list[MailRead]:
    """Wait until so many letters were kept aside."""
    while True:
        events = await events_of(app, run_id)
        aside = [e for e in events if isinstance(e, MailRead) and e.unreadable is not None]
        if len(aside) >= count:
            return aside
        await asyncio.sleep(0.01)


def moved(events: list[Event]) -> list[Event]:
    """What mail did to the run."""
    return [event for event in events if isinstance(event, MOVED)]


async def found(app: App) -> list[str]:
    """What verify says of mail."""
    return [damage.why for damage in (await check_store(app)).damage]


@outlive.flow
async def paying_by_chapters() -> int:
    """Pays what it is told, one letter per chapter."""
    if amount := await outlive.wait_signal("pay", int):
        await pay(amount)
        await outlive.carry()
    return sum(PAID)
