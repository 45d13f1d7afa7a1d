"""Plain steps: run the body, record how it ended, try again where that was asked for.

A plain step has no intent and nothing waits for the disk: its outcome carries its arguments, and
it is repeated only if that outcome was not yet durable.
"""

from __future__ import annotations

from outlive.engine.faults import fault_of
from outlive.engine.ops import Interrupted, Op, Recorder, later, launch, set_limit
from outlive.errors import TimedOut, ValueRefused
from outlive.model.decide import RetryAt, decide_failure
from outlive.model.events import AttemptFailed, StepDone, StepRaised
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
