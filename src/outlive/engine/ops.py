"""What a flow waits for: a step or effect under way, and what its runners ask of the drive."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from outlive.engine.arguments import Bound
from outlive.engine.definitions import Definition
from outlive.engine.host import Cancellable, Host, Occupation
from outlive.engine.notices import Notices, Repeats
from outlive.engine.peers import Kin, Lease, Peer
from outlive.engine.place import Body, place
from outlive.engine.redaction import own_copy
from outlive.errors import OutliveError
from outlive.journal.keeper import Keeper
from outlive.journal.log import RunLog
from outlive.journal.redaction import Hider
from outlive.model.defaults import IDLE_MS
from outlive.model.events import Event, RunStarted
from outlive.model.ids import derived_key, digest
from outlive.model.run import OpenEffect
from outlive.ports import Ports, SystemClock

T = TypeVar("T")

#: What has less than its full limit left, by more than this, has a timer of its own: it would have
#: to go far ahead in the line.
LINE_SECONDS = 1.0
#: A line is cleared of those that have ended when they are so many, and half of all.
ENDED_MANY = 64


class _Limit(Generic[T]):
    """The limit of one attempt; what it is about is forgotten when that has ended."""

    __slots__ = ("_line", "about", "due")

    def __init__(self, due: float, about: T, line: _Line[T]) -> None:
        self.due = due
        self.about: T | None = about
        self._line = line

    def cancel(self) -> None:
        if self.about is not None:
            self.about = None
            self._line.note_end()


class _Line(Generic[T]):
    """Attempts with the same limit, in the order in which it is over."""

    def __init__(self, host: Host, expire: Callable[[T], None]) -> None:
        self._host, self._expire = host, expire
        self._limits: deque[_Limit[T]] = deque()
        self._ended = 0
        self._timer: Cancellable | None = None
        #: When it is to look again.
        self._looks_at = inf

    def add(self, seconds: float, about: T) -> _Limit[T]:
        due, limits = self._host.time() + seconds, self._limits
        limit = _Limit(due, about, self)
        if not limits or limits[-1].due <= due:
            limits.append(limit)
        else:
            self._go_ahead(limit)
        if due < self._looks_at:
            self._arm(due, seconds)
        return limit

    def _go_ahead(self, limit: _Limit[T]) -> None:
        position = len(self._limits)
        while position and self._limits[position - 1].due > limit.due:
            position -= 1
        self._limits.insert(position, limit)

    def note_end(self) -> None:
        self._ended += 1
        if self._ended > ENDED_MANY and 2 * self._ended > len(self._limits):
            self._limits = deque(limit for limit in self._limits if limit.about is not None)
            self._ended = 0

    def _arm(self, due: float, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = due
        self._timer = self._host.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer, self._looks_at = None, inf
        now = self._host.time()
        while self._limits and (self._limits[0].about is None or self._limits[0].due <= now):
            about = self._limits.popleft().about
            if about is not None:
                self._expire(about)
        if self._limits and self._limits[0].due < self._looks_at:
            self._arm(self._limits[0].due, self._limits[0].due - now)


class Limits(Generic[T]):
    """The limits of all attempts on one host."""

    def __init__(self, host: Host, expire: Callable[[T], None]) -> None:
        self._host, self._expire = host, expire
        self._lines: dict[float, _Line[T]] = {}

    def set(self, full: float, seconds: float, about: T) -> Cancellable:
        """Tell of this after ``seconds``, which are left of a limit of ``full`` seconds."""
        if full - seconds > LINE_SECONDS:
            return self._host.call_later(seconds, self._expire, about)
        line = self._lines.get(full)
        if line is None:
            line = self._lines[full] = _Line(self._host, self._expire)
        return line.add(seconds, about)


class Transacting(Protocol):
    """What transactional steps need."""

    def limit_of(self, op: Op) -> float:
        """How many seconds the transaction of a step may be open."""
        ...

    def body_of(self, drive: Recorder, op: Op, left: Callable[[Op], float]) -> Callable[..., Any]:
        """The body of a step with a transaction around it, which sets its limit."""
        ...

    async def look(self, drive: Recorder, op: Op) -> object:
        """The outcome that was committed, or NOT_HAPPENED, which is final."""
        ...

    def forget(self, run_id: str, step: str) -> None:
        """This step's end is durable in its journal."""
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
    idle_ms: int = IDLE_MS
    #: What transactional steps need; None: the store shares no transaction.
    transactions: Transacting | None = None
    #: What is not recorded.
    hider: Hider = field(default_factory=Hider)
    #: What people are told.
    notices: Notices = field(default_factory=lambda: Notices(SystemClock()))
    #: Keeps what flow code logs from being written again on replay.
    repeats: Repeats = field(default_factory=Repeats)
    occupation: Occupation = field(default_factory=Occupation)
    limits: Limits[Op] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", Limits(self.host, _expire))


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
    """A step or effect that was called and has not been delivered.

    Most of these never leave their defaults, which are the class's: making one is on the hot path.
    """

    context: Context | None = None
    future: asyncio.Future[Any] | None = None
    #: How it was called, where the flow called it: the same values as in ``bound``.
    call: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    attempt = 1
    #: Of an effect: its run, which its key is a function of unless the user gave one.
    run_id = ""
    user_key: str | None = None
    #: Of an effect: "new", "intended" (durably), or "resumed" from an earlier driver.
    stage = "new"
    #: Of an effect: the lease's lapses when its intent was written.
    lapses = 0
    #: Of an effect: the attempt's limit in monotonic time, which no clock can move.
    begins_until = 0.0
    #: Of an effect in doubt: since when this driver has watched it, in monotonic time.
    watched_from = 0.0
    #: An effect's intent and doubts, once there is an intent.
    effect: OpenEffect | None = None
    checks = 0
    #: Called with its end where no flow waits for it.
    on_end: Callable[[Event], None] | None = None
    orphan = False
    #: Of a plain step: its end is recorded, though perhaps not delivered yet.
    is_over = False
    expired = False
    #: Its body was asked to end because its worker goes.
    cut = False
    #: Its body runs, or did; or it is to end before it has begun.
    has_begun = False
    is_called_off = False
    #: The flow was stopped: an end that is on its way comes too late to be recorded.
    is_late = False
    task: asyncio.Future[Any] | None = None
    #: Where its body runs, or ran last.
    inside: Body | None = None
    #: Of a transactional step: its body with a transaction around it, and what ends that early.
    body: Callable[..., Any] | None = None
    abort: Callable[[], None] | None = None
    #: How often it has lost its database.
    losses = 0
    limit: Cancellable | None = None
    timer: Cancellable | None = None
    #: What keeps it: a time to come (ms since 1970), None: mail; "busy": something runs.
    wait: int | str | None = "busy"
    #: What to do when the time that it waits for has come.
    wake: Callable[[Op], None] | None = None
    #: Its arguments as a body gets copies of them, if those are not the recorded ones.
    open_args: bytes | None = None
    #: What it is compared by, if that is not the digest of its arguments as they are recorded.
    own_digest = b""
    _digest = b""

    def __init__(self, op_id: str, definition: Definition, bound: Bound, args: bytes) -> None:
        self.id, self.definition, self.bound, self.args = op_id, definition, bound, args

    @property
    def digest(self) -> bytes:
        """What the arguments are compared by; made when it is first asked for."""
        self._digest = self.own_digest or self._digest or digest(self.args)
        return self._digest

    @property
    def key(self) -> str:
        """What the receiver tells repeats of an effect by."""
        return self.user_key or derived_key(self.run_id, self.id)

    @property
    def is_intended(self) -> bool:
        """An intent of this effect was written, now or by an earlier driver."""
        return self.stage != "new" or self.effect is not None

    @property
    def is_shielded(self) -> bool:
        """As far as the flow knows, an attempt is under way, or about to be."""
        future = self.future
        return future.shielded if type(future) is EffectFuture else True

    @property
    def cancel_wanted(self) -> bool:
        """The flow no longer wants it."""
        return self.orphan or getattr(self.future, "cancel_wanted", False)


