"""A plain agent to be killed anywhere: steps and effects in threads, branches, waits, a child."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from outlive import sync as outlive
from outlive.errors import QuestionNotOpen, TimedOut
from outlive.model.events import QuestionAsked, RunCompleted
from outlive.model.ids import is_key_journal
from outlive.model.run import fold
from outlive.testing.audit.auditor import Policy, Receipt
from outlive.testing.crash.child import Stage
from outlive.testing.crash.lab import Evidence
from outlive.testing.ledger import Ledger

SETTLE_SECONDS = 0.05
LIMITS: dict[str, Any] = {"timeout": "2s", "settle_after": SETTLE_SECONDS, "ignore": ("book",)}
POLICIES: dict[str, Policy] = {"pay": "once", "post_letter": "once"}


def enter(book: str, name: str, text: str) -> str:
    """Have the receiver write it down under this effect's key."""
    receipt = Receipt(run_id=outlive.run_id(), effect=name, key=outlive.key(), args=text)
    Ledger(book, settle_seconds=SETTLE_SECONDS).enter(receipt, honours_key=False)
    return text


def found(book: str, key: str) -> object:
    done = Ledger(book, settle_seconds=SETTLE_SECONDS).find(key)
    return outlive.NOT_HAPPENED if done is None else done.args


@outlive.effect(check=found, **LIMITS)
def pay(book: str, name: str) -> str:
    return enter(book, "pay", name)


@outlive.effect(check=found, key="letter:{name}", **LIMITS)
async def post_letter(book: str, name: str) -> str:
    return enter(book, "post_letter", name)


@outlive.step
def think(text: str) -> str:
    return text.upper()


@outlive.flow
def helper(book: str, name: str) -> str:
    outlive.sleep(0.02)
    return pay(book, name)


@outlive.flow
def agent(book: str) -> list[str]:
    def branch(name: str) -> str:
        outlive.sleep(0.01)
        return pay(book, think(name))

    letter: Any = post_letter
    seen = list(outlive.gather(partial(branch, "a"), partial(branch, "b")))
    seen.append(str(outlive.wait_signal("s", int) + int(outlive.ask("How many?", type=int))))
    seen.append(letter(book, "invitation"))
    seen.append(str(outlive.call(helper, book, "child")))
    seen += [str(each.value) for each in outlive.map(think, ["x", "y", "z"], limit=2)]
    try:
        with outlive.timeout(0.02):
            outlive.wait_signal("never")
    except TimedOut:
        seen.append("timed out")
    return seen


OUTCOME = ["A", "B", "5", "invitation", "child", "X", "Y", "Z", "timed out"]


async def scene(stage: Stage) -> None:
    """Start it, or go on with it; people send and answer, each thing with an id."""
    book = str(stage.folder / "ledger.jsonl")
    handle = await stage.app.start(agent, book, id="agent")
    if await handle.status() in ("completed", "failed"):
        return
    await handle.signal("s", 2, id="s")
    async with stage.app.worker([agent, helper]):
        async for event in handle.events():
            if isinstance(event.raw, QuestionAsked):
                with suppress(QuestionNotOpen):
                    await handle.answer(3, event.raw.question)


def check(evidence: Evidence) -> Sequence[str]:
    """It ended as an undisturbed one would have, and so did its child."""
    return list(_complaints(evidence))


def _complaints(evidence: Evidence) -> Iterator[str]:
    journals = {k: v for k, v in evidence.journals.items() if not is_key_journal(k)}
    for run_id, events in journals.items():
        run = fold(events)
        if run.status != "completed" or run.effects or run.questions:
            yield f"run {run_id} did not complete, or left something open: {run}"
    if len(journals) != 2:
        yield f"there are {len(journals)} runs: {sorted(journals)}"
    done = [each for each in journals.get("agent", ()) if isinstance(each, RunCompleted)]
    told = agent.value_codec.decode(done[0].value) if done else None
    if told != OUTCOME:
        yield f"it returned {told}"
