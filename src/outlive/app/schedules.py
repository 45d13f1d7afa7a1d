"""Schedules as their owner sees them: defined, changed, paused, looked at.

A schedule is a run, and whoever is not its driver only posts: what is said here is a wish, with
the instant from which it counts. What a schedule will do is what it recorded, and the wishes that
nobody has heard yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

from outlive.app.handle import Handle
from outlive.app.mail import Letterbox
from outlive.app.queues import QueueVerbs
from outlive.app.start import Asked, Call, by_flow, hidden, start_of, to_submit
from outlive.engine.definitions import Flow, check_name, milliseconds
from outlive.engine.inputs import decode_as
from outlive.engine.schedules import SCHEDULE, target_of
from outlive.engine.start import start_event
from outlive.errors import (
    DefinitionRefused,
    RunIdTaken,
    ScheduleNotFound,
    UsageError,
    ValueRefused,
)
from outlive.journal.codec.parts import part, whole
from outlive.journal.codec.restore import read_whole
from outlive.journal.mail import read_letter
from outlive.journal.reader import read_events
from outlive.model.cron import parse_cron
from outlive.model.defaults import SCHEDULE_MISSED, SCHEDULE_OVERLAP, SCHEDULE_TIME_ZONE
from outlive.model.events import ChapterBegan, Event, SignalReceived
from outlive.model.ids import RUN_ID_BYTES_MAX, check_run_id
from outlive.model.mail import Signal
from outlive.model.retry import Duration
from outlive.model.schedules import (
    SCHEDULE_FLOW,
    SCHEDULE_PREFIX,
    WISH_SIGNAL,
    Advance,
    Firing,
    Missed,
    Overlap,
    Plan,
    Wish,
    first_standing,
    foresee,
    run_id_of,
)
from outlive.ports import Ports
from outlive.stores.types import LAST_CHAPTER, Entry, Reading
from outlive.worker.entries import start_entry

#: A shorter interval is a loop, not a schedule.
EVERY_MS_MIN = 1000
#: Its runs are named by it and the instant, which may have milliseconds.
NAME_BYTES_MAX = RUN_ID_BYTES_MAX - len(run_id_of("", 1))

Saying: TypeAlias = Literal["define", "pause", "resume", "remove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FiredRun:
    """A run that a schedule started: its id, the instant that it is for, where it stands."""

    id: str
    at: datetime
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule: what it starts when, and what it did last."""

    #: By this it is changed, paused, removed.
    name: str
    #: What it starts.
    flow: str
    #: Of that flow.
    version: str
    #: The times that it means, or None.
    cron: str | None
    #: The interval, or None.
    every: timedelta | None
    #: The zone whose clock a cron expression means.
    tz: str
    #: What becomes of the last instant at which nobody was there, after five minutes: "skip" or
    #: "once".
    missed: str
    #: Whether one is fired while the last run still goes on: "allow" or "skip".
    overlap: str
    #: Nothing is fired until it is resumed.
    paused: bool
    #: The next instant; None: it is paused.
    next_at: datetime | None
    #: The last runs, the newest last: their ``id``, the instant ``at``, and ``status``.
    recent: tuple[FiredRun, ...]


