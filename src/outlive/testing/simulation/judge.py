"""The checks at the end of a simulation: the auditor's rules, reported outcomes, and replay.

Every run that ended is replayed once more from its journal alone: no body may run, and the flow
must come to the very end that the journal has.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any

from outlive.engine.context import Env
from outlive.engine.drive import Drive
from outlive.engine.inputs import decode_as
from outlive.errors import OutliveError
from outlive.journal.codec.restore import read_whole
from outlive.journal.fork import events_of
from outlive.journal.lane import run_immediate
from outlive.journal.reader import read_events
from outlive.model.events import (
    Event,
    MailRead,
    RunCancelled,
    RunCompleted,
    RunFailed,
    SignalReceived,
)
from outlive.model.mail import Letter
from outlive.model.run import fold
from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.stores.types import Posted, Query
from outlive.testing.audit.auditor import audit, is_fork
from outlive.testing.audit.families import check_asleep, check_deadlines
from outlive.testing.audit.waits import audit_undone, ended_without_code
from outlive.testing.simulation.flows import POLICIES, UNDOABLE, tell_story
from outlive.testing.simulation.loop import Nature, SimClock
from outlive.testing.simulation.witness import Outcome, Witness
from outlive.testing.simulation.world import World

Journals = Mapping[str, Sequence[Event]]

_ENDS = (RunCompleted, RunFailed, RunCancelled)


def judge(nature: Nature, disk: Store, world: World, witness: Witness) -> list[str]:
    """Every broken promise of a simulation, in words."""
    broken = [*witness.broken, *world.broken]
    journals: dict[str, Sequence[Event]] = dict(witness.buried)
    items = run_immediate(disk.find(Query(), None, 1000)).items
    broken += check_asleep(items)
    for found in items:
        taken = len(witness.consumed.get(found.head.run_id, ()))
        if found.head.consumed != taken:
            lost = f"{found.head.consumed} letters are gone, {taken} were taken"
            broken.append(f"run {found.head.run_id}: {lost}")
    for found in items:
        run_id = found.head.run_id
        reading = run_immediate(read_whole(disk, run_id))
        try:
            journals[run_id] = [] if reading is None else read_events(reading)
        except OutliveError as error:
            broken.append(str(error))
    broken += audit(
        journals,
        world.receipts,
        policies=POLICIES,
        acknowledged=witness.acknowledged,
    )
    broken += audit_undone(journals, UNDOABLE)
    if not witness.faults["clock_jump"]:
        for run_id, events in journals.items():
            broken += check_deadlines(run_id, events)
    broken += _check_outcomes(journals, witness.outcomes)
    broken += _check_mail(journals, witness)
    broken += _check_spoilt(journals, witness)
    broken += _check_replays(nature, journals)
    broken += _check_forks(nature, disk, journals)
    return broken


def _check_mail(journals: Journals, witness: Witness) -> Iterator[str]:
    """Each letter was taken once, signals in the order of their coming; a flow heard them so."""
    for run_id, taken in witness.consumed.items():
        twice = [mail_id for mail_id, count in Counter(taken).items() if count > 1]
        if twice:
            yield f"run {run_id}: took mail twice: {twice}"
    for run_id, events in journals.items():
        signals = [event for event in events if isinstance(event, SignalReceived)]
        posted = [mail_id.removeprefix("signal/") for mail_id in witness.mail.get(run_id, ())]
        came = [event.signal_id for event in signals]
        if came != [each for each in posted if each in set(came)]:
            yield f"run {run_id}: signals came as {came}, they were posted as {posted}"
        yield from _check_heard(run_id, events, signals)


def _check_spoilt(journals: Journals, witness: Witness) -> Iterator[str]:
    """Check that letters that nobody posted are set aside, and change nothing."""
    for run_id, spoilt in witness.spoilt.items():
        aside = {
            event.mail_id
            for event in journals.get(run_id, ())
            if isinstance(event, MailRead) and event.unreadable is not None
        }
        believed = sorted(spoilt.intersection(witness.consumed.get(run_id, ())) - aside)
        if believed:
            yield f"run {run_id}: believed mail that nobody posted like that: {believed}"


def _check_heard(
    run_id: str, events: Sequence[Event], signals: Sequence[SignalReceived]
) -> Iterator[str]:
    end = _end_of(events)
    if end is None or is_fork(events) or not isinstance(events[end], RunCompleted):
        return
    heard = tell_story.value_codec.decode(getattr(events[end], "value", b""))[2]
    sent: dict[str, list[Any]] = {}
    for event in signals if heard is not None else ():
        value = decode_as(Any, event.value, is_json=event.is_json)
        if isinstance(value, str):
            sent.setdefault(event.name, []).append(value)
    for name in {name for name, _ in heard or ()}:
        values = [value for each, value in heard if each == name]
        if values != sent.get(name, [])[: len(values)]:
            yield f"run {run_id}: heard {values} as {name}, {sent.get(name)} came"


def _end_of(events: Sequence[Event]) -> int | None:
    """The index of the event with its outcome; events after it only notify its parent."""
    ends = [place for place, event in enumerate(events) if isinstance(event, _ENDS)]
    return ends[-1] if ends else None


def _check_outcomes(journals: Journals, outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    """Check that each reported outcome is that of the journal."""
    for run_id, outcome in outcomes.items():
        ends = [each for each in journals.get(run_id, ()) if isinstance(each, _ENDS)]
        said = [(getattr(end, "value", None), getattr(end, "error", None)) for end in ends]
        if outcome not in said:
            yield f"run {run_id}: told {outcome}, the journal has {said}"


def _check_replays(nature: Nature, journals: Journals) -> Iterator[str]:
    for run_id, events in journals.items():
        end = _end_of(events)
        if end is not None and not is_fork(events) and not ended_without_code(events):
            yield from replay(nature, run_id, events[: end + 1])


def _check_forks(nature: Nature, disk: Store, journals: Journals) -> Iterator[str]:
    """Check that the shared events of a fork exist, and that replay comes to its end."""
    for run_id, own in journals.items():
        reading = run_immediate(read_whole(disk, run_id)) if is_fork(own) else None
        if reading is None:
            continue
        try:
            events = run_immediate(events_of(disk, reading))
        except OutliveError as error:
            yield str(error)
            continue
        end = _end_of(own)
        if end is not None and not ended_without_code(own):
            behind = len(events) - len(own)
            yield from replay(nature, run_id, events[: behind + end + 1], behind)


class _StillPeer:
    """Nobody reads what a replay tells."""

    def wake_readers(self, run_id: str) -> None: ...


def replay(nature: Nature, run_id: str, events: Sequence[Event], behind: int = 0) -> Iterator[str]:
    """Replay an ended run from its journal alone; of a fork, so many events are another's."""
    end = events[-1]
    log, host = _StillLog(run_id, len(events) - 1 - behind), _StillHost()
    env = Env(
        host=host,
        keeper=None,  # type: ignore[arg-type]  # a replay that asks for it is wrong
        ports=Ports(clock=SimClock(nature), entropy=nature.entropy),
        lease=None,  # type: ignore[arg-type]  # as above
        peer=_StillPeer(),  # type: ignore[arg-type]  # as above, but for this
        kin=_StillKin(),
        worker="judge",
    )
    past = events[:-1]
    drive = Drive(tell_story, log, fold(past), env, lambda *left: None)  # type: ignore[arg-type]
    try:
        drive.begin(past)
    except Exception as error:
        yield f"run {run_id}: its replay raised {error!r}"
    if not drive.context.stopped:
        yield f"run {run_id}: its replay does not come to its end"
        drive.leaving.hand_over()
    came = log.appended
    if host.ran:
        yield f"run {run_id}: its replay ran {host.ran} bodies"
    elif [_essence(event) for event in came] != [_essence(end)]:
        yield f"run {run_id}: ended with {_essence(end)}, its replay with {came}"


