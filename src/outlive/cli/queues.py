"""``outlive queues``, ``set-queue`` and ``schedules``."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any

from outlive.app.app import App
from outlive.app.open import open_app
from outlive.app.queues import limits_of, render_limits
from outlive.app.schedules import Schedule
from outlive.cli.output import age, now_ms, print_json, print_line, print_note, print_table, span
from outlive.errors import ScheduleNotFound, UsageError
from outlive.model.queues import Queue, Rate
from outlive.stores.types import QueueLimits, QueueState
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
    """A queue as JSON."""
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
    """Parse a rate: ``100/1m``."""
    units, slash, per = text.partition("/")
    if not slash or not units.isdecimal() or not per:
        raise UsageError(f"--rate {text!r} is not a rate; write UNITS/TIME, as in 100/1m")
    return Rate(int(units), per)


SCHEDULE_COLUMNS = ("SCHEDULE", "FLOW", "WHEN", "NEXT", "IN", "LAST RUN", "STATUS")
ACTIONS = ("pause", "resume", "fire", "remove")


def schedules(asked: argparse.Namespace) -> int:
    """List schedules, or act on one."""
    if asked.action is not None and asked.name is None:
        raise UsageError(f"`outlive schedules {asked.action}` needs the name of a schedule")
    return asyncio.run(_schedules(asked))


async def _schedules(asked: argparse.Namespace) -> int:
    async with open_app(asked.store, drive=False, must_exist=True) as app:
        if asked.action is None:
            _print_all(await app.schedules(), now_ms(app.store), as_json=asked.json)
            return 0
        said = await _do(app, asked.action, asked.name)
    if asked.json:
        print_json(said)
    else:
        print_line(str(said["said"]))
    return 0


async def _do(app: App, action: str, name: str) -> dict[str, Any]:
    match action:
        case "pause":
            await app.pause_schedule(name)
            return {"schedule": name, "said": f"{name} is paused; `resume` goes on with it"}
        case "resume":
            schedule = await app.resume_schedule(name)
            return {"schedule": name, "said": f"{name} goes on at {_shown_at(schedule)}"}
        case "fire":
            run_id = (await app.fire_schedule(name)).id
            return {"schedule": name, "run": run_id, "said": f"run {run_id} is to be driven"}
        case _:
            if not await app.unschedule(name):
                raise ScheduleNotFound(name)
            return {"schedule": name, "said": f"{name} is removed; its runs go on"}


def _print_all(found: list[Schedule], now: int, *, as_json: bool) -> None:
    if as_json:
        print_json([_data(schedule) for schedule in found])
    else:
        print_table(SCHEDULE_COLUMNS, [_schedule_row(schedule, now) for schedule in found])


def _data(schedule: Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "flow": schedule.flow,
        "version": schedule.version,
        "cron": schedule.cron,
        "every_seconds": None if schedule.every is None else schedule.every.total_seconds(),
        "tz": schedule.tz,
        "missed": schedule.missed,
        "overlap": schedule.overlap,
        "paused": schedule.paused,
        "next_at": schedule.next_at,
        "runs": [{"id": run.id, "at": run.at, "status": run.status} for run in schedule.recent],
    }


def _schedule_row(schedule: Schedule, now: int) -> list[str]:
    ahead = 0 if schedule.next_at is None else schedule.next_at.timestamp() * 1000 - now
    last = schedule.recent[-1] if schedule.recent else None
    return [
        schedule.name,
        schedule.flow,
        _when(schedule),
        _shown_at(schedule),
        "-" if schedule.next_at is None else "due" if ahead <= 0 else span(round(ahead)),
        "-" if last is None else last.id,
        "-" if last is None else last.status,
    ]


def _when(schedule: Schedule) -> str:
    if schedule.every is not None:
        return f"every {schedule.every}"
    return f"{schedule.cron} {schedule.tz}"


def _shown_at(schedule: Schedule) -> str:
    if schedule.next_at is None:
        return "paused"
    return schedule.next_at.isoformat(timespec="seconds").replace("+00:00", "Z")
