"""``outlive runs``: list runs from their headers alone."""

from __future__ import annotations

import argparse
import asyncio
from collections import deque

from msgspec.structs import replace

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
from outlive.stores.seam import Store
from outlive.stores.types import PAGE_MAX, Found, Header
from outlive.views.runs import published, shown, summary

COLUMNS = ("RUN", "FLOW", "STATUS", "AGE", "TOOK", "SEQ", "WORKER", "REASON")
REASON_CHARS = 80
MISFIT_CHARS = 500
#: The flow column of a run that has checkpoints and no flow.
CHECKPOINTED = "(checkpoints)"
#: Statuses of checkpointed runs, by the name that other runs use.
OTHER_WORDS = {"completed": "succeeded", "cancelled": "canceled"}


def runs(asked: argparse.Namespace) -> int:
    """Print the newest matching runs."""
    found, is_all, alone, now = asyncio.run(_find(asked, _parse_tag(asked.tag)))
    if asked.json:
        print_json([summary(run) | {"is_unattended": run.head.run_id in alone} for run in found])
        return 0
    print_table(COLUMNS, [_row(run, now, alone) for run in found])
    if not is_all:
        print_note(f"the newest {asked.limit}; --limit N shows more")
    if alone:
        flows = sorted({run.header.flow for run in found if run.head.run_id in alone})
        print_note(
            f"due, and driven by nobody right now: {len(alone)} (flow {', '.join(flows)}); "
            "`outlive worker MODULE` drives them, `outlive doctor` looks twice"
        )
    return 0


def _parse_tag(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--tag {text!r} has no value; write --tag NAME=VALUE")
    return name, value


async def _find(
    asked: argparse.Namespace, tag: tuple[str, str] | None
) -> tuple[list[Found], bool, set[str], int]:
    """The newest runs, whether that is all, the due ones without a driver, and the store's time."""
    newest: deque[Found] = deque(maxlen=asked.limit)
    count, after = 0, None
    async with open_app(asked.store, drive=False, must_exist=True, only_looks=True) as app:
        while True:
            page = await app.find(
                status=asked.status, flow=asked.flow, tag=tag, limit=PAGE_MAX, after=after
            )
            newest.extend(page.items)
            count += len(page.items)
            after = page.next
            if after is None:
                found = list(newest)
                alone = await app.unattended(found)
                if asked.flow is None and tag is None:
                    others = await _checkpointed(app.store, asked.status)
                    found = sorted([*found, *others], key=lambda each: each.header.started_at)
                    found, count = found[-asked.limit :], count + len(others)
                return found, count == len(found), alone, now_ms(app.store)


async def _checkpointed(store: Store, status: str | None) -> list[Found]:
    """Runs without a driver of ours: their own code saves checkpoints here."""
    found = []
    async for each in find_journals(store, OTHER_WORDS.get(status or "", status)):
        if each.header.status != "cleared":
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


# for programs


# one step, with nothing cut off


# for people