class Recorder(Protocol):
    """What the runners of steps and effects ask of the drive."""

    run_id: str
    log: RunLog
    env: Env
    hider: Hider
    stopped: bool
    draining: bool
    #: The journal is behind; timers and bodies run.
    is_live: bool
    start_event: RunStarted
    started_at: int

    def at(self) -> int:
        """Now, in ms since the run's start; never falls."""
        ...

    def shelf(self) -> Any:
        """Where the run's blobs are kept."""
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

    def interrupted(self) -> None:
        """A body was ended from outside: whoever drives the run next goes on, as after a kill."""
        ...

    def rest(self) -> None:
        """Nothing more to do here: the run may leave memory if all of it waits."""
        ...

    def attend(self) -> None:
        """Something came from outside: look again at what is to be done."""
        ...

    def refuse(self, error: OutliveError) -> None:
        """The run can't go on here."""
        ...

    @property
    def flow_is_over(self) -> bool:
        """The flow returned, raised, or was stopped."""
        ...


#: Positional and keyword arguments.
Call: TypeAlias = tuple[Sequence[Any], dict[str, Any]]
#: Called with an attempt's end: its value, or what it raised.
Ended: TypeAlias = Callable[[Op, Any, BaseException | None], None]


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


class Interrupted(Exception):
    """An attempt's body was ended from outside, as by a loop that ends."""


