"""What a flow waits for: steps and effects under way, their limits, and those it gave up on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from math import inf
from typing import Any, Generic, TypeVar

from outlive.engine.arguments import Bound
from outlive.engine.definitions import Definition
from outlive.engine.host import Cancellable, Host
from outlive.engine.place import Body
from outlive.engine.redaction import own_copy
from outlive.model.events import Event
from outlive.model.ids import derived_key, digest
from outlive.model.run import OpenEffect

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
    #: Of a plain step: when its body was begun (ms since 1970).
    began_at = 0
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
    #: Its outcome, once it is recorded, if that is one which nobody can change.
    value: Any = None
    is_immutable = False
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


class NotBegun(Exception):
    """An attempt's body was not begun: its turn came too late."""


class Interrupted(Exception):
    """An attempt's body was ended from outside, as by a loop that ends."""


def own_bound(op: Op) -> Bound:
    """The arguments as they were when the call was made: copies of whatever could be changed."""
    if op.open_args is None:
        return op.definition.own_copy(op.bound, op.args)
    return own_copy(op.definition, op.bound, op.open_args)


def call_off(op: Op) -> None:
    """Ask an attempt's body to end; one that has not begun ends where it would."""
    if op.task is not None:
        op.is_called_off = True
        # A task that is cancelled before its first turn never has one, and could tell nobody.
        if op.has_begun or not op.definition.is_async:
            op.task.cancel()


def expire(op: Op) -> None:
    """The time of an attempt is over; a thread can't be cancelled: it is waited for."""
    op.expired = True
    if op.abort is not None:
        op.abort()
    if op.definition.is_async:
        call_off(op)


class PendingOps:
    """The ops of one run that have no delivered end."""

    def __init__(self) -> None:
        #: The flow waits for these, by id.
        self.ops: dict[str, Op] = {}
        #: The flow no longer waits for these; what comes of them is recorded all the same.
        self._orphans: dict[str, Op] = {}
        #: Effects whose end is not known: the run can't end before they are settled.
        self.unsettled: set[str] = set()
        #: Open when the flow was stopped; an end of one may have been recorded in between.
        self.cut_off: set[str] = set()

    def add(self, op: Op) -> None:
        """The flow waits for this op."""
        self.ops[op.id] = op
        if op.definition.effect is not None:
            self.unsettled.add(op.id)

    def find(self, step: str) -> Op | None:
        """The op of that id, waited for or not."""
        return self.ops.get(step) or self._orphans.get(step)

    def asked(self) -> list[str]:
        """What the code asks for, by id."""
        return list(self.ops)

    def all(self) -> list[Op]:
        """Every op that is open."""
        return [*self.ops.values(), *self._orphans.values()]

    def under_way(self) -> list[tuple[str, bool]]:
        """The id of each op whose body runs, and whether it is an effect."""
        return [
            (op.id, op.definition.effect is not None)
            for op in self.all()
            if op.task is not None and (op.has_begun or not op.definition.is_async)
        ]

    @property
    def is_busy(self) -> bool:
        """Something is under way that is no wait."""
        for ops in (self.ops, self._orphans):
            for op in ops.values():
                if op.wait == "busy":
                    return True
        return False

    def go_live(self) -> list[Op]:
        """What must be begun now that the replay is over: what is waited for, and open effects."""
        if not self._orphans:
            return list(self.ops.values())
        orphans = self._orphans.items()
        self._orphans = {step: op for step, op in orphans if step in self.unsettled}
        return self.all()

    def cut_effects(self) -> list[asyncio.Future[Any]]:
        """There is no more time: ask attempts that change the world to end, where that can be."""
        cut = []
        for op in self.all():
            is_effect = op.definition.effect is not None and op.definition.is_async
            if is_effect and op.task is not None:
                op.cut = True
                call_off(op)
                cut.append(op.task)
        return cut

    def close(self, step: str) -> Op | None:
        """The op has its end; returns it if the flow still waits for it."""
        self.unsettled.discard(step)
        self._orphans.pop(step, None)
        return self.ops.pop(step, None)

    def abandon(self, op: Op, *, is_live: bool) -> None:
        """The flow no longer waits for this op; a plain step that runs is cancelled."""
        if self.ops.pop(op.id, None) is None:
            return
        op.orphan = True
        is_under_way = op.task is not None or op.is_over or not is_live
        if op.definition.effect is not None or is_under_way:
            self._orphans[op.id] = op
        if op.definition.effect is None:
            _stop(op)

    def cut(self) -> None:
        """The flow is stopped: plain steps are called off, effects run to their end."""
        for op in list(self.ops.values()):
            self.abandon(op, is_live=True)
            if not op.is_intended:
                # Nothing new is begun: an effect without an intent has nothing to settle.
                self.close(op.id)
                self.cut_off.add(op.id)
                op.is_late = True

    def drop(self, op: Op) -> None:
        """Nobody waits for this op and nothing comes of it."""
        self._orphans.pop(op.id, None)

    def shield(self, step: str) -> None:
        """An attempt of this effect begins: cancellations wait for its end."""
        self.unsettled.add(step)
        op = self.find(step)
        if op is not None and isinstance(op.future, EffectFuture):
            op.future.shielded = True

    def give_way(self, step: str) -> None:
        """An attempt is over, the effect is not: a cancellation that waited for it comes now."""
        op = self.find(step)
        if op is None or op.orphan or not isinstance(op.future, EffectFuture):
            return
        op.future.shielded = False
        if op.future.cancel_wanted:
            self.ops.pop(op.id, None)
            self._orphans[op.id] = op
            op.orphan = True
            op.future.give_way()

    def stop(self) -> None:
        """The run leaves memory: timers end, plain bodies are cancelled, effects run out."""
        for op in self.all() if self.ops or self._orphans else ():
            if op.timer is not None:
                op.timer.cancel()
            if op.definition.effect is None:
                _stop(op)
        self.ops.clear()
        self._orphans.clear()


def _stop(op: Op) -> None:
    if op.timer is not None:
        op.timer.cancel()
        op.timer = None
    call_off(op)
