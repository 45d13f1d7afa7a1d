"""``outlive show``: one run and everything that happened to it; its code is not needed.

With ``--follow`` events are printed as they become durable, until the run ends.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from outlive.app.app import App
from outlive.app.mail import Question, open_questions
from outlive.app.open import open_app
from outlive.cli.output import (
    print_json,
    print_line,
    print_note,
    print_table,
    safe_json,
    span,
    took,
)
from outlive.cli.timeline import draw, draw_row
from outlive.errors import RunNotFound, StoreError, UsageError
from outlive.model.events import ChildIntended, Event
from outlive.model.ids import checkpoint_journal, is_run
from outlive.model.run import Run
from outlive.model.schema import example, wanted
from outlive.model.usage import Usage
from outlive.settings import did_you_mean
from outlive.stores.types import Reading
from outlive.views.damage import Checked, check_journal, fold_or_none
from outlive.views.runs import AFTER_ALL, iso, outcome, summary
from outlive.views.timeline import Doubt, Row, doubts, timeline
from outlive.views.values import PREVIEW_CHARS, as_json, preview, read_value


def print_questions(run_id: str, questions: Sequence[Question]) -> None:
    """Questions, each with the command that answers it."""
    for question in questions:
        print_line()
        print_line(f"asks: {question.text}")
        print_line(f"  question   {question.id}")
        print_line(f"  wants      {wanted(question.schema)}")
        if question.by is not None:
            print_line(f"  of         {question.by}")
        if question.until is not None:
            print_line(f"  until      {question.until.isoformat(timespec='seconds')}")
        print_line(f"  answer it  {answer_command(run_id, question, len(questions))}")


def question_data(question: Question) -> dict[str, Any]:
    """The same as JSON."""
    return dataclasses.asdict(question)


def answer_command(run_id: str, question: Question, count: int) -> str:
    """Suggest the command to type."""
    words = ["outlive", "answer", shlex.quote(run_id), example(question.schema)]
    if count > 1:
        words += ["--question", shlex.quote(question.id)]
    return " ".join(words)


EVENT_COLUMNS = ("SEQ", "TIME", "BRANCH", "STEP", "WHAT", "TRY", "TOOK", "DETAIL")


#: The width of a row's last column; `--json` has all of it.
DETAIL_CHARS = 2 * PREVIEW_CHARS


#: Of all columns but the last, where a table's own widths can't be known yet.
WIDTHS = (4, 8, 8, 16, 14, 3, 7)


FOLLOW_SECONDS = 0.25


#: Of the children that a run waits for; `--json` has all of them.
CHILDREN_SHOWN = 10


def show(asked: argparse.Namespace) -> int:
    """Print a run and its journal, as far as it can be read."""
    if asked.follow:
        if asked.step is not None:
            raise UsageError("--follow shows all steps; leave STEP or --follow out")
        return asyncio.run(_follow(asked))
    reading = asyncio.run(_read(asked))
    checked = check_journal(reading)
    if asked.step is not None:
        _print_step(reading, checked.events, asked)
    elif asked.json:
        print_json(_as_data(reading, checked.events) | {"damage": checked.damage})
    else:
        _print(reading, checked.events)
    return _note_damage(checked)


def _note_damage(checked: Checked) -> int:
    for damage in checked.all:
        print_note(f"outlive: run {damage.run}, seq {damage.seq}: {damage.why}")
    return StoreError.exit_code if checked.all else 0


async def _follow(asked: argparse.Namespace) -> int:
    shown = 0
    async with open_app(asked.store, drive=False, must_exist=True) as app:
        journal = await _journal(app, asked.run)
        while True:
            if (await app.read(journal, AFTER_ALL)).head.seq != shown:
                reading = await app.read(journal)
                checked = check_journal(reading)
                for row in timeline(asked.run, checked.events)[shown:]:
                    _print_row(row, reading.header.started_at, as_json=asked.json)
                shown = len(checked.events)
                if checked.damage or reading.header.ended_at is not None:
                    return _note_damage(checked)
            await asyncio.sleep(FOLLOW_SECONDS)


def _print_row(row: Row, started_at: int, *, as_json: bool) -> None:
    if as_json:
        print(safe_json(msgspec.json.encode(_row_data(row, started_at))), flush=True)
        return
    if sys.stdout.isatty():
        draw_row(row, _detail(row, started_at))
        return
    *cells, detail = _cells(row)
    padded = [cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)]
    print_line("  ".join([*padded, detail]).rstrip())
    sys.stdout.flush()


async def _read(asked: argparse.Namespace) -> Reading:
    async with open_app(asked.store, drive=False, must_exist=True) as app:
        return await app.read(await _journal(app, asked.run))


async def _journal(app: App, run_id: str) -> str:
    """The run's own journal, or that of its checkpoints, if it has nothing else."""
    try:
        await app.read(run_id, AFTER_ALL)
    except RunNotFound as missing:
        if not is_run(run_id):
            raise
        with suppress(RunNotFound):
            return (await app.read(checkpoint_journal(run_id), AFTER_ALL)).head.run_id
        raise missing from None
    return run_id


