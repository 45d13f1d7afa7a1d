"""When a run can't go on by itself: what it waits for, and what to do about it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncGenerator

from outlive.app import App
from outlive.cli.output import print_note
from outlive.cli.questions import answer_command
from outlive.journal.reader import read_events
from outlive.model.run import Run, fold
from outlive.posting import open_questions
from outlive.store import LAST_CHAPTER, Header, Reading
from outlive.views.runs import AFTER_ALL, iso
from outlive.views.timeline import doubts

#: How often a driven run is looked at from outside, for what its driver does not say.
LOOK_SECONDS = 0.5


async def watch_stuck(app: App, run_id: str, *, with_questions: bool) -> AsyncGenerator[str, None]:
    """Whenever the run can't go on by itself: why, and what to do about it."""
    seen, told = 0, ""
    while True:
        reading = await app.read(run_id, AFTER_ALL)
        head, header = reading.head, reading.header
        is_free = head.worker is None and head.posted == head.consumed
        if is_free and head.seq != seen and header.status in ("waiting", "in_doubt"):
            seen = head.seq
            full = await app.read(run_id, LAST_CHAPTER)
            run = fold(read_events(full))
            sleeps = header.wake_at is not None and not _is_limit(header.wake_at, run)
            if _is_stuck(run, header, with_questions=with_questions, sleeps=sleeps):
                why = explain_wait(full)
                if why != told:
                    yield why
                told = why
            elif sleeps and not run.questions:
                print_note(f"run {run_id} sleeps until {iso(header.wake_at)}")
        await asyncio.sleep(LOOK_SECONDS)


def _is_limit(wake_at: int, run: Run) -> bool:
    """Nothing goes on at this instant: a deadline passes, or the time limit of a question."""
    limits = [run.start.deadline_at, *(asked.until for asked in run.questions.values())]
    # A limit is kept with the question and in a timer, each rounded on its own.
    return any(limit is not None and abs(limit - wake_at) <= 1 for limit in limits)


def _is_stuck(run: Run, header: Header, *, with_questions: bool, sleeps: bool) -> bool:
    """Nothing but a human, mail or the run's own deadline will wake it."""
    if header.status == "in_doubt" or header.reason:
        return True
    if run.questions and not with_questions:
        return False
    # Its children are driven by this process as well.
    return not (sleeps or run.children)


def explain_wait(reading: Reading) -> str:
    """What keeps a run from going on, and what to do about it."""
    run_id, reason = reading.head.run_id, reading.header.reason
    if reason:
        return f"run {run_id} can't go on: {reason}"
    events = read_events(reading)
    asking = [doubt for doubt in doubts(run_id, events, driven=False) if doubt.asks]
    if asking:
        doubt = asking[0]
        resolve = f"outlive resolve {shlex.quote(run_id)} {shlex.quote(doubt.step)}"
        return (
            f"run {run_id} is in doubt about effect {doubt.step} (key {doubt.key}): {doubt.why}; "
            f"find out, then `{resolve} --happened JSON`, or --not-happened, or --fail"
        )
    questions = open_questions(reading, events)
    if questions:
        first, count = questions[0], len(questions)
        more = f" (and {count - 1} more)" if count > 1 else ""
        return f"run {run_id} waits for an answer{more}: `{answer_command(run_id, first, count)}`"
    return f"run {run_id} waits for a signal: `outlive signal {shlex.quote(run_id)} NAME VALUE`"
