"""How the reference agent is played in a crash test, and what must hold beyond the audit.

A human stands beside the run and settles what only a human can: truthfully for letters (the ledger
knows), with a shrug for bells.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from outlive.engine.inputs import encode_own
from outlive.errors import RunNotFound, StepNotInDoubt
from outlive.model.events import EffectDone, EffectIntended, Event, StepDone, recorded_key
from outlive.model.run import fold
from outlive.model.streams import StreamFold
from outlive.testing.audit.auditor import audit_order
from outlive.testing.crash.child import Stage
from outlive.testing.crash.lab import Evidence
from outlive.testing.ledger import Ledger
from tests.crash.reference_agent import SEARCHED, SETTLE_SECONDS, ledger, neighbour, reference

RUN_ID, NEIGHBOUR_ID = "reference", "neighbour"


async def agent(stage: Stage) -> None:
    """Start the runs or go on with them, with a human beside them."""
    book = book_of(stage)
    other = await stage.app.start(neighbour, "7", book, "durable", id=NEIGHBOUR_ID)
    handle = await stage.app.start(reference, "7", book, "durable", id=RUN_ID)
    async with a_human(stage):
        await handle.outcome()
        await other.outcome()


async def agent_under_worker(stage: Stage) -> None:
    """The same runs, handed in by one and driven by a worker that takes whatever there is."""
    book = book_of(stage)
    async with stage.app.worker([reference, neighbour]), a_human(stage):
        other = await stage.app.submit(neighbour, "7", book, "durable", id=NEIGHBOUR_ID)
        handle = await stage.app.submit(reference, "7", book, "durable", id=RUN_ID)
        await handle.outcome()
        await other.outcome()


async def naive_twin(stage: Stage) -> None:
    """The naive twin: what changes the world is a step like any other."""
    await (await stage.app.start(reference, "7", book_of(stage), "naive", id=RUN_ID)).outcome()


def book_of(stage: Stage) -> str:
    return str(stage.folder / "ledger.jsonl")


@asynccontextmanager
async def a_human(stage: Stage) -> AsyncIterator[None]:
    """Somebody who looks now and then whether the run asks, and answers."""
    human = asyncio.create_task(look_and_answer(stage))
    try:
        yield
    finally:
        human.cancel()


async def look_and_answer(stage: Stage) -> None:
    book = ledger(book_of(stage))
    while True:
        await asyncio.sleep(0.05)
        try:
            run = await (await stage.app.get(RUN_ID)).run()
        except RunNotFound:
            continue
        for step, effect in run.effects.items():
            if effect.asks:
                await answer(stage, book, step, recorded_key(RUN_ID, effect.intent))


async def answer(stage: Stage, book: Ledger, step: str, key: str) -> None:
    await asyncio.sleep(SETTLE_SECONDS)
    try:
        if "bell" in step:
            await stage.app.resolve(RUN_ID, step, "fail")
        elif (done := book.find(key)) is not None:
            value = f'"{done.effect} {done.key}"'.encode()
            await stage.app.resolve(RUN_ID, step, "happened", value)
        else:
            await stage.app.resolve(RUN_ID, step, "not_happened")
    except StepNotInDoubt:
        pass  # somebody, perhaps an earlier self, was faster


def check_outcome(evidence: Evidence) -> Sequence[str]:
    """The run ended well, saw its branches in the journal's order, and each effect came off."""
    events = evidence.journals[RUN_ID]
    value = reference.value_codec.decode(getattr(events[-1], "value", b"\xc0"))
    if not isinstance(value, dict):
        return [f"the run ended with {events[-1]!r}"]
    broken = audit_order(events, value["seen"])
    intended = {recorded_key(RUN_ID, e) for e in events if isinstance(e, EffectIntended)}
    done = {event.step for event in events if isinstance(event, EffectDone)}
    if len(intended) < 16 or len(done) < 13:
        broken.append(f"only {len(intended)} effects were intended and {len(done)} done")
    return [*broken, *check_streams(events)]


def check_streams(events: Sequence[Event]) -> list[str]:
    """A reader has each chunk of the attempts that count once, and the last published value."""
    ended = {event.step for event in events if isinstance(event, StepDone)}
    shown = {name: shown_in(events, name) for name in ("tokens", "log")}
    broken = []
    for step, words in shown["tokens"].items():
        wanted = ["attempt 3"] if "flaky" in step else list(SEARCHED)
        if step in ended and words != wanted:
            broken.append(f"step {step} shows {words}")
    if list(shown["log"].values()) != [["begun", "planned", "done"]]:
        broken.append(f"the log shows {shown['log']}")
    if fold(events).published.get("stage") != encode_own("done"):
        broken.append("the last stage is not published")
    return broken


def shown_in(events: Sequence[Event], stream: str) -> dict[str, list[str]]:
    """What somebody sees who reads a stream, by the step that wrote it."""
    shown: dict[str, list[str]] = {}
    taken = StreamFold(RUN_ID, stream)
    for seq, event in enumerate(events, 1):
        for item in taken.take(seq, event):
            words = shown.setdefault(item.step, [])
            if item.value is None:
                words.clear()
            else:
                words.append(msgspec.msgpack.decode(item.value))
    return shown