def launch(
    drive: Recorder, op: Op, ended: Ended, may_begin: Callable[[Op], bool] | None = None
) -> None:
    """Start an attempt's body: a task, or a thread for a plain function."""
    definition = op.definition
    assert op.context is not None, "an op is launched from the flow that called it"
    context = op.context.copy()
    inside = Body(drive.run_id, op.id, op.attempt, op.user_key)
    inside.shelf = drive.shelf
    op.inside = inside
    context.run(place.set, inside)
    call = _call_of(op)
    op.expired = op.has_begun = op.is_called_off = False
    host = drive.env.host
    if definition.is_async:
        op.task = host.create_task(_attempt(drive, op, ended, call, may_begin), context)
        return
    body = partial(op.body or definition.fn, *call[0], **call[1])
    plainly = body if may_begin is None else partial(_begin_plainly, op, may_begin, body)
    op.task = host.run_in_thread(context, plainly)
    op.task.add_done_callback(partial(_thread_ended, drive, op, ended))


def own_bound(op: Op) -> Bound:
    """The arguments as they were when the call was made: copies of whatever could be changed."""
    if op.open_args is None:
        return op.definition.own_copy(op.bound, op.args)
    return own_copy(op.definition, op.bound, op.open_args)


def _call_of(op: Op) -> Call:
    """The arguments of a body."""
    definition, copied = op.definition, own_bound(op)
    if op.call is not None and copied is op.bound:
        return op.call
    return definition.unbinder.call(copied)


async def _attempt(
    drive: Recorder,
    op: Op,
    ended: Ended,
    call: Call,
    may_begin: Callable[[Op], bool] | None,
) -> None:
    """An attempt from begin to end: what follows from its end is done in the same turn."""
    value = None
    error: BaseException | None = None
    try:
        _check_begin(op, may_begin)
        value = await (op.body or op.definition.fn)(*call[0], **call[1])
    except (KeyboardInterrupt, SystemExit) as raised:
        # It ends the loop, too; should that go on, the attempt has ended.
        drive.env.host.call_soon(_end, drive, op, ended, None, raised)
        raise
    except GeneratorExit as raised:
        if not _is_running(op):
            raise  # the task itself is being thrown away
        error = raised
    except BaseException as raised:
        error = raised
    place.set(None)  # what follows is no longer the body's
    try:
        _end(drive, op, ended, value, error)
    finally:
        error = None  # its traceback holds this frame


def _is_running(op: Op) -> bool:
    try:
        return asyncio.current_task() is op.task
    except RuntimeError:
        return False


def _end(drive: Recorder, op: Op, ended: Ended, value: object, error: BaseException | None) -> None:
    """Take an attempt's end; a bug of ours on the way stops the run instead of hanging it."""
    if isinstance(error, asyncio.CancelledError) and _is_foreign(op):
        error = Interrupted()
    op.task = None
    if op.limit is not None:
        op.limit.cancel()
        op.limit = None
    try:
        ended(op, value, error)
    except Exception as bug:
        drive.broke(bug)


def _is_foreign(op: Op) -> bool:
    """Whether neither we nor the body ended it: the loop ends, or somebody cancels all tasks.

    That says nothing about the work, which goes on as after a kill.
    """
    if op.is_called_off or op.task is None:
        return False
    return op.task.cancelled() or (isinstance(op.task, asyncio.Task) and op.task.cancelling() > 0)


def _thread_ended(drive: Recorder, op: Op, ended: Ended, future: asyncio.Future[Any]) -> None:
    if future.cancelled():
        _end(drive, op, ended, None, asyncio.CancelledError())
    else:
        error = future.exception()
        _end(drive, op, ended, None if error is not None else future.result(), error)


def _begin_plainly(op: Op, may_begin: Callable[[Op], bool], body: Callable[[], Any]) -> Any:
    _check_begin(op, may_begin)
    return body()


def _check_begin(op: Op, may_begin: Callable[[Op], bool] | None) -> None:
    """The last look before a body: a pause, or a busy loop or thread, may have kept it for long."""
    op.has_begun = True
    if op.is_called_off:
        raise asyncio.CancelledError
    if may_begin is not None and not may_begin(op):
        raise NotBegun


def call_off(op: Op) -> None:
    """Ask an attempt's body to end; one that has not begun ends where it would."""
    if op.task is not None:
        op.is_called_off = True
        # A task that is cancelled before its first turn never has one, and could tell nobody.
        if op.has_begun or not op.definition.is_async:
            op.task.cancel()


def set_limit(drive: Recorder, op: Op, seconds: float) -> None:
    """Cancel the attempt when its time is over. A thread can't be cancelled: it is waited for."""
    full = op.definition.timeout_seconds
    assert full is not None, "only what has a limit can reach it"
    op.limit = drive.env.limits.set(full, seconds, op)


def _expire(op: Op) -> None:
    op.expired = True
    if op.abort is not None:
        op.abort()
    if op.definition.is_async:
        call_off(op)
