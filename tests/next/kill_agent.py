"""An agent that waits for everything one can wait for, to be killed anywhere.

Four runs: one that completes, one that fails and is undone, one that is cancelled, one that is
overdue; each has children. The scene is also the people outside: they send signals and requests,
answer questions, cancel; whatever they post has an id, so that posting it again is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import outlive
from outlive.engine import fanout, people
from outlive.engine.typed import encode_own
from outlive.errors import RunFailed, TimedOut
from outlive.journal.keeper import run_immediate
from outlive.journal.reader import read_events
from outlive.model.events import (
    Answered,
    CancelRequested,
    Event,
    Parked,
    Replied,
    RunCompleted,
    SignalReceived,
)
from outlive.model.ids import is_key_journal
from outlive.model.mail import Answer, Cancel, Letter, Signal, encode_letter
from outlive.model.run import Run, fold
from outlive.store import Query
from outlive.testing.auditor import Policy, Receipt
from outlive.testing.crash_child import Stage
from outlive.testing.crash_evidence import Evidence
from outlive.testing.ledger import Ledger

SETTLE_SECONDS = 0.05
LIMITS: dict[str, Any] = {"timeout": "2s", "settle_after": SETTLE_SECONDS, "ignore": ("book",)}
POLICIES: dict[str, Policy] = {"pay": "once", "unpay": "once", "post_letter": "once"}


def ledger(book: str) -> Ledger:
    return Ledger(book, settle_seconds=SETTLE_SECONDS)


def enter(book: str, name: str, text: str, *, honours: bool = False) -> str:
    """Have the receiver write it down under this effect's key."""
    receipt = Receipt(run_id=outlive.run_id(), effect=name, key=outlive.key(), args=text)
    ledger(book).enter(receipt, honours_key=honours)
    return text


def found(book: str, key: str) -> object:
    done = ledger(book).find(key)
    return outlive.NOT_HAPPENED if done is None else done.args


async def unpay(book: str, name: str, outcome: str) -> None:
    """Harmless to repeat: the receiver honours the key."""
    enter(book, "unpay", f"{name} {outcome}", honours=True)


@outlive.effect(check=found, undo=unpay, **LIMITS)
async def pay(book: str, name: str) -> str:
    await asyncio.sleep(0.002)
    return enter(book, "pay", name)


@outlive.effect(check=found, key="letter:{name}", **LIMITS)
async def post_letter(book: str, name: str) -> str:
    return enter(book, "post_letter", name)


@outlive.step
async def think(text: str) -> str:
    await asyncio.sleep(0.001)
    return text.upper()


# ---------------------------------------------------------------- flows


@outlive.flow
async def helper(book: str, name: str) -> str:
    await outlive.sleep(0.02)
    if name.startswith("bad"):
        raise ValueError(name)
    return await pay(book, name)


@outlive.flow
async def endless(book: str, name: str) -> None:
    await pay(book, name)
    await people.wait_signal("never")


@outlive.flow
async def listed(item: tuple[str, str]) -> str:
    return await helper.fn(*item)  # type: ignore[no-any-return]


async def talk(book: str) -> list[str]:
    """Signals, a question, an approval, requests."""
    both = await asyncio.gather(people.wait_signal("s", int), people.wait_signal("s", int))
    seen = [str(each) for each in both]
    seen.append(str(await people.ask("How many?", type=int, within="1h")))
    approval = await people.approve(post_letter, book, "invitation", within="1h")
    if approval.granted:
        seen.append(await post_letter(book, "invitation"))
    async for request in people.requests("message", type=str):
        await request.reply(await think(request.value))
        if request.value == "bye":
            break
    return seen


async def have_children(book: str) -> list[str]:
    """Called, failing, spawned, many, and one that is given up."""
    seen = [str(await fanout.call(helper, book, "first"))]
    try:
        await fanout.call(helper, book, "bad one")
    except RunFailed as error:
        seen.append(error.type_name)
    await fanout.spawn(helper, book, "spawned")
    names = [(book, name) for name in ("x", "bad y", "z")]
    seen += [str(each.ok) for each in await fanout.map(listed, names, limit=2)]
    try:
        async with people.timeout(0.2):
            await fanout.call(endless, book, "given up")
    except TimedOut:
        seen.append("given up")
    return seen


@outlive.flow
async def everything(book: str) -> list[str]:
    talked, had = await asyncio.gather(talk(book), have_children(book))
    return [*talked, *had]


@outlive.flow
async def undone(book: str) -> None:
    await asyncio.gather(pay(book, "a"), pay(book, "b"))
    await outlive.sleep(0.03)
    await pay(book, "c")
    raise ValueError("no good")


@outlive.flow
async def cancelled(book: str) -> None:
    await pay(book, "d")
    await asyncio.gather(fanout.call(endless, book, "e"), people.ask("Go on?"))


@outlive.flow(deadline=0.4)
async def overdue(book: str) -> None:
    await pay(book, "f")
    await fanout.call(endless, book, "g")


ROOTS = {flow.name: flow for flow in (everything, undone, cancelled, overdue)}
FLOWS = [*ROOTS.values(), helper, endless, listed]
OUTCOME = ["0", "1", "3", "invitation", "first", "ValueError", "True", "False", "True", "given up"]
ENDS = {
    "everything": "completed",
    "undone": "failed",
    "cancelled": "cancelled",
    "overdue": "failed",
}


