"""Schedules: define, change, pause, resume, fire, list.

A schedule is a run, and only its driver writes its journal. A change is posted as a wish, with the
instant from which it counts. The state of a schedule is what its journal says, plus the wishes that
its driver has not read yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

import msgspec

from outlive.app.handle import Handle
from outlive.app.lists import RunLists
from outlive.app.mail import Letterboxes
from outlive.app.queues import Queues
from outlive.app.reader import StoreReader
from outlive.app.start import Call, Starter, StartRequest, by_flow, hidden, start_of, to_submit
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
from outlive.stores.types import LAST_CHAPTER, Reading

#: A shorter interval is a loop, not a schedule.
EVERY_MS_MIN = 1000
#: The ids of its runs are its name and the instant, which may have milliseconds.
NAME_BYTES_MAX = RUN_ID_BYTES_MAX - len(run_id_of("", 1))

Saying: TypeAlias = Literal["define", "pause", "resume", "remove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FiredRun:
    """A run that a schedule started: its id, its instant, its status."""

    id: str
    at: datetime
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule: what it starts when, and what it did last."""

    #: The name by which it is changed, paused, removed.
    name: str
    #: The flow that it starts.
    flow: str
    #: The version of that flow.
    version: str
    #: The cron expression, or None.
    cron: str | None
    #: The interval, or None.
    every: timedelta | None
    #: The time zone of the cron expression.
    tz: str
    #: What to do with an instant that no worker fired within five minutes: "skip" it, or fire the
    #: last one "once".
    missed: str
    #: Whether to fire while the last run is still going: "allow" or "skip".
    overlap: str
    #: True: nothing is fired until it is resumed.
    paused: bool
    #: The next instant; None while it is paused.
    next_at: datetime | None
    #: The last runs, the newest last: their ``id``, the instant ``at``, and ``status``.
    recent: tuple[FiredRun, ...]


class Schedules:
    """The schedules of one store."""

    def __init__(self, reader: StoreReader, starter: Starter, letterboxes: Letterboxes) -> None:
        self._reader, self._ports = reader, reader.ports
        self._starter, self._letterboxes = starter, letterboxes
        self._queues = Queues(reader)

    async def schedule(
        self,
        name: str,
        flow: Flow[..., Any] | str,
        call: Call,
        options: Mapping[str, Any],
        *,
        cron: str | None,
        every: Duration | None,
        tz: str,
        missed: Missed,
        overlap: Overlap,
    ) -> Schedule:
        """Define a schedule, or change the one of that name; ``options`` are those of its runs."""
        self._reader.check_open()
        run_id = check_run_id(SCHEDULE_PREFIX + _check_length(check_name(name)))
        what = await self._plan(flow, call, options)
        plan = _timed(what, cron, every, tz)
        plan = _ruled(plan, missed, overlap)
        now = self._ports.clock.now_ms()
        turn = Advance(plan=plan, standing=first_standing(name, plan, now))
        request = by_flow(SCHEDULE, ((plan, turn.standing), {}), run_id, self._ports)
        reading = await self._read_schedule(name)
        if reading is None and await self._starter.begin(run_id, request.event):
            return await self._shown(turn)
        there = standing_of(reading or await self._read_schedule(name), name)
        if there.plan != plan or there.standing.state == "removed":
            there = await self._wish(there, Wish(what="define", at=now, plan=plan))
        return await self._shown(there)

    async def remove(self, name: str) -> bool:
        """Remove a schedule; False: there was none of that name."""
        try:
            await self._say(name, "remove")
        except ScheduleNotFound:
            return False
        return True

    async def pause(self, name: str) -> Schedule:
        """Fire nothing until it is resumed."""
        return await self._say(name, "pause")

    async def resume(self, name: str) -> Schedule:
        """Fire again, from the next instant on."""
        return await self._say(name, "resume")

    async def fire(self, name: str) -> Handle[Any]:
        """Start a run now, in addition to its instants, even if it is paused."""
        turn = await self._there(name)
        now = self._ports.clock.now_ms()
        firing = Firing(run_id_of(name, now), now)
        flow = target_of(turn.plan, name, firing)
        seed = self._ports.entropy(16)
        event = start_event(flow, firing.run_id, part(turn.plan.args), seed=seed, now=now)
        return await self._starter.submit_request(StartRequest(firing.run_id, event, None))

    async def all(self) -> list[Schedule]:
        """All schedules, by name."""
        self._reader.check_open()
        found: list[Schedule] = []
        after: str | None = None
        while True:
            page = await RunLists(self._reader).find(flow=SCHEDULE_FLOW, limit=1000, after=after)
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
        """What the schedule starts, still without its times."""
        if isinstance(flow, Flow) and flow.preset.id is not None:
            raise UsageError(
                f"flow {flow.name} has the option id={flow.preset.id!r}; a schedule names each of "
                "its runs by itself, after its own name and the instant: leave the id out"
            )
        options = {"id": None, **options}
        request = hidden(to_submit(flow, call, options, self._ports), self._reader.hider)
        event = request.event
        await self._queues.check_units(event)
        return Plan(
            flow=event.flow,
            version=event.version,
            args=whole(event.args),
            queue=event.queue,
            deadline_ms=None if request.flow is None else _deadline_ms(request.flow),
            tags=event.tags,
            pins=event.pins,
            place=event.place,
        )

    async def _read_schedule(self, name: str) -> Reading | None:
        work = read_whole(self._reader.store, SCHEDULE_PREFIX + name, LAST_CHAPTER)
        return await self._reader.lane(work)

    async def _there(self, name: str) -> Advance:
        self._reader.check_open()
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
        run_id = SCHEDULE_PREFIX + turn.standing.name
        await self._letterboxes.of(run_id).signal(WISH_SIGNAL, wish)
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
        reading = await self._reader.lane(self._reader.store.read(firing.run_id, 1 << 62))
        status = "deleted" if reading is None else reading.header.status
        return FiredRun(id=firing.run_id, at=_instant(firing.at), status=status)


def standing_of(reading: Reading | None, name: str) -> Advance:
    """The state of a schedule, by its journal and the wishes that it has not read yet.

    Raises:
        RunIdTaken: the run of that id is not a schedule, or has ended.
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
    """Wishes since the chapter began; a schedule that reads one begins the next chapter."""
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
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(tz)
    except (LookupError, ValueError, OSError, TypeError):
        raise DefinitionRefused(
            f'tz={tz!r} is not a time zone of this machine; write one such as "Europe/Berlin" '
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
