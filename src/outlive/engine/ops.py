"""What a flow waits for: a step or effect under way, and what its runners ask of the drive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

from outlive.engine.binding import Bound
from outlive.engine.definitions import Definition
from outlive.engine.host import Cancellable, Host
from outlive.engine.place import Body, place
from outlive.journal.keeper import Keeper
from outlive.journal.log import RunLog
from outlive.model.events import EffectDone, EffectRaised, Event, Fault, RunStarted
from outlive.model.mail import ChildNews, Letter
from outlive.model.run import OpenEffect
from outlive.ports import Ports
from outlive.store import Mail, Posted


class Lease(Protocol):
    """The right to drive, as far as this process knows."""

    #: How often it lapsed: what was ours before may not be now.
    lapses: int

    def holds(self, since: int) -> bool:
        """It did not lapse since then: no other worker can have been offered the run."""
        ...


class Peer(Protocol):
    """Other journals of the store."""

    async def holder_of(self, journal: str) -> tuple[str, str, bytes] | None:
        """Who holds a key: run, step, digest of its arguments."""
        ...

    async def mail_of(self, run_id: str) -> Sequence[Mail]:
        """What was posted to a run and not consumed."""
        ...

    async def end_of(self, run_id: str, step: str) -> EffectDone | EffectRaised | None:
        """How another run's effect ended, if it did."""
        ...


#: How the start of a child went: it is there, it is over already, or its id is another's.
Started: TypeAlias = Literal["started"] | ChildNews | Fault


class Kin(Protocol):
    """Other runs that a run starts and stops."""

    async def start_child(self, run_id: str, event: RunStarted, flow: Any) -> Started:
        """Start a run of its own, once."""
        ...

    def want(self, flow: Any, run_id: str) -> None:
        """A child that was started: whoever drives its parent can drive it, too."""
        ...

    async def post(self, run_id: str, mail_id: str, letter: Letter) -> Posted:
        """Leave mail for another run, once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Env:
    """What surrounds a run: given by its worker."""

    host: Host
    keeper: Keeper
    ports: Ports
    lease: Lease
    peer: Peer
    kin: Kin
    worker: str
    #: A run whose branches all wait for longer than this leaves memory.
    idle_ms: int = 2000


class EffectFuture(asyncio.Future[Any]):
    """Refuses to be cancelled: an effect under way is waited for, then the cancellation comes."""

    cancel_wanted = False
    #: False between attempts and while in doubt, as far as the flow was told: nothing runs then.
    shielded = True

    def cancel(self, msg: Any = None) -> bool:
        self.cancel_wanted = True
        return not self.shielded and super().cancel(msg)

    def give_way(self) -> None:
        """The attempt is over, though unsettled: let the cancellation through."""
        super().cancel()


class Op:
    """A step or effect that was called and has not been delivered."""

    __slots__ = (
        "args",
        "attempt",
        "begins_until",
        "bound",
        "checks",
        "context",
        "cut",
        "definition",
        "digest",
        "effect",
        "expired",
        "future",
        "id",
        "is_over",
        "key",
        "lapses",
        "limit",
        "on_end",
        "orphan",
        "stage",
        "task",
        "timer",
        "user_key",
        "wait",
        "wake",
        "watched_from",
    )

    def __init__(self, op_id: str, definition: Definition, bound: Bound, args: bytes) -> None:
        self.id, self.definition, self.bound, self.args = op_id, definition, bound, args
        self.digest = b""
        self.context: Context | None = None
        self.future: asyncio.Future[Any] | None = None
        self.attempt = 1
        self.key = ""
        self.user_key: str | None = None
        #: Of an effect: "new", "intended" (durably), or "resumed" from an earlier driver.
        self.stage = "new"
        #: Of an effect: the lease's lapses when its intent was written.
        self.lapses = 0
        #: Of an effect: the attempt's limit in monotonic time, which no clock can move.
        self.begins_until = 0.0
        #: Of an effect in doubt: since when this driver has watched it, in monotonic time.
        self.watched_from = 0.0
        #: An effect's intent and doubts, once there is an intent.
        self.effect: OpenEffect | None = None
        self.checks = 0
        #: Called with its end where no flow waits for it.
        self.on_end: Callable[[Event], None] | None = None
        self.orphan = False
        #: Of a plain step: its end is recorded, though perhaps not delivered yet.
        self.is_over = False
        self.expired = False
        #: Its body was asked to end because its worker goes.
        self.cut = False
        self.task: asyncio.Future[Any] | None = None
        self.limit: Cancellable | None = None
        self.timer: Cancellable | None = None
        #: What keeps it: a time to come (ms since 1970), None: mail; "busy": something runs.
        self.wait: int | str | None = "busy"
        #: What to do when the time that it waits for has come.
        self.wake: Callable[[Op], None] | None = None

    @property
    def is_intended(self) -> bool:
        """An intent of this effect was written, now or by an earlier driver."""
        return self.stage != "new" or self.effect is not None

    @property
    def is_shielded(self) -> bool:
        """As far as the flow knows, an attempt is under way, or about to be."""
        return bool(getattr(self.future, "shielded", True))

    @property
    def cancel_wanted(self) -> bool:
        """The flow no longer wants it."""
        return self.orphan or getattr(self.future, "cancel_wanted", False)


class Recorder(Protocol):
    """What the runners of steps and effects ask of the drive."""

    run_id: str
    log: RunLog
    env: Env
    stopped: bool
    draining: bool
    started_at: int

    def at(self) -> int:
        """Now, in ms since the run's start; never falls."""
        ...

    def note(self, event: Event, mail_id: str | None = None) -> None:
        """Append; the flow does not see it."""
        ...

    def record(self, event: Event, mail_id: str | None = None) -> None:
        """Append and deliver."""
        ...

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call once everything appended so far is durable."""
        ...

    def drop(self, op: Op) -> None:
        """Nobody waits for this op and nothing comes of it."""
        ...

    def broke(self, error: Exception) -> None:
        """The engine itself failed: stop driving this run, say so, try again later."""
        ...

    def rest(self) -> None:
        """Nothing more to do here: the run may leave memory if all of it waits."""
        ...


Ended: TypeAlias = Callable[[Op, asyncio.Future[Any]], None]


def later(drive: Recorder, op: Op, when: int, callback: Callable[[Op], None]) -> None:
    """Call back at an instant; until then the op only waits."""
    op.wait, op.wake = when, callback
    delay = max(0, when - drive.env.ports.clock.now_ms()) / 1000
    op.timer = drive.env.host.call_later(delay, _wake, drive, op)
    drive.rest()


def hurry(drive: Recorder, op: Op, until: int) -> None:
    """The wall clock may have been set forward: look anew at what is due so soon."""
    if isinstance(op.wait, int) and op.wait <= until and op.timer is not None:
        op.timer.cancel()
        delay = max(0, op.wait - drive.env.ports.clock.now_ms()) / 1000
        op.timer = drive.env.host.call_later(delay, _wake, drive, op)


def _wake(drive: Recorder, op: Op) -> None:
    op.timer = None
    if not drive.stopped and not drive.draining and op.wake is not None:
        op.wait = "busy"
        op.wake(op)


class NotBegun(Exception):
    """An attempt's body was not begun: its turn came too late."""


