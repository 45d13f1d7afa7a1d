"""How the reference family is played in a crash test, and what must hold beyond the audit.

The people outside look at what is durable and post through the store, each thing once per life of
their process: after a kill they post it again, under the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from outlive.engine.inputs import encode_own
from outlive.errors import RetryRefused
from outlive.journal.lane import run_immediate
from outlive.journal.mail import write_letter
from outlive.journal.reader import read_events
from outlive.model.events import (
    Answered,
    CancelRequested,
    Event,
    Replied,
    RunCompleted,
    SignalReceived,
)
from outlive.model.events import RunFailed as RunHasFailed
from outlive.model.ids import is_key_journal
from outlive.model.mail import Answer, Cancel, Letter, Signal
from outlive.model.run import Run, fold
from outlive.stores.types import Found, Query
from outlive.testing.audit.families import check_asleep, check_deadlines
from outlive.testing.audit.waits import audit_undone
from outlive.testing.crash.child import Stage
from outlive.testing.crash.lab import Evidence
from outlive.testing.suite.entries import post_one
from tests.crash.reference_family import (
    ENDS,
    FLOWS,
    LINES,
    MENDED,
    OUTCOME,
    ROOTS,
    RUNS,
    UNDOABLE,
    everything,
)

MESSAGES = ("hello", "there", "bye")
SIGNALS = (0, 1)


class People:
    """They look at what is durable, and post."""

    def __init__(self, stage: Stage) -> None:
        self._store: Any = stage.app.store
        #: Looking is no call that could kill anybody.
        self._eyes: Any = self._store._store
        self._said: set[tuple[str, str]] = set()

    def fold(self, run_id: str) -> Run:
        reading = run_immediate(self._eyes.read(run_id))
        return fold([] if reading is None else read_events(reading))

    def open_runs(self) -> list[str]:
        """Every run that is not over."""
        found = run_immediate(self._eyes.find(Query(), None, 1000)).items
        runs = [each for each in found if not is_key_journal(each.head.run_id)]
        return [each.head.run_id for each in runs if _is_open(each)]

    def act(self, run_id: str) -> None:
        """Do what is due at this run, each thing once per life of this process."""
        if run_id not in ROOTS:
            return
        for mail_id, letter in self._due(run_id):
            if (run_id, mail_id) not in self._said:
                self._said.add((run_id, mail_id))
                body = write_letter(run_id, mail_id, letter)
                run_immediate(post_one(self._store, run_id, mail_id, body))

    def _due(self, run_id: str) -> Iterator[tuple[str, Letter]]:
        if run_id == "everything":
            for number in SIGNALS:
                yield f"signal/s{number}", Signal("s", encode_own(number))
            for number, text in enumerate(MESSAGES):
                yield f"signal/m{number}", Signal("message", encode_own(text))
            for question, asked in self.fold(run_id).questions.items():
                if asked.text != "Too late?":
                    json = b"true" if asked.digest else b"3"
                    yield f"answer/{question}", Answer(question, json, "ann")
        elif run_id == "chat":
            for line in LINES:
                yield f"signal/{line}", Signal("line", encode_own(line))
        elif run_id == "cancelled" and self.fold(run_id).questions:
            yield "cancel/ann", Cancel("ann")


def _is_open(found: Found) -> bool:
    """It did not end, or it is to be tried again."""
    failed = (found.head.run_id, found.header.status) == ("second", "failed")
    return failed or found.header.ended_at is None


async def mend(stage: Stage) -> None:
    """See to what the run failed of, and give it another try."""
    handle = await stage.app.get("second")
    if await handle.status() == "failed":
        (stage.folder / MENDED).write_text("mended")
        with suppress(RetryRefused):
            await stage.app.retry("second", by="ann")


async def scene(stage: Stage) -> None:
    """Start all of them, or go on with them, and wait for everybody's end."""
    book = str(stage.folder / "ledger.jsonl")
    people = People(stage)
    for name, (flow, args) in ROOTS.items():
        if name != "everything":
            await stage.app.submit(flow, book, *args, id=name)
    await stage.app.start(everything, book, id="everything")
    async with stage.app.worker(FLOWS):
        while runs := people.open_runs():
            for run_id in runs:
                people.act(run_id)
            if "second" in runs:
                await mend(stage)
            await asyncio.sleep(0.01)


# ---------------------------------------------------------------- what must hold


def check(evidence: Evidence) -> Sequence[str]:
    """Everybody ended as they should, heard all there was to hear, and slept over no mail."""
    runs = {k: v for k, v in evidence.journals.items() if not is_key_journal(k)}
    broken = [words for run_id, events in runs.items() for words in _check_run(run_id, events)]
    broken += audit_undone(runs, UNDOABLE)
    broken += check_asleep(evidence.found)
    broken += [
        words for run_id, events in runs.items() for words in check_deadlines(run_id, events)
    ]
    if len(runs) not in RUNS:
        broken.append(f"there are {len(runs)} runs: {sorted(runs)}")
    return [*broken, *_check_told(runs), *_check_ledger(runs, evidence)]


def _check_run(run_id: str, events: Sequence[Event]) -> Iterator[str]:
    run = fold(events)
    if run.ended_at is None or run.effects:
        yield f"run {run_id} did not end, or left something open: {run}"
    if run_id in ENDS and run.status != ENDS[run_id]:
        yield f"run {run_id} ended as {run.status}: {run.error}"
    if sum(isinstance(event, CancelRequested) for event in events) > 1:
        yield f"run {run_id} was cancelled twice"


def _check_told(runs: dict[str, Sequence[Event]]) -> Iterator[str]:
    """What the flows saw of the world."""
    heard = [e.signal_id for e in runs["everything"] if isinstance(e, SignalReceived)]
    if sorted(heard) != ["m0", "m1", "m2", "s0", "s1"]:
        yield f"everything heard {heard}"
    if 2 != sum(isinstance(event, Answered) for event in runs["everything"]):
        yield "everything was not answered twice"
    for run_id, ids in (("everything", ["m0", "m1", "m2"]), ("chat", list(LINES))):
        replied = [event.signal_id for event in runs[run_id] if isinstance(event, Replied)]
        if replied != ids:
            yield f"run {run_id} replied to {replied}"
    ends = [each for each in runs["everything"] if isinstance(each, RunCompleted)]
    told = everything.value_codec.decode(ends[0].value) if ends else None
    if told != OUTCOME:
        yield f"everything returned {told}"
    failed = [each.error.message for each in runs["chat"] if isinstance(each, RunHasFailed)]
    if failed != [" ".join(LINES)]:
        yield f"chat ended with {failed}"


def _check_ledger(runs: dict[str, Sequence[Event]], evidence: Evidence) -> Iterator[str]:
    """Whoever ended badly has undone what it did, last first; nobody else has."""
    for run_id, events in runs.items():
        mine = [each for each in evidence.receipts if each.run_id == run_id]
        done = [each.args.split()[0] for each in mine if each.effect in UNDOABLE]
        undone = [e.args.split()[0] for e in mine if e.effect in ("unpay", "dismiss")]
        wanted = [] if fold(events).status == "completed" else done
        if sorted(undone) != sorted(wanted):
            yield f"run {run_id} did {done} and undid {undone}"
