"""Plain steps: run the body, record how it ended, try again where that was asked for.

A plain step has no intent and nothing waits for the disk: its outcome carries its arguments, and
it is repeated only if that outcome was not yet durable.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from outlive.engine.attempts import later, launch, set_limit
from outlive.engine.context import RunContext
from outlive.engine.definitions import IMMUTABLE
from outlive.engine.effects import EffectRunner
from outlive.engine.faults import fault_of
from outlive.engine.ops import Interrupted, Op
from outlive.engine.replay import DONE_BEFORE_RETRY, Replay
from outlive.errors import ReplayMismatch, TimedOut, ValueRefused
from outlive.model.decide import RetryAt, decide_failure
from outlive.model.events import AttemptFailed, EffectRaised, StepDone, StepRaised
from outlive.model.run import Backoff


class StepRunner:
    """Runs the plain steps of one run."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def start(self, op: Op, backoff: Backoff | None) -> None:
        """Begin, or go on behind the attempts that are in the journal."""
        if backoff is None:
            self._begin(op)
            return
        op.attempt = backoff.attempt + 1
        later(self._context, op, backoff.retry_at, self._begin)

    def _begin(self, op: Op) -> None:
        if op.orphan:
            return
        op.began_at = self._context.env.ports.clock.now_ms()
        seconds = op.definition.timeout_seconds
        if seconds is None:
            launch(self._context, op, self._ended)
            return
        op.begins_until = self._context.env.host.time() + seconds
        launch(self._context, op, self._ended, None, self._set_limit)
        if not op.definition.is_async:
            self._set_limit(op)

    def _set_limit(self, op: Op) -> None:
        set_limit(self._context, op, op.begins_until - self._context.env.host.time())

    def _ended(self, op: Op, value: object, error: BaseException | None) -> None:
        if self._context.stopped:
            return
        if op.is_late or (op.orphan and error is not None):
            self._context.drop(op)
        elif error is None:
            self._returned(op, value)
        elif isinstance(error, Interrupted):
            self._context.interrupted()
        else:
            self._raised(op, _time_out(op) if op.expired else error)

    def _returned(self, op: Op, value: object) -> None:
        inside, context = op.inside, self._context
        if inside is not None and inside.refusal is not None:
            self._give_up(op, inside.refusal)  # its body caught that
            return
        try:
            encoded = op.definition.value_codec.write(value)
        except ValueRefused as refused:
            self._give_up(op, refused.by(f"step {op.id} returned"))
            return
        at = context.at()
        took = at + context.started_at - op.began_at
        done = StepDone(
            at,
            op.id,
            op.attempt,
            op.args,
            op.own_digest,
            encoded,
            took if took > 0 else 0,
            context.used(inside) if inside is not None and inside.usage is not None else None,
        )
        op.is_over = True
        if type(value) in IMMUTABLE and not context.hider.is_on:
            op.value, op.is_immutable = value, True
        context.record(done)

    def _raised(self, op: Op, error: BaseException) -> None:
        ports = self._context.env.ports
        now, chance = ports.clock.now_ms(), ports.entropy(1)[0] / 256
        decision = decide_failure(op.definition.retry, op.attempt, error, now=now, chance=chance)
        if not isinstance(decision, RetryAt):
            self._give_up(op, error)
            return
        fault = fault_of(error, op.definition.value_codec, op.definition.own_errors)
        context, at = self._context, self._context.at()
        failed = AttemptFailed(at, op.id, op.attempt, fault, decision.at)
        took, usage = self._took(op, at), context.used(op.inside)
        context.note(msgspec.structs.replace(failed, took=took, usage=usage))
        op.attempt += 1
        later(self._context, op, decision.at, self._begin)

    def _give_up(self, op: Op, error: BaseException) -> None:
        fault = fault_of(error, op.definition.value_codec, op.definition.own_errors)
        context, at = self._context, self._context.at()
        op.is_over = True
        raised = StepRaised(at, op.id, op.attempt, op.args, op.own_digest, fault)
        took, usage = self._took(op, at), context.used(op.inside)
        context.record(msgspec.structs.replace(raised, took=took, usage=usage))

    def _took(self, op: Op, at: int) -> int | None:
        """How long the body has run, if it was begun at all."""
        began_at = op.began_at
        return max(0, at + self._context.started_at - began_at) if began_at else None


def _time_out(op: Op) -> TimedOut:
    return TimedOut(f"step {op.id} took longer than {op.definition.timeout_seconds:g} s")


#: Events of one run that may wait for the disk before its next body starts.
UNDURABLE_MAX = 256


class Beginning:
    """Begins the ops of one run."""

    def __init__(self, context: RunContext, replay: Replay, effects: EffectRunner) -> None:
        self._context, self._replay, self._effects = context, replay, effects
        self._steps = StepRunner(context)
        #: What was asked for last has begun, and is under way.
        self.is_busy = False

    def open_effects(self) -> None:
        """What an earlier driver left open comes first: mail may be about it."""
        context = self._context
        for op in list(context.to_start):
            known = self._replay.effects.pop(op.id, None)
            if known is not None:
                context.to_start.remove(op)
                self._effects.start(op, known)

    def asked_for(self) -> None:
        """What the flow has asked for since."""
        context, replay = self._context, self._replay
        self.is_busy = False
        if context.log.seq - context.log.durable > UNDURABLE_MAX:
            # Back-pressure: the disk is behind; nothing new starts until it has caught up.
            context.when_durable(context.attend)
            return
        ops, context.to_start = context.to_start, []
        for op in ops:
            if replay.known and self._deliver_known(op):
                continue
            if op.id in context.waiting.unsettled:
                self._effects.start(op, None)
                self.is_busy = op.wait == "busy"
            elif not op.orphan:
                self._steps.start(op, replay.backoffs.pop(op.id, None))

    def _deliver_known(self, op: Op) -> bool:
        """What was done before the run failed is not done again; thousands have their turns."""
        context = self._context
        if context.waiting.find(op.id) is None:
            return False  # given up meanwhile
        try:
            event = self._replay.known_of(op)
        except ReplayMismatch as error:
            if not op.cancel_wanted:
                context.refuse(error)
                return True
            event = _called_off(op)
        if event is not None:
            context.inbox.append(_told_again(event, context.at()))
            context.log.append(context.inbox[-1])
            context.env.host.call_soon(context.activate)
        return event is not None


def _told_again(event: Any, at: int) -> Any:
    """What was known before: what it used is counted where it was used."""
    if getattr(event, "usage", None) is not None:
        return msgspec.structs.replace(event, at=at, usage=None)
    return msgspec.structs.replace(event, at=at)


def _called_off(op: Op) -> EffectRaised:
    """How an effect ends that a cancelled flow asks for otherwise than it was done before."""
    error = asyncio.CancelledError(f"cancelled; it {DONE_BEFORE_RETRY}, with other arguments")
    fault = fault_of(error, op.definition.value_codec)
    return EffectRaised(0, op.id, op.attempt, fault, happened=None, by="driver")
