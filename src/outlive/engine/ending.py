"""How a run ends. Badly is a phase of its own: settle every doubt, undo what happened, last first.

The flow returns, raises, is cancelled, or is cut off by its deadline; that gives a verdict. With a
bad one, and effects that declare ``undo=``, the run goes through ``RunUndoing``: each undo is an
effect itself, with an intent, attempts and an end in the journal, one after the other. Only then
comes the last event. Live and replayed endings go through the same code.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from outlive.engine.binding import call_by_name
from outlive.engine.definitions import (
    EFFECT_TIMEOUT_SECONDS,
    Definition,
    Effect,
    EffectRules,
    Flow,
)
from outlive.engine.faults import fault_of
from outlive.engine.host import Cancellable
from outlive.engine.ops import Op, Recorder
from outlive.engine.waiting import Waiting
from outlive.errors import ValueRefused
from outlive.model.events import (
    DeadlinePassed,
    EffectDone,
    EffectRaised,
    Event,
    Fault,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunUndoing,
)
from outlive.model.ids import derived_key, digest
from outlive.model.retry import Retry

#: How often an undo that is a plain function is tried.
UNDO_RETRY = Retry(attempts=8, delay="1s", delay_max="1m")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the flow ended."""

    status: Literal["completed", "failed", "cancelled"]
    value: bytes = b""
    error: Fault | None = None


class Closing(Recorder, Protocol):
    """What an ending asks of the drive."""

    flow: Flow[Any, Any]
    waiting: Waiting
    to_start: list[Op]

    @property
    def is_live(self) -> bool:
        """The journal is behind."""
        ...

    def outcome(self, op: Op, event: Event) -> tuple[Any, BaseException | None]:
        """What the record says, decoded."""
        ...


class Ending:
    """The end of one run."""

    def __init__(self, drive: Closing) -> None:
        self._drive = drive
        self.verdict: Verdict | None = None
        self.cancel_requested = False
        self._happened: list[tuple[Op, EffectDone | EffectRaised]] = []
        self._to_undo: deque[tuple[Op, EffectDone | EffectRaised]] | None = None

    def note_end(self, op: Op, event: Event) -> None:
        """An effect that can be undone has happened."""
        rules = op.definition.effect
        if rules is None or rules.undo is None:
            return
        if isinstance(event, EffectDone) or (
            isinstance(event, EffectRaised) and event.happened is True
        ):
            self._happened.append((op, event))

    # verdicts

    def returned(self, main: asyncio.Task[Any]) -> None:
        """The flow's own task is done."""
        codec = self._drive.flow.value_codec
        error = asyncio.CancelledError() if main.cancelled() else main.exception()
        if error is None:
            try:
                self.verdict = Verdict("completed", codec.encode(main.result()))
            except ValueRefused as refused:
                error = refused
        if error is not None:
            was_cancelled = self.cancel_requested and isinstance(error, asyncio.CancelledError)
            status: Literal["cancelled", "failed"] = "cancelled" if was_cancelled else "failed"
            self.verdict = Verdict(status, error=fault_of(error, codec))

    def cut(self, fault: Fault) -> None:
        """The flow was stopped from outside."""
        self.verdict = Verdict("failed", error=fault)

    # the phase of undoing

    def proceed(self) -> Event | None:
        """The flow is over and nothing is open: the last event, or None while there is more."""
        verdict = self.verdict
        assert verdict is not None, "the flow is over"
        if verdict.status != "completed" and self._happened and self._to_undo is None:
            self._drive.record(RunUndoing(self._drive.at(), verdict.status, verdict.error))
            return None
        at = self._drive.at()
        if verdict.status == "completed":
            return RunCompleted(at, verdict.value)
        fault = verdict.error or Fault("CancelledError", "")
        return RunFailed(at, fault) if verdict.status == "failed" else RunCancelled(at, fault)

    def undo(self, _: RunUndoing) -> None:
        """The phase has begun, now or in the journal: begin the last of what happened."""
        self._to_undo = deque(reversed(self._happened))
        self._undo_next()

    def _undo_next(self, _: Event | None = None) -> None:
        if not self._to_undo:
            return
        op, event = self._to_undo.popleft()
        undo = self._undo_op(op, event)
        self._drive.waiting.add(undo)
        if self._drive.is_live:
            self._drive.to_start.append(undo)

    def _undo_op(self, op: Op, event: EffectDone | EffectRaised) -> Op:
        value, _ = self._drive.outcome(op, event)
        key = op.user_key or derived_key(self._drive.run_id, op.id)
        offered = {**op.bound, "key": key, "outcome": value}
        undo = Op(f"undo:{op.id}", _definition(op.definition, offered), {}, b"\x80")
        undo.digest = digest(undo.args)
        undo.context = copy_context()
        undo.on_end = self._undo_next
        return undo


class Bounded(Recorder, Protocol):
    """What a deadline asks of the drive."""

    @property
    def flow_is_over(self) -> bool:
        """The flow returned, raised, or was stopped."""
        ...


class Deadline:
    """A run's own time limit: when it passes, that is an event."""

    def __init__(self, drive: Bounded, at: int | None) -> None:
        self._drive, self._at = drive, at
        self._timer: Cancellable | None = None

    def arm(self) -> None:
        """From here on time is the host's."""
        if self._at is not None and not self._drive.flow_is_over:
            delay = max(0, self._at - self._drive.env.ports.clock.now_ms()) / 1000
            self._timer = self._drive.env.host.call_later(delay, self._due, self._at)

    def _due(self, at: int) -> None:
        if self._drive.stopped or self._drive.flow_is_over:
            return
        if self._drive.env.ports.clock.now_ms() < at:
            self.arm()
        else:
            self._drive.record(DeadlinePassed(self._drive.at()))

    def times(self) -> list[int]:
        """When it is due, if it still can pass."""
        return [] if self._at is None or self._drive.flow_is_over else [self._at]

    def stop(self) -> None:
        """The run leaves memory."""
        if self._timer is not None:
            self._timer.cancel()


def _definition(call: Definition, offered: dict[str, Any]) -> Definition:
    """The undo of an effect as an effect: by its own rules if it is one, else repeated."""
    assert call.effect is not None, "only effects are undone"
    undo: Any = call.effect.undo
    own = undo.definition if isinstance(undo, Effect) else None
    fn = undo if own is None else own.fn
    return Definition(
        name=f"undo {call.name}",
        fn=_caller(fn, offered),
        retry=UNDO_RETRY if own is None else own.retry,
        timeout_seconds=EFFECT_TIMEOUT_SECONDS if own is None else own.timeout_seconds,
        raises=(),
        ignore=(),
        effect=_REPEATED if own is None else own.effect,
    )


_REPEATED = EffectRules(
    key=None, check=None, undo=None, not_happened=(), doubt="retry", settle_after_ms=0
)


def _caller(fn: Callable[..., Any], offered: dict[str, Any]) -> Callable[[], Any]:
    async def call_async() -> None:
        await call_by_name(fn, offered)

    def call_plain() -> None:
        call_by_name(fn, offered)

    return call_async if inspect.iscoroutinefunction(fn) else call_plain