def _doubts(reading: Reading, events: Sequence[Event]) -> list[Doubt]:
    return doubts(reading.head.run_id, events, driven=reading.head.worker is not None)


def _as_data(reading: Reading, events: list[Event]) -> dict[str, Any]:
    run = fold_or_none(events) or Run()
    value, error = outcome(run)
    args = None if run.started is None else _value(run.started.args)
    started_at = reading.header.started_at
    return summary(reading) | {
        "args": args,
        "outcome": value,
        "error": error,
        "usage": [msgspec.structs.asdict(each) for each in run.usage.values()],
        "published": {name: _value(value) for name, value in run.published.items()},
        "doubts": [_doubt_data(doubt) for doubt in _doubts(reading, events)],
        "questions": [question_data(each) for each in _questions(reading, events)],
        "children": [_child_data(run, child) for child in run.children.values()],
        "deadline_at": None if run.started is None else iso(run.started.deadline_at),
        "pins": {} if run.started is None else dict(run.started.pins),
        "timeline": [_row_data(row, started_at) for row in timeline(reading.head.run_id, events)],
    }


def _questions(reading: Reading, events: list[Event]) -> list[Question]:
    run = fold_or_none(events)
    return [] if run is None or run.started is None else open_questions(reading, events)


def _child_data(run: Run, child: ChildIntended) -> dict[str, Any]:
    is_begun = child.step in run.children_started
    told = {"id": child.child_id, "flow": child.flow, "step": child.step}
    return told | {"is_started": is_begun, "is_awaited": child.is_awaited}


def _value(data: bytes | None) -> Any:
    return None if data is None else as_json(read_value(data))


def _doubt_data(doubt: Doubt) -> dict[str, Any]:
    return msgspec.structs.asdict(doubt) | {"args": _value(doubt.args)}


def _row_data(row: Row, started_at: int) -> dict[str, Any]:
    error = row.error and {
        "type": row.error.type_name,
        "message": row.error.message,
        "trace": row.error.trace,
    }
    changed = {
        "at": iso(started_at + row.at),
        "args": _value(row.args),
        "value": _value(row.value),
        "error": error,
        "due_at": iso(row.due_at),
    }
    return msgspec.structs.asdict(row) | changed


def _print_step(reading: Reading, events: list[Event], asked: argparse.Namespace) -> None:
    """Show every event of a step in full: arguments, outcome, traceback."""
    rows = timeline(reading.head.run_id, events)
    found = [row for row in rows if row.step and asked.step in _names(row)]
    if not found:
        names = sorted({name for row in rows if row.step for name in _names(row)})
        hint = did_you_mean(asked.step, names) or "; `outlive show RUN` lists its steps"
        raise UsageError(f"run {reading.head.run_id} has no step {asked.step!r}{hint}")
    started_at = reading.header.started_at
    if asked.json:
        print_json([_row_data(row, started_at) for row in found])
        return
    for row in found:
        _print_whole(row, started_at)


def _names(row: Row) -> set[str]:
    """Names of a row's step: its id, its place in its branch, or its name alone."""
    name = row.step.partition("#")[0]
    return {f"{row.branch}/{row.step}", row.step, name}


def _print_whole(row: Row, started_at: int) -> None:
    tried = "" if row.attempt is None else f", attempt {row.attempt}"
    lasted = "" if row.duration_ms is None else f", {took(row.duration_ms)}"
    where = f"{row.branch}/{row.step}" if row.branch else row.step
    print_line(f"seq {row.seq}: {where} {row.what}{tried}{lasted}, at {iso(started_at + row.at)}")
    for name, data in (("arguments", row.args), ("value", row.value)):
        if data is not None:
            print_line(f"  {name}")
            _print_indented(msgspec.json.format(msgspec.json.encode(_value(data)), indent=2))
    if row.error is not None:
        print_line("  error")
        _print_indented(f"{row.error.type_name}: {row.error.message}".encode())
        _print_indented((row.error.trace or "").encode())
    if row.note:
        print_line(f"  note       {row.note}")


def _print_indented(text: bytes) -> None:
    for line in text.decode(errors="replace").splitlines():
        print_line(f"    {line}")


