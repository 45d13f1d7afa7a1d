"""Schedules: definition, state, and the next decision. Pure.

A schedule has decided about every instant up to ``decided_until``: each was fired or skipped. One
decision covers all instants since then: after any outage at most one is fired late, the last. A
request (another plan, pause, resume, remove) counts from when it was made: instants before it
follow the plan before it, so that none is lost and none comes twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal
from zoneinfo import ZoneInfo

import msgspec

from outlive.model.cron import last_until, next_after, parse_cron
from outlive.model.defaults import SCHEDULE_MISSED, SCHEDULE_OVERLAP, SCHEDULE_TIME_ZONE
from outlive.model.queues import QueuePlace

#: The flow whose runs are schedules; no flow of a user can have this name.
SCHEDULE_FLOW = "outlive/schedule"
#: The run of a schedule is named by it.
SCHEDULE_PREFIX = "schedule/"
#: The signal that carries a request.
WISH_SIGNAL = "wish"
#: Tags of the runs that a schedule starts: its name, and the instant.
NAME_TAG, INSTANT_TAG = "schedule", "fired_at"
#: An instant counts as missed when it is the last, and nobody could fire it for longer than this.
LATE_MS_MAX = 5 * 60_000
#: The number of last runs that are remembered.
RECENT_MAX = 5

Missed = Literal["skip", "once"]
Overlap = Literal["allow", "skip"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a schedule: what to start, and when."""

    flow: str
    version: str
    #: The arguments, encoded as those of a run that is submitted.
    args: bytes
    cron: str | None = None
    every_ms: int | None = None
    tz: str = SCHEDULE_TIME_ZONE
    missed: Missed = SCHEDULE_MISSED
    overlap: Overlap = SCHEDULE_OVERLAP
    queue: str | None = None
    #: Of each run, from its start on.
    deadline_ms: int | None = None
    tags: Mapping[str, str] = {}
    pins: Mapping[str, str] = {}
    #: Of each run in its queue.
    place: QueuePlace | None = None


class Firing(msgspec.Struct, frozen=True):
    """A run that a schedule started, and the instant that it is for (ms since 1970)."""

    run_id: str
    at: int


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a schedule."""

    name: str
    decided_until: int
    #: The instant from which intervals are counted.
    anchor_at: int
    #: None: paused, or removed.
    next_at: int | None = None
    state: Literal["active", "paused", "removed"] = "active"
    recent: tuple[Firing, ...] = ()


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a schedule: pause, resume, trigger, replace."""

    what: Literal["define", "pause", "resume", "remove"]
    at: int
    #: With "define".
    plan: Plan | None = None


class Advance(msgspec.Struct, frozen=True, kw_only=True):
    """The next state of a schedule, and the firing that is due, if any."""

    plan: Plan
    standing: Standing
    #: By the plan that held before.
    firing: Firing | None = None


def first_standing(name: str, plan: Plan, now: int) -> Standing:
    """A schedule that was just defined."""
    standing = Standing(name=name, decided_until=now, anchor_at=now)
    return msgspec.structs.replace(standing, next_at=_next(plan, standing))


def decide(turn: Advance, wish: Wish | None, now: int, *, is_busy: bool = False) -> Advance:
    """Fire what is due, then carry out the request; ``is_busy``: the last run is under way."""
    plan, standing = turn.plan, turn.standing
    until = now if wish is None else max(standing.decided_until, min(wish.at, now))
    instant = _due(plan, standing, until)
    firing = None
    if instant is not None and _is_worth(plan, now - instant) and not is_busy:
        firing = Firing(run_id_of(standing.name, instant), instant)
    recent = standing.recent if firing is None else (*standing.recent, firing)[-RECENT_MAX:]
    after = msgspec.structs.replace(standing, decided_until=until, recent=recent)
    granted = _grant(Advance(plan=plan, standing=after), wish, until)
    return msgspec.structs.replace(granted, firing=firing)


def foresee(turn: Advance, wish: Wish) -> Advance:
    """The state of a schedule after a request that it has not read yet."""
    until = max(turn.standing.decided_until, wish.at)
    standing = msgspec.structs.replace(turn.standing, decided_until=until)
    return _grant(msgspec.structs.replace(turn, standing=standing), wish, until)


def instant_of(tags: Mapping[str, str]) -> int | None:
    """The instant that a run was started for, if a schedule started it."""
    try:
        return round(datetime.fromisoformat(tags[INSTANT_TAG]).timestamp() * 1000)
    except (KeyError, ValueError):
        return None


def run_id_of(name: str, instant: int) -> str:
    """The id of the run for an instant: the same however often it is started."""
    return f"{name}@{render_instant(instant)}"


def render_instant(instant: int) -> str:
    """An instant (ms since 1970) in ISO 8601, in UTC."""
    shown = datetime.fromtimestamp(instant / 1000, UTC)
    exactness = "seconds" if instant % 1000 == 0 else "milliseconds"
    return shown.isoformat(timespec=exactness).replace("+00:00", "Z")


def _due(plan: Plan, standing: Standing, until: int) -> int | None:
    """The last instant that was not decided about yet."""
    if standing.state != "active":
        return None
    if plan.every_ms is not None:
        last = until - (until - standing.anchor_at) % plan.every_ms
        is_due = last > standing.anchor_at
    else:
        last, is_due = last_until(parse_cron(plan.cron or ""), ZoneInfo(plan.tz), until), True
    return last if is_due and last > standing.decided_until else None


def _is_worth(plan: Plan, late_ms: int) -> bool:
    return plan.missed == "once" or late_ms <= LATE_MS_MAX


def _grant(turn: Advance, wish: Wish | None, at: int) -> Advance:
    plan = turn.plan if wish is None else wish.plan or turn.plan
    standing = turn.standing if wish is None else _told(turn, wish, at)
    next_at = _next(plan, standing)
    return Advance(plan=plan, standing=msgspec.structs.replace(standing, next_at=next_at))


def _told(turn: Advance, wish: Wish, at: int) -> Standing:
    standing = turn.standing
    change = msgspec.structs.replace
    is_removed = standing.state == "removed"
    match wish.what:
        case "define":
            is_new = wish.plan is not None and wish.plan.every_ms != turn.plan.every_ms
            if is_new or is_removed:
                standing = change(standing, anchor_at=at)
            return change(standing, state="active") if is_removed else standing
        case "remove":
            return change(standing, state="removed")
        case "pause" if not is_removed:
            return change(standing, state="paused")
        case "resume" if not is_removed:
            return change(standing, state="active")
        case _:
            return standing


def _next(plan: Plan, standing: Standing) -> int | None:
    if standing.state != "active":
        return None
    after = standing.decided_until
    if plan.every_ms is None:
        return next_after(parse_cron(plan.cron or ""), ZoneInfo(plan.tz), after)
    return after + plan.every_ms - (after - standing.anchor_at) % plan.every_ms
