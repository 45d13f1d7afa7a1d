"""``outlive queues`` and ``outlive set-queue``: what waits in queues, and what limits them."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any

from outlive.cli.output import age, now_ms, print_json, print_line, print_note, print_table
from outlive.errors import UsageError
from outlive.model.queues import Queue, Rate
from outlive.opening import open_app
from outlive.queueing import limits_of, render_limits
from outlive.store import QueueLimits, QueueState
from outlive.views.runs import iso

COLUMNS = ("QUEUE", "WAITING", "OLDEST", "HELD", "SPENT", "LIMITS")


def queues(asked: argparse.Namespace) -> int:
    """Print every queue that has limits or runs."""
    found, now = asyncio.run(_look(asked.store))
    if asked.json:
        print_json([as_json(state) for state in found])
        return 0
    print_table(COLUMNS, [_row(state, now) for state in found])
    if not found:
        print_note("no queue has limits or runs; `outlive set-queue NAME` sets some")
    return 0


async def _look(store: str | None) -> tuple[Sequence[QueueState], int]:
    async with open_app(store, drive=False, must_exist=True) as app:
        return await app.queues(), now_ms(app.store)


def _row(state: QueueState, now: int) -> list[str]:
    rate = None if state.limits is None else state.limits.rate
    return [
        state.name,
        str(state.waiting),
        "-" if state.oldest_at is None else age(now - state.oldest_at),
        str(state.held),
        "-" if rate is None else f"{state.spent}/{rate}",
        render_limits(state.limits),
    ]


def as_json(state: QueueState) -> dict[str, Any]:
    """A queue as programs read it."""
    return {
        "name": state.name,
        "waiting": state.waiting,
        "oldest_at": iso(state.oldest_at),
        "held": state.held,
        "spent": state.spent,
        "limits": None if state.limits is None else _limits_json(state.limits),
    }


def _limits_json(limits: QueueLimits) -> dict[str, Any]:
    is_paced = limits.rate is not None
    return {
        "concurrency": limits.concurrency,
        "per_key": limits.per_key,
        "per_worker": limits.per_worker,
        "rate": {"units": limits.rate, "per_ms": limits.rate_ms} if is_paced else None,
    }


def set_queue(asked: argparse.Namespace) -> int:
    """Set the limits of a queue for all workers."""
    queue = Queue(
        asked.name,
        concurrency=asked.concurrency,
        per_key=asked.per_key,
        per_worker=asked.per_worker,
        rate=None if asked.rate is None else parse_rate(asked.rate),
    )
    asyncio.run(_set(asked.store, queue))
    if asked.json:
        print_json({"name": queue.name, "limits": _limits_json(limits_of(queue))})
    else:
        print_line(f"queue {queue.name}: {render_limits(limits_of(queue))}")
    return 0


async def _set(store: str | None, queue: Queue) -> None:
    async with open_app(store, drive=False) as app:
        await app.set_queue(queue)


def parse_rate(text: str) -> Rate:
    """A rate as it is typed: ``100/1m``."""
    units, slash, per = text.partition("/")
    if not slash or not units.isdecimal() or not per:
        raise UsageError(f"--rate {text!r} is no rate; write UNITS/TIME, as in 100/1m")
    return Rate(int(units), per)