def _print(reading: Reading, events: list[Event]) -> None:
    run = fold_or_none(events) or Run()
    print_line(f"run {reading.head.run_id}")
    for name, fact in (_facts(reading) | _facts_of_journal(run)).items():
        if fact:
            first, *rest = fact.splitlines() if name == "reason" else [fact]
            print_line(f"  {name:<9}  {first}")
            for line in rest:
                print_line(f"{'':13}{line}")
    print_line()
    rows = timeline(reading.head.run_id, events)
    if sys.stdout.isatty():
        draw(rows, [_detail(row, reading.header.started_at) for row in rows])
    else:
        print_table(EVENT_COLUMNS, [_cells(row) for row in rows])
    _print_trace(run)
    _print_children(run)
    print_questions(reading.head.run_id, _questions(reading, events))
    _print_doubts(reading, events)


def _facts(reading: Reading) -> dict[str, str]:
    head, header = reading.head, reading.header
    mail = head.posted - head.consumed
    return {
        "flow": f"{header.flow}, version {header.version}" if header.flow else "",
        "status": header.status,
        "reason": header.reason.rstrip(": "),
        "started": iso(header.started_at) or "",
        "ended": iso(header.ended_at) or "",
        "due": iso(header.wake_at) or "" if header.wake_at else "",
        "worker": head.worker or "",
        "mail": f"{mail} not read yet" if mail else "",
        "queue": header.queue if header.queue != "default" else "",
        "parent": header.parent or "",
        "tags": ", ".join(f"{name}={value}" for name, value in header.tags.items()),
    }


def _facts_of_journal(run: Run) -> dict[str, str]:
    start = run.started
    if start is None:
        return {}
    return {
        "deadline": iso(start.deadline_at) or "",
        "pins": ", ".join(f"{name}={value}" for name, value in start.pins.items()),
        "arguments": preview(start.args, 4 * PREVIEW_CHARS),
        "published": ", ".join(f"{n}={preview(v)}" for n, v in run.published.items()),
        "usage": "; ".join(map(_used, run.usage.values())),
        "outcome": "" if run.value is None else preview(run.value, 4 * PREVIEW_CHARS),
    }


def _used(usage: Usage) -> str:
    """What one model was used for."""
    told = f"{usage.model}: {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    cost = f", cost {usage.cost:.6g}" if usage.cost else ""
    return f"{told}{cost}, {usage.calls:,} call{'' if usage.calls == 1 else 's'}"


def _print_trace(run: Run) -> None:
    """Print the traceback of the error that ended it."""
    if run.error is None or not run.error.trace:
        return
    print_line()
    print_line(f"{run.error.type_name} was raised in:")
    for line in run.error.trace.split("\n"):
        print_line(line)


def _print_children(run: Run) -> None:
    waits = [child for child in run.children.values() if child.is_awaited]
    if not waits:
        return
    print_line()
    print_line(f"waits for {len(waits)} child run{'s' if len(waits) > 1 else ''}:")
    for child in waits[:CHILDREN_SHOWN]:
        print_line(f"  {child.child_id}  flow {child.flow}, called at {child.step}")
    if len(waits) > CHILDREN_SHOWN:
        print_line(f"  … and {len(waits) - CHILDREN_SHOWN} more")


def _cells(row: Row) -> list[str]:
    return [
        str(row.seq),
        f"+{row.at / 1000:.3f}",
        row.branch,
        row.step,
        row.what,
        "" if row.attempt is None else str(row.attempt),
        took(row.duration_ms),
        _detail(row),
    ]


def _detail(row: Row, started_at: int | None = None) -> str:
    """The details of a row; with the run's start, waits are shown by their length."""
    parts = []
    if row.value is not None:
        parts.append(preview(row.value))
    elif row.args is not None and (shown := preview(row.args)) != "{}":
        parts.append(shown)
    if row.error is not None:
        parts.append(f"{row.error.type_name}: {row.error.message}"[:PREVIEW_CHARS].rstrip(": "))
    if row.due_at is not None and started_at is None:
        parts.append(f"until {iso(row.due_at)}")
    elif row.due_at is not None and started_at is not None:
        lead = "again in" if row.what == "attempt failed" else "for"
        parts.append(f"{lead} {span(row.due_at - started_at - row.at)}")
    if row.note:
        parts.append(row.note)
    text = "; ".join(parts)
    return text if len(text) <= DETAIL_CHARS else text[: DETAIL_CHARS - 1] + "…"


def _print_doubts(reading: Reading, events: list[Event]) -> None:
    run_id = shlex.quote(reading.head.run_id)
    for doubt in _doubts(reading, events):
        print_line()
        print_line(f"in doubt: effect {doubt.step}, attempt {doubt.attempt}, key {doubt.key}")
        print_line(f"  arguments  {preview(doubt.args)}")
        print_line(f"  because    {doubt.why}")
        if doubt.asks:
            step = shlex.quote(doubt.step)
            print_line(f"  settle it  outlive resolve {run_id} {step} --happened JSON")
            print_line("             (or --not-happened, or --fail)")
