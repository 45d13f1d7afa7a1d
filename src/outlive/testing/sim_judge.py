"""What must hold at the end of a simulation: the auditor's rules, told outcomes, and replay.

Every run that ended is replayed once more from its journal alone: no body may run, and the flow
must come to the very end that the journal has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextvars import Context
from typing import Any

from outlive.engine.drive import Drive
from outlive.engine.ops import Env
from outlive.errors import OutliveError
from outlive.journal.keeper import run_immediate
from outlive.journal.reader import read_events
from outlive.model.events import Event, RunCompleted, RunFailed
from outlive.model.run import fold
from outlive.ports import Ports
from outlive.store import Query
from outlive.stores.memory import MemoryStore
from outlive.testing.auditor import audit
from outlive.testing.sim_flows import POLICIES, tell_story
from outlive.testing.sim_nature import Nature, SimClock
from outlive.testing.sim_witness import Outcome, Witness
from outlive.testing.sim_world import World

Journals = Mapping[str, Sequence[Event]]


def judge(nature: Nature, disk: MemoryStore, world: World, witness: Witness) -> list[str]:
    """Every broken promise of a simulation, in words."""
    broken = list(witness.broken)
    journals: dict[str, Sequence[Event]] = {}
    for found in run_immediate(disk.find(Query(), None, 1000)).items:
        run_id = found.head.run_id
        reading = run_immediate(disk.read(run_id))
        try:
            journals[run_id] = [] if reading is None else read_events(reading)
        except OutliveError as error:
            broken.append(str(error))
    broken += audit(journals, world.receipts, policies=POLICIES, acknowledged=witness.acknowledged)
    broken += _check_outcomes(journals, witness.outcomes)
    broken += _check_replays(nature, journals)
    return broken


def _check_outcomes(journals: Journals, outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    """What somebody was told is what the journal has."""
    for run_id, outcome in outcomes.items():
        run = fold(journals.get(run_id, ()))
        if (run.value, run.error) != outcome:
            yield f"run {run_id}: told {outcome}, the journal has {(run.value, run.error)}"


def _check_replays(nature: Nature, journals: Journals) -> Iterator[str]:
    for run_id, events in journals.items():
        if events and isinstance(events[-1], (RunCompleted, RunFailed)):
            yield from replay(nature, run_id, events)


def replay(nature: Nature, run_id: str, events: Sequence[Event]) -> Iterator[str]:
    """Replay an ended run from its journal alone."""
    end = events[-1]
    log, host = _StillLog(run_id, len(events) - 1), _StillHost()
    env = Env(
        host=host,
        keeper=None,  # type: ignore[arg-type]  # a replay that asks for it is wrong
        ports=Ports(clock=SimClock(nature), entropy=nature.entropy),
        lease=None,  # type: ignore[arg-type]  # as above
        peer=None,  # type: ignore[arg-type]  # as above
        kin=None,  # type: ignore[arg-type]  # as above
        worker="judge",
    )
    past = events[:-1]
    drive = Drive(tell_story, log, fold(past), env, lambda *left: None)  # type: ignore[arg-type]
    try:
        drive.begin(past)
    except Exception as error:
        yield f"run {run_id}: its replay raised {error!r}"
    if not drive.stopped:
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
        case RunFailed():
            return event.error
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

    def wait(self, seq: int, callback: Callable[[], None]) -> None:
        """It never comes."""

    def close(self) -> None:
        """Nothing to let go of."""


class _StillHost:
    """A host on which nothing ever runs, and that counts what wanted to."""

    def __init__(self) -> None:
        self.ran = 0

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        return None

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> Any:
        return _Never()

    def call_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        """Nobody hears it."""

    def create_task(
        self, work: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> asyncio.Task[Any]:
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