# ---------------------------------------------------------------- the people outside


class People:
    """They look at what is durable, and post."""

    def __init__(self, stage: Stage) -> None:
        self._store: Any = stage.app.store
        #: Looking is no call that could kill anybody.
        self._eyes: Any = self._store._store

    def fold(self, run_id: str) -> Run:
        reading = run_immediate(self._eyes.read(run_id))
        return fold([] if reading is None else read_events(reading))

    def ids(self) -> Iterator[str]:
        for run in run_immediate(self._eyes.find(Query(), None, 1000)).items:
            if not is_key_journal(run.head.run_id):
                yield run.head.run_id

    def post(self, run_id: str, mail_id: str, letter: Letter) -> None:
        run_immediate(self._store.post(run_id, mail_id, encode_letter(letter)))

    def act(self, run_id: str, said: set[str]) -> None:
        """Do what is due at this run, each thing once per life of this process."""
        run = self.fold(run_id)
        if run.status in ("completed", "failed", "cancelled"):
            return
        for mail_id, letter in self._due(run_id, run):
            if mail_id not in said:
                said.add(mail_id)
                self.post(run_id, mail_id, letter)

    def _due(self, run_id: str, run: Run) -> Iterator[tuple[str, Letter]]:
        if run_id == "everything":
            for number in range(2):
                yield f"signal/s{number}", Signal("s", encode_own(number))
            for number, text in enumerate(["hello", "there", "bye"]):
                yield f"signal/m{number}", Signal("message", encode_own(text))
            for question, asked in run.questions.items():
                json = b"true" if asked.digest else b"3"
                yield f"answer/{question}", Answer(question, json, "ann")
        elif run_id == "cancelled" and run.questions:
            yield "cancel/ann", Cancel("ann")


async def scene(stage: Stage) -> None:
    """Start the four, or go on with them, and wait for everybody's end."""
    book = str(stage.folder / "ledger.jsonl")
    outside, said = People(stage), set[str]()
    for name in ("undone", "cancelled", "overdue"):
        await stage.app.submit(ROOTS[name], book, id=name)
    await stage.app.start(everything, book, id="everything")
    async with stage.app.worker(FLOWS):
        while True:
            ids = list(outside.ids())
            for run_id in ids:
                outside.act(run_id, said)
            if all(outside.fold(run_id).ended_at is not None for run_id in ids):
                return
            await asyncio.sleep(0.01)


# ---------------------------------------------------------------- what must hold


def check(evidence: Evidence) -> Sequence[str]:
    """Beside what the auditor looks at: mail once, the same ends, what happened undone."""
    return list(_complaints(evidence))


def _complaints(evidence: Evidence) -> Iterator[str]:
    journals = {k: v for k, v in evidence.journals.items() if not is_key_journal(k)}
    for run_id, events in journals.items():
        run = fold(events)
        if run.ended_at is None or run.effects or run.questions:
            yield f"run {run_id} did not end, or left something open: {run}"
        if run_id in ENDS and run.status != ENDS[run_id]:
            yield f"run {run_id} ended as {run.status}: {run.error}"
        yield from _check_mail(run_id, events)
        yield from _check_undone(run_id, run, evidence)
    if len(journals) not in (12, 13):  # one child may come behind its parent's deadline
        yield f"there are {len(journals)} runs: {sorted(journals)}"
    done = [each for each in journals.get("everything", ()) if isinstance(each, RunCompleted)]
    told = everything.value_codec.decode(done[0].value) if done else None
    if told != OUTCOME:
        yield f"it returned {told}"


def _check_mail(run_id: str, events: Sequence[Event]) -> Iterator[str]:
    taken = [e.signal_id for e in events if isinstance(e, SignalReceived)]
    taken += [e.question for e in events if isinstance(e, Answered)]
    replied = sorted(e.signal_id for e in events if isinstance(e, Replied))
    if len(taken) != len(set(taken)):
        yield f"run {run_id} took mail twice: {taken}"
    if run_id == "everything":
        if sorted(taken) != ["0.1/approve#1", "0.1/ask#1", "m0", "m1", "m2", "s0", "s1"]:
            yield f"run {run_id} took {taken}"
        if replied != ["m0", "m1", "m2"]:
            yield f"run {run_id} replied to {replied}"
    if sum(isinstance(event, CancelRequested) for event in events) > 1:
        yield f"run {run_id} was cancelled twice"
    if any(isinstance(event, Parked) and event.reason for event in events):
        yield f"run {run_id} did not fit its code"


def _check_undone(run_id: str, run: Run, evidence: Evidence) -> Iterator[str]:
    paid = sorted(e.args for e in evidence.receipts if (e.run_id, e.effect) == (run_id, "pay"))
    undone = sorted(
        e.args.split()[0] for e in evidence.receipts if (e.run_id, e.effect) == (run_id, "unpay")
    )
    wanted = [] if run.status == "completed" else [each.split()[0] for each in paid]
    if undone != wanted:
        yield f"run {run_id} ({run.status}) paid {paid} and undid {undone}"
