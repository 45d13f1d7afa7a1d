"""``outlive schedules``: what starts when, what it started last; pause, resume, fire, remove."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from outlive.app import App
from outlive.cli.output import now_ms, print_json, print_line, print_table, span
from outlive.errors import ScheduleNotFound, UsageError
from outlive.opening import open_app
from outlive.scheduling import Schedule

COLUMNS = ("SCHEDULE", "FLOW", "WHEN", "NEXT", "IN", "LAST RUN", "STATUS")
ACTIONS = ("pause", "resume", "fire", "remove")


def schedules(asked: argparse.Namespace) -> int:
    """List them, or do something to one."""
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
        print_table(COLUMNS, [_row(schedule, now) for schedule in found])


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


def _row(schedule: Schedule, now: int) -> list[str]:
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