def _essence(event: Event) -> object:
    """An end without its time."""
    match event:
        case RunCompleted():
            return event.value
        case RunFailed() | RunCancelled():
            return type(event), event.error
        case _:
            return event


class _StillLog:
    """A log that keeps what is appended and never says that it is durable."""

    def __init__(self, run_id: str, seq: int) -> None:
        self.run_id = run_id
        self.seq = self.durable = seq
        self.on_failure: Callable[[OutliveError], None] | None = None
        self.appended: list[Event] = []

    def append(self, event: Event, mail_id: str | None = None) -> int:
        self.appended.append(event)
        self.seq += 1
        return self.seq

    def wait(self, seq: int, callback: Callable[..., None], *args: Any) -> None:
        """Call back at once for durable events; new ones never become durable."""
        if seq <= self.durable:
            callback(*args)

    def close(self) -> None:
        """Nothing to let go of."""


class _StillKin:
    """Other runs, who have heard everything before."""

    async def start_child(self, run_id: str, event: object, flow: object) -> Any:
        return "started"

    def want(self, flow: object, run_id: str) -> None:
        """Nobody is driven here."""

    async def news_of(self, run_id: str) -> None:
        """Do nothing: their news is in the journal."""

    async def post(self, run_id: str, mail_id: str, letter: Letter) -> Posted:
        return "already"


class _StillHost:
    """A host on which nothing ever runs, and that counts what wanted to."""

    def __init__(self) -> None:
        self.ran = 0

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        return None

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> Any:
        return _Never()

    def time(self) -> float:
        return 0.0

    def call_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        """Nobody hears it."""

    def create_task(
        self, work: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> asyncio.Task[Any]:
        if getattr(work, "__qualname__", "").startswith("Children."):
            with suppress(StopIteration):
                work.send(None)  # telling a child to stop leaves no event behind; it is told again
        else:
            self.ran += 1
        work.close()
        return _NoTask()  # type: ignore[return-value]

    def run_in_thread(self, context: Context, fn: Callable[[], Any]) -> asyncio.Future[Any]:
        self.ran += 1
        return _NoTask()  # type: ignore[return-value]


class _Never:
    def cancel(self) -> None:
        """It would not have come anyway."""


class _NoTask(_Never):
    def add_done_callback(self, callback: Callable[..., object]) -> None:
        """It never is done."""