def launch(
    drive: Recorder,
    op: Op,
    ended: Callable[[Op, asyncio.Future[Any]], None],
    may_begin: Callable[[], bool] | None = None,
) -> None:
    """Start an attempt's body: a task, or a thread for a plain function."""
    definition = op.definition
    assert op.context is not None, "an op is launched from the flow that called it"
    context = op.context.copy()
    context.run(place.set, Body(drive.run_id, op.id, op.attempt, op.key))
    args, kwargs = definition.unbinder.call(definition.own_copy(op.bound, op.args))
    host = drive.env.host
    op.expired = False
    body = partial(definition.fn, *args, **kwargs)
    if definition.is_async:
        op.task = host.create_task(
            body() if may_begin is None else _begin(may_begin, body), context
        )
    elif may_begin is None:
        op.task = host.run_in_thread(context, body)
    else:
        op.task = host.run_in_thread(context, partial(_begin_plainly, may_begin, body))
    op.task.add_done_callback(partial(_end, drive, op, ended))


def _end(drive: Recorder, op: Op, ended: Ended, task: asyncio.Future[Any]) -> None:
    """Take an attempt's end; a bug of ours on the way stops the run instead of hanging it."""
    try:
        ended(op, task)
    except Exception as error:
        drive.broke(error)


async def _begin(may_begin: Callable[[], bool], body: Callable[[], Any]) -> Any:
    """The last look before an effect: a pause or a busy loop may have kept it for long."""
    if not may_begin():
        raise NotBegun
    return await body()


def _begin_plainly(may_begin: Callable[[], bool], body: Callable[[], Any]) -> Any:
    """The same in a thread, which may have been waited for."""
    if not may_begin():
        raise NotBegun
    return body()


def set_limit(drive: Recorder, op: Op, seconds: float | None) -> None:
    """Cancel the attempt when its time is over. A thread can't be cancelled: it is waited for."""
    if seconds is not None:
        op.limit = drive.env.host.call_later(seconds, _expire, op)


def _expire(op: Op) -> None:
    op.expired = True
    if op.task is not None and op.definition.is_async:
        op.task.cancel()


def error_of(op: Op, task: asyncio.Future[Any]) -> BaseException | None:
    """How an attempt ended: None if it returned. Clears the time limit."""
    if op.limit is not None:
        op.limit.cancel()
        op.limit = None
    op.task = None
    if task.cancelled():
        return asyncio.CancelledError()
    return task.exception()
