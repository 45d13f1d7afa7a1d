"""Plain steps: run the body, record how it ended, try again where that was asked for.

A plain step has no intent and nothing waits for the disk: its outcome carries its arguments, and
it is repeated only if that outcome was not yet durable.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

import msgspec

from outlive.engine.effects import EffectRunner
from outlive.engine.faults import fault_of
from outlive.engine.ops import Interrupted, Op, Recorder, later, launch, set_limit
from outlive.engine.pending import PendingOps
from outlive.engine.replay import DONE_BEFORE_RETRY, Replay
from outlive.errors import ReplayMismatch, TimedOut, ValueRefused
from outlive.model.decide import RetryAt, decide_failure
from outlive.model.events import AttemptFailed, EffectRaised, Event, StepDone, StepRaised
from outlive.model.run import Backoff


class StepRunner:
    """Runs the plain steps of one run."""

    def __init__(self, drive: Recorder) -> None:
        self._drive = drive

    def start(self, op: Op, backoff: Backoff | None) -> None:
        """Begin, or go on behind the attempts that are in the journal."""
        if backoff is None:
            self._begin(op)
            return
        op.attempt = backoff.attempt + 1
        later(self._drive, op, backoff.retry_at, self._begin)

    def _begin(self, op: Op) -> None:
        if op.orphan:
            return
        launch(self._drive, op, self._ended)
        if op.definition.timeout_seconds is not None:
            set_limit(self._drive, op, op.definition.timeout_seconds)

    def _ended(self, op: Op, value: object, error: BaseException | None) -> None:
        if self._drive.stopped:
            return
        if op.is_late or (op.orphan and error is not None):
            self._drive.drop(op)
        elif error is None:
            self._returned(op, value)
        elif isinstance(error, Interrupted):
            self._drive.interrupted()
        else:
            self._raised(op, _time_out(op) if op.expired else error)

    def _returned(self, op: Op, value: object) -> None:
        if op.inside is not None and op.inside.refusal is not None:
            self._give_up(op, op.inside.refusal)  # its body caught that
            return
        try:
            encoded = op.definition.value_codec.write(value)
        except ValueRefused as refused:
            self._give_up(op, refused.by(f"step {op.id} returned"))
            return
        done = StepDone(self._drive.at(), op.id, op.attempt, op.args, op.own_digest, encoded)
        op.is_over = True
        self._drive.record(done)

    def _raised(self, op: Op, error: BaseException) -> None:
        ports = self._drive.env.ports
        now, chance = ports.clock.now_ms(), ports.entropy(1)[0] / 256
        decision = decide_failure(op.definition.retry, op.attempt, error, now=now, chance=chance)
        if not isinstance(decision, RetryAt):
            self._give_up(op, error)
            return
        fault = fault_of(error, op.definition.value_codec, op.definition.own_errors)
        at = self._drive.at()
        self._drive.note(AttemptFailed(at, op.id, op.attempt, fault, decision.at))
        op.attempt += 1
        later(self._drive, op, decision.at, self._begin)

    def _give_up(self, op: Op, error: BaseException) -> None:
        fault = fault_of(error, op.definition.value_codec, op.definition.own_errors)
        at = self._drive.at()
        op.is_over = True
        self._drive.record(StepRaised(at, op.id, op.attempt, op.args, op.own_digest, fault))


def _time_out(op: Op) -> TimedOut:
    return TimedOut(f"step {op.id} took longer than {op.definition.timeout_seconds:g} s")


#: Events of one run that may wait for the disk before its next body starts.
UNDURABLE_MAX = 256


class Startable(Recorder, Protocol):
    """What a beginning asks of the drive."""

    effects: EffectRunner
    waiting: PendingOps
    inbox: deque[Event]
    to_start: list[Op]

    def activate(self) -> None:
        """Let the flow run as far as it can."""
        ...


class Beginning:
    """Begins the ops of one run."""

    def __init__(self, drive: Startable, replay: Replay) -> None:
        self._drive, self._replay = drive, replay
        self._steps = StepRunner(drive)

    def open_effects(self) -> None:
        """What an earlier driver left open comes first: mail may be about it."""
        drive = self._drive
        for op in list(drive.to_start):
            known = self._replay.effects.pop(op.id, None)
            if known is not None:
                drive.to_start.remove(op)
                drive.effects.start(op, known)

    def asked_for(self) -> None:
        """What the flow has asked for since."""
        drive = self._drive
        if drive.to_start and drive.log.seq - drive.log.durable > UNDURABLE_MAX:
            # Back-pressure: the disk is behind; nothing new starts until it has caught up.
            drive.when_durable(drive.attend)
            return
        ops, drive.to_start = drive.to_start, []
        for op in ops:
            if self._replay.knows and self._deliver_known(op):
                continue
            if op.id in drive.waiting.unsettled:
                drive.effects.start(op, None)
            elif not op.orphan:
                self._steps.start(op, self._replay.backoffs.pop(op.id, None))

    def _deliver_known(self, op: Op) -> bool:
        """What was done before the run failed is not done again; thousands have their turns."""
        drive = self._drive
        if drive.waiting.find(op.id) is None:
            return False  # given up meanwhile
        try:
            event = self._replay.known_of(op)
        except ReplayMismatch as error:
            if not op.cancel_wanted:
                drive.refuse(error)
                return True
            event = _called_off(op)
        if event is not None:
            drive.inbox.append(msgspec.structs.replace(event, at=drive.at()))
            drive.log.append(drive.inbox[-1])
            drive.env.host.call_soon(drive.activate)
        return event is not None


def _called_off(op: Op) -> EffectRaised:
    """How an effect ends that a cancelled flow asks for otherwise than it was done before."""
    error = asyncio.CancelledError(f"cancelled; it {DONE_BEFORE_RETRY}, with other arguments")
    fault = fault_of(error, op.definition.value_codec)
    return EffectRaised(0, op.id, op.attempt, fault, happened=None, by="driver")