class Scheduling(QueueVerbs):
    """One store, with its schedules."""

    _ports: Ports

    async def _commit(self, entry: Entry) -> bool:
        raise NotImplementedError

    async def _submit(self, asked: Asked, *, compare: bool = True) -> Handle[Any]:
        raise NotImplementedError

    def _letterbox(self, run_id: str) -> Letterbox:
        raise NotImplementedError

    def _look_at(self, run_id: str) -> None:
        raise NotImplementedError

    # verbs

    async def schedule(
        self,
        name: str,
        flow: Flow[..., Any] | str,
        *args: Any,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = SCHEDULE_TIME_ZONE,
        missed: Missed = SCHEDULE_MISSED,
        overlap: Overlap = SCHEDULE_OVERLAP,
        queue: str | None = None,
        tags: Mapping[str, str] | None = None,
        queue_key: str | None = None,
        priority: int | None = None,
        units: int | None = None,
        **kwargs: Any,
    ) -> Schedule:
        """Start a run of this flow at each instant that ``cron`` names, or ``every`` so often.

        The same call again changes nothing; with anything else in it, that holds from now on.
        Of instants at which no worker was there at most the last is fired; ``missed`` says what
        becomes of it after more than five minutes: "skip" it, or catch up "once".
        ``overlap="skip"`` leaves an instant out while the last run goes on.
        """
        self._check_open()
        run_id = check_run_id(SCHEDULE_PREFIX + _check_length(check_name(name)))
        options: dict[str, Any] = {"queue": queue, "tags": tags, "queue_key": queue_key}
        options |= {"priority": priority, "units": units}
        what = await self._plan(flow, (args, kwargs), options)
        plan = _timed(what, cron, every, tz)
        plan = _ruled(plan, missed, overlap)
        now = self._ports.clock.now_ms()
        turn = Advance(plan=plan, standing=first_standing(name, plan, now))
        asked = by_flow(SCHEDULE, ((plan, turn.standing), {}), run_id, self._ports)
        reading = await self._read_schedule(name)
        if reading is None and await self._commit(start_entry(run_id, asked.event)):
            self._look_at(run_id)
            return await self._shown(turn)
        there = standing_of(reading or await self._read_schedule(name), name)
        if there.plan != plan or there.standing.state == "removed":
            there = await self._wish(there, Wish(what="define", at=now, plan=plan))
        return await self._shown(there)

    async def unschedule(self, name: str) -> bool:
        """Fire nothing more; runs that were started go on. False: there was no such schedule."""
        try:
            await self._say(name, "remove")
        except ScheduleNotFound:
            return False
        return True

    async def pause_schedule(self, name: str) -> Schedule:
        """Fire nothing until it is resumed; instants meanwhile are left out, not missed."""
        return await self._say(name, "pause")

    async def resume_schedule(self, name: str) -> Schedule:
        """Go on with the next instant."""
        return await self._say(name, "resume")

    async def fire_schedule(self, name: str) -> Handle[Any]:
        """Start a run of it now, beside its instants, even if it is paused."""
        turn = await self._there(name)
        now = self._ports.clock.now_ms()
        firing = Firing(run_id_of(name, now), now)
        flow = target_of(turn.plan, name, firing)
        seed = self._ports.entropy(16)
        event = start_event(flow, firing.run_id, part(turn.plan.args), seed=seed, now=now)
        return await self._submit(Asked(firing.run_id, event, None))

    async def schedules(self) -> list[Schedule]:
        """All schedules, by name."""
        self._check_open()
        found: list[Schedule] = []
        after: str | None = None
        while True:
            page = await self.find(flow=SCHEDULE_FLOW, limit=1000, after=after)
            for each in page.items:
                name = each.head.run_id.removeprefix(SCHEDULE_PREFIX)
                reading = await self._read_schedule(name)
                if reading is not None and reading.header.ended_at is None:
                    turn = standing_of(reading, name)
                    if turn.standing.state != "removed":
                        found.append(await self._shown(turn))
            after = page.next
            if after is None:
                return sorted(found, key=lambda schedule: schedule.name)

    # parts

    async def _plan(
        self, flow: Flow[..., Any] | str, call: Call, options: Mapping[str, Any]
    ) -> Plan:
        """What is to be started; when comes later."""
        if isinstance(flow, Flow) and flow.preset.id is not None:
            raise UsageError(
                f"flow {flow.name} has the option id={flow.preset.id!r}; a schedule names each of "
                "its runs by itself, after its own name and the instant: leave the id out"
            )
        options = {"id": None, **options}
        asked = hidden(to_submit(flow, call, options, self._ports), self._hider)
        event = asked.event
        await self._check_place(event)
        return Plan(
            flow=event.flow,
            version=event.version,
            args=whole(event.args),
            queue=event.queue,
            deadline_ms=None if asked.flow is None else _deadline_ms(asked.flow),
            tags=event.tags,
            pins=event.pins,
            place=event.place,
        )

    async def _read_schedule(self, name: str) -> Reading | None:
        return await self._lane(read_whole(self.store, SCHEDULE_PREFIX + name, LAST_CHAPTER))

    async def _there(self, name: str) -> Advance:
        self._check_open()
        reading = await self._read_schedule(check_name(name))
        if reading is None:
            raise ScheduleNotFound(name)
        turn = standing_of(reading, name)
        if turn.standing.state == "removed":
            raise ScheduleNotFound(name)
        return turn

    async def _say(self, name: str, what: Saying) -> Schedule:
        wish = Wish(what=what, at=self._ports.clock.now_ms())
        return await self._shown(await self._wish(await self._there(name), wish))

    async def _wish(self, turn: Advance, wish: Wish) -> Advance:
        await self._letterbox(SCHEDULE_PREFIX + turn.standing.name).signal(WISH_SIGNAL, wish)
        return foresee(turn, wish)

    async def _shown(self, turn: Advance) -> Schedule:
        plan, standing = turn.plan, turn.standing
        every = None if plan.every_ms is None else timedelta(milliseconds=plan.every_ms)
        return Schedule(
            name=standing.name,
            flow=plan.flow,
            version=plan.version,
            cron=plan.cron,
            every=every,
            tz=plan.tz,
            missed=plan.missed,
            overlap=plan.overlap,
            paused=standing.state == "paused",
            next_at=None if standing.next_at is None else _instant(standing.next_at),
            recent=tuple([await self._fired(firing) for firing in standing.recent]),
        )

    async def _fired(self, firing: Firing) -> FiredRun:
        reading = await self._lane(self.store.read(firing.run_id, 1 << 62))
        status = "deleted" if reading is None else reading.header.status
        return FiredRun(id=firing.run_id, at=_instant(firing.at), status=status)


