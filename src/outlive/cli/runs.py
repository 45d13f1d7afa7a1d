"""``outlive runs``: list runs from their headers alone."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec.structs import replace

from outlive.app.app import App
from outlive.app.lists import RunDoubt, RunFilters, RunQuestion, WorkerListed
from outlive.app.open import open_app
from outlive.checkpoints.store import find_journals, run_id_of
from outlive.cli.output import (
    age,
    now_ms,
    print_json,
    print_note,
    print_table,
    span,
)
from outlive.engine.notices import MISMATCH
from outlive.errors import UsageError
from outlive.model.defaults import FIND_LIMIT
from outlive.stores.seam import Store
from outlive.stores.types import PAGE_MAX, Found, Header
from outlive.views.runs import published, shown, summary

T = TypeVar("T")

COLUMNS = ("RUN", "FLOW", "STATUS", "AGE", "TOOK", "SEQ", "WORKER", "REASON")
REASON_CHARS = 80
#: Pages that are looked at for one list: some filters are compared run by run.
PAGES_MAX = 100
MISFIT_CHARS = 500
#: The flow column of a run that has checkpoints and no flow.
CHECKPOINTED = "(checkpoints)"
#: Statuses of checkpointed runs, by the name that other runs use.
OTHER_WORDS = {"completed": "succeeded", "cancelled": "canceled"}


def runs(asked: argparse.Namespace) -> int:
    """Print the newest matching runs."""
    _filters(asked)  # what can't be right is said before any store is looked for
    asyncio.run(_list(asked))
    return 0


async def _list(asked: argparse.Namespace) -> None:
    async with open_app(asked.store, drive=False, must_exist=True, only_looks=True) as app:
        begin = (await app.store.changes()).next if asked.watch else ""
        found, after, alone = await _find(app, asked)
        _print(asked, found, alone, now_ms(app.store))
        if after is not None:
            print_note(f"the newest {len(found)}; older ones: --after {after}, or --limit N")
        if asked.watch:
            await _watch(app, asked, begin)


def _print(asked: argparse.Namespace, found: list[Found], alone: set[str], now: int) -> None:
    if asked.json:
        print_json([summary(run) | {"is_unattended": run.head.run_id in alone} for run in found])
        return
    print_table(COLUMNS, [_row(run, now, alone) for run in found])
    if alone:
        flows = sorted({run.header.flow for run in found if run.head.run_id in alone})
        print_note(
            f"due, and driven by nobody right now: {len(alone)} (flow {', '.join(flows)}); "
            "`outlive worker MODULE` drives them, `outlive doctor` looks twice"
        )


async def _watch(app: App, asked: argparse.Namespace, begin: str) -> None:
    """A line for each run that moves, until somebody ends it."""
    filters, begins = _filters(asked), asked.prefix or ""
    async for change in app.changes(begin):
        # Whether it is asked for only the store knows: the same filters, and this very run.
        filters["prefix"] = change.run.id
        page = await app.find(limit=PAGE_MAX, **filters)
        moved = [run for run in page.items if run.id == change.run.id and run.id.startswith(begins)]
        if moved:
            _print(asked, moved, set(), now_ms(app.store))


def _filters(asked: argparse.Namespace) -> RunFilters:
    return {
        "status": asked.status,
        "flow": asked.flow,
        "tag": dict(_parse_tag(each) for each in asked.tag) if asked.tag else None,
        "parent": asked.parent,
        "queue": asked.queue,
        "worker": asked.driver,
        "prefix": asked.prefix,
        "error": asked.error,
        "since": asked.since,
        "until": asked.until,
        "newest": True,
    }


def _parse_tag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--tag {text!r} has no value; write --tag NAME=VALUE")
    return name, value


async def _find(app: App, asked: argparse.Namespace) -> tuple[list[Found], str | None, set[str]]:
    """The newest runs, the newest last; where older ones begin; the due ones without a driver."""
    found: list[Found] = []
    after, filters = asked.after, _filters(asked)
    for _ in range(PAGES_MAX):
        limit = min(PAGE_MAX, asked.limit - len(found))
        page = await app.find(limit=limit, after=after, **filters)
        found += page.items
        after = page.next
        if after is None or len(found) >= asked.limit:
            break
    alone = await app.unattended(found)
    if not any(filters.get(name) for name in filters if name not in ("status", "newest")):
        others = await _checkpointed(app.store, asked.status) if asked.after is None else []
        found = sorted([*found, *others], key=_start, reverse=True)[: asked.limit]
    return found[::-1], after, alone


def _start(run: Found) -> int:
    return run.header.started_at


async def _checkpointed(store: Store, statuses: Sequence[str] | None) -> list[Found]:
    """Runs without a driver of ours: their own code saves checkpoints here."""
    found = []
    wanted = {OTHER_WORDS.get(each, each) for each in statuses or ()}
    async for each in find_journals(store):
        status = each.header.status
        if status != "cleared" and (not wanted or status in wanted):
            head = replace(each.head, run_id=await run_id_of(store, each.head.run_id))
            found.append(replace(each, head=head, header=replace(each.header, flow=CHECKPOINTED)))
    return found


def _row(found: Found, now: int, alone: set[str]) -> list[str]:
    head, header = found.head, found.header
    driver = "nobody" if head.run_id in alone else head.worker or "-"
    return [
        head.run_id,
        header.flow,
        header.status,
        age(now - header.started_at),
        "-" if header.ended_at is None else span(header.ended_at - header.started_at),
        str(head.seq),
        driver,
        _reason(header),
    ]


def _reason(header: Header) -> str:
    """A reason on one line; a mismatch of code and journal with both sides."""
    reason = " ".join(shown(header.reason).split())
    chars = MISFIT_CHARS if reason.startswith(MISMATCH) else REASON_CHARS
    return reason[:chars].rstrip(": ") or _published(header)


def _published(header: Header) -> str:
    """What the run published, on one line."""
    values = published(header)
    if isinstance(values, str):
        return values
    told = (f"{name}={value}" for name, value in values.items())
    return " ".join(", ".join(told).split())[:REASON_CHARS]


# what waits for people, and who works


def questions(asked: argparse.Namespace) -> int:
    """Print the questions of all runs that wait for an answer."""
    found, now = asyncio.run(_ask(asked, App.questions))
    if asked.json:
        print_json([_question_json(each) for each in found])
        return 0
    print_table(
        ("RUN", "QUESTION", "ASKED", "LIMIT", "FOR", "TEXT"),
        [
            [
                each.run,
                each.question.id,
                age(now - _ms(each.question.asked_at)),
                "-" if each.until is None else _in(_ms(each.until) - now),
                each.by or "-",
                _one_line(each.text),
            ]
            for each in found
        ],
    )
    print_note(
        "`outlive answer RUN VALUE --question QUESTION` answers one"
        if found
        else "no run asks a question"
    )
    return 0


def doubts(asked: argparse.Namespace) -> int:
    """Print the effects in doubt, and the command that settles each."""
    found, _ = asyncio.run(_ask(asked, App.doubts))
    if asked.json:
        print_json([_doubt_json(each) for each in found])
        return 0
    print_table(
        ("RUN", "FLOW", "STEP", "SETTLED BY", "WHY", "COMMAND"),
        [
            [each.run, each.flow, each.step, each.settled_by, _one_line(each.why), each.command]
            for each in found
        ],
    )
    if not found:
        print_note("nothing is in doubt")
    return 0


def list_workers(asked: argparse.Namespace) -> int:
    """Print the workers of all processes."""
    found, now = asyncio.run(_ask(asked, lambda app, _: app.workers()))
    if asked.json:
        print_json([_worker_json(each) for each in found])
        return 0
    print_table(
        ("WORKER", "HOST", "PID", "BEAT", "HOLDS", "FLOWS"),
        [
            [
                each.id,
                each.host or "-",
                str(each.pid or "-"),
                "-" if each.beat_at is None else age(now - _ms(each.beat_at)),
                str(each.held),
                ", ".join(f"{name} ({' '.join(some)})" for name, some in each.flows.items()),
            ]
            for each in found
        ],
    )
    if not found:
        print_note("no worker is there; `outlive worker MODULE` starts one")
    return 0


async def _ask(asked: argparse.Namespace, what: Callable[..., Awaitable[T]]) -> tuple[T, int]:
    async with open_app(asked.store, drive=False, must_exist=True, only_looks=True) as app:
        limit = getattr(asked, "limit", FIND_LIMIT)
        return await what(app, limit), now_ms(app.store)


def _question_json(each: RunQuestion) -> dict[str, Any]:
    return {
        "run": each.run,
        "flow": each.flow,
        "question": each.question.id,
        "text": each.text,
        "schema": each.schema,
        "by": each.by,
        "asked_at": each.question.asked_at.isoformat(),
        "until": None if each.until is None else each.until.isoformat(),
    }


def _doubt_json(each: RunDoubt) -> dict[str, Any]:
    return {
        "run": each.run,
        "flow": each.flow,
        "step": each.step,
        "key": each.key,
        "why": each.why,
        "settled_by": each.settled_by,
        "command": each.command,
    }


def _worker_json(each: WorkerListed) -> dict[str, Any]:
    return {
        "id": each.id,
        "host": each.host,
        "pid": each.pid,
        "beat_at": None if each.beat_at is None else each.beat_at.isoformat(),
        "flows": {name: list(some) for name, some in each.flows.items()},
        "held": each.held,
    }


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _in(ms: int) -> str:
    return f"in {age(ms)}" if ms > 0 else "over"


def _one_line(text: str) -> str:
    return " ".join(shown(text).split())[:REASON_CHARS]