def standing_of(reading: Reading | None, name: str) -> Advance:
    """How a schedule stands, by what it recorded and the wishes that it has not heard yet.

    Raises:
        RunIdTaken: its run is none of a schedule, or is over.
    """
    run_id = SCHEDULE_PREFIX + name
    if reading is None:
        raise RunIdTaken(run_id, "it belonged to a run that was deleted not long ago")
    if reading.header.flow != SCHEDULE_FLOW:
        raise RunIdTaken(run_id, f"it is a run of flow {reading.header.flow!r}, no schedule")
    if reading.header.ended_at is not None:
        why = f"the schedule's own run is {reading.header.status}; give it another name"
        raise RunIdTaken(run_id, f"{why} (unschedule() removes one without ending its run)")
    events = read_events(reading)
    first = events[0]
    args = first.args if isinstance(first, ChapterBegan) else start_of(first).args
    turn = Advance(**SCHEDULE.args_codec.decode(args))
    for wish in _unheard(reading, events):
        turn = foresee(turn, wish)
    return turn


def _unheard(reading: Reading, events: list[Event]) -> list[Wish]:
    """Wishes since the chapter began: it ends with the one that it hears."""
    first = events[0]
    kept = first.signals if isinstance(first, ChapterBegan) else []
    received = [event for event in events if isinstance(event, SignalReceived)]
    letters = (read_letter(reading.head.run_id, mail) for mail in reading.mail)
    waiting = [letter for letter in letters if isinstance(letter, Signal)]
    signals: list[SignalReceived | Signal] = [*kept, *received, *waiting]
    wishes = []
    for signal in signals:
        try:
            if signal.name == WISH_SIGNAL:
                wishes.append(decode_as(Wish, signal.value, is_json=signal.is_json))
        except ValueRefused:
            continue
    return wishes


def _check_length(name: str) -> str:
    size = len(name.encode())
    if size > NAME_BYTES_MAX:
        raise DefinitionRefused(
            f"schedule {name!r} has {size} bytes; a name that its runs can be named after has at "
            f"most {NAME_BYTES_MAX}"
        )
    return name


def _timed(plan: Plan, cron: str | None, every: Duration | None, tz: str) -> Plan:
    if (cron is None) == (every is None):
        raise UsageError('a schedule has either cron="0 3 * * *" or every="15m"')
    every_ms = None
    if cron is not None:
        parse_cron(cron)
        _check_zone(tz)
    elif every is not None:
        every_ms = milliseconds(every)
        if tz != "UTC":
            raise UsageError(f"every={every!r} counts time, which is the same in any tz={tz!r}")
        if every_ms < EVERY_MS_MIN:
            raise DefinitionRefused(f"every={every!r} is less than a second")
    return msgspec.structs.replace(plan, cron=cron, every_ms=every_ms, tz=tz)


def _ruled(plan: Plan, missed: Missed, overlap: Overlap) -> Plan:
    if missed not in ("skip", "once"):
        raise DefinitionRefused(f'missed={missed!r}: it is "skip" or "once"')
    if overlap not in ("allow", "skip"):
        raise DefinitionRefused(f'overlap={overlap!r}: it is "allow" or "skip"')
    return msgspec.structs.replace(plan, missed=missed, overlap=overlap)


def _check_zone(tz: str) -> None:
    try:
        ZoneInfo(tz)
    except (LookupError, ValueError, OSError, TypeError):
        raise DefinitionRefused(
            f'tz={tz!r} is no zone of this machine; write one such as "Europe/Berlin" '
            "(where the system has no zones: pip install tzdata)"
        ) from None


def _deadline_ms(flow: Flow[Any, Any]) -> int | None:
    deadline = flow.preset.deadline
    if isinstance(deadline, datetime):
        raise UsageError(
            f"flow {flow.name} has a deadline at one instant; for runs that begin at many write a "
            'duration: deadline="1h"'
        )
    return None if deadline is None else milliseconds(deadline)


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
