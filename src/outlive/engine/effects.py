"""Effects: intent first, one attempt at a time, and no guessing about how it ended.

The life of an effect: its key is claimed and its intent written; when both are durable and the
lease still holds, the body runs. It returned (done), it raised what is declared to mean "nothing
happened" (tried again, or the flow is told), or it is in doubt. A doubt is settled by the
effect's rule: ask the receiver (``settle.Settler``), repeat it because the receiver honours the
key, ask a human, or tell the flow.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from functools import cached_property, partial

from msgspec.structs import replace

from outlive.engine.attempts import at_once, attempt_of, later, launch, set_limit
from outlive.engine.context import RunContext
from outlive.engine.definitions import IMMUTABLE
from outlive.engine.faults import fault_of
from outlive.engine.keys import KeyClaims
from outlive.engine.ops import EffectFuture, Interrupted, NotBegun, Op
from outlive.engine.settlement import Settler
from outlive.errors import LeaseLost, NotHappened, TimedOut, ValueRefused
from outlive.model.decide import (
    DRIVER_ENDED,
    RetryAt,
    decide_failure,
    decide_resolve,
    next_attempt,
)
from outlive.model.events import (
    AttemptFailed,
    By,
    EffectDone,
    EffectDoubted,
    EffectIntended,
    EffectRaised,
    Fault,
    MailRead,
)
from outlive.model.mail import Resolve
from outlive.model.run import OpenEffect
from outlive.ports import nothing_happens
from outlive.stores.transactions import Unsure

logger = logging.getLogger("outlive")


#: How long to wait before a new intent when the lease was not renewed in time.
LAPSE_DELAY_MS = 100
#: How often a transaction may lose its database and not be told of: a body may be what ends it.
LOSSES_MAX = 10


class EffectRunner:
    """Runs and settles the effects of one run."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    # Made when they are needed: they know this one, and such a circle waits for the collector.

    @cached_property
    def _keys(self) -> KeyClaims:
        return KeyClaims(self._context, self._key_answered)

    @cached_property
    def _settler(self) -> Settler:
        return Settler(self._context, self)

    # beginning

    def start(self, op: Op, known: OpenEffect | None) -> None:
        """Begin, or go on behind what the journal says."""
        op.run_id = self._context.run_id
        # Replay may have seen an intent of an earlier try.
        op.effect = None if known is None else replace(known)
        op.stage = "new" if known is None else "resumed"
        if op.user_key is not None:
            self._keys.claim(op)
        if known is None:
            self._intend(op)
        elif op.user_key is None:
            self._go_on(op)

    def _key_answered(self, op: Op, end: EffectDone | EffectRaised | None) -> None:
        """The key is ours (None), or its holder's effect ended so, or it is taken."""
        if op.effect is None:
            return  # a human's word came first
        op.wait = "busy"
        if end is not None:
            self._end(op, end)
        elif op.stage == "resumed":
            self._go_on(op)
        elif op.stage == "intended":
            self._perform(op)

    def _intend(self, op: Op) -> None:
        context, before = self._context, op.effect
        env = context.env
        limit = op.definition.timeout_seconds or 0
        if op.definition.transaction and env.transactions is not None:
            limit = 2 * env.transactions.limit_of(op)  # it may wait as long again for its begin
        first, future = before is None, op.future
        at = context.at()
        until = at + round(limit * 1000)
        # What follows from the rest is not written: a digest of arguments that stand beside it,
        # a key that is a function of run and step.
        args, digest = (op.args, op.own_digest) if first else (b"", op.digest)
        key = op.user_key or ""
        intent = EffectIntended(at, op.id, op.attempt, args, digest, key, until)
        op.effect = OpenEffect(
            intent if before is None else before.intent,
            op.attempt,
            context.started_at + until,
            0,
            maybe=before is not None and before.maybe,
            seq=context.log.seq + 1,
        )
        op.lapses = env.lease.lapses
        op.begins_until = env.ports.clock.monotonic() + limit
        # The flow knows of a first attempt: it has just called it. Not if the call is from before
        # the run failed, and was told since that nothing was under way.
        is_known = first and (type(future) is not EffectFuture or future.shielded)
        (context.note if is_known else context.record)(intent)
        context.when_durable(self._perform, op)

    # one attempt

    def _perform(self, op: Op) -> None:
        """The intent is durable: attempt it, if the key is ours and the lease still holds."""
        context, effect = self._context, op.effect
        assert effect is not None, "an effect is performed behind its intent"
        op.stage = "intended"
        if context.stopped or not (op.user_key is None or self._keys.is_ours(op)):
            return
        failpoint = context.env.ports.failpoint
        if failpoint is not nothing_happens:
            failpoint("effect.before")
        if op.orphan or getattr(op.future, "cancel_wanted", False):
            self._tell(op, asyncio.CancelledError("cancelled before it began"), happened=False)
        elif op.definition.transaction and context.env.transactions is not None:
            # Its limit is set when the transaction has begun.
            attempt, hide = attempt_of(context, op), context.hider.value
            body_of = context.env.transactions.body_of
            op.body = body_of(op, attempt, hide, self._seconds_left)
            launch(context, op, self._ended, self._may_begin)
        else:
            launch(context, op, self._ended, self._may_begin, self._set_limit)
            if not op.definition.is_async:
                self._set_limit(op)

    def _may_begin(self, op: Op) -> bool:
        """It is not too late, and nobody else can drive this run yet."""
        env, effect = self._context.env, op.effect
        if self._context.stopped or effect is None or not env.lease.holds(op.lapses):
            return False
        clock = env.ports.clock
        return clock.now_ms() < effect.not_after and clock.monotonic() < op.begins_until

    def _set_limit(self, op: Op) -> None:
        set_limit(self._context, op, self._seconds_left(op))

    def _seconds_left(self, op: Op) -> float:
        """Until the limit that others count with; by the monotonic clock if ours was set back."""
        clock, effect = self._context.env.ports.clock, op.effect
        until = 0 if effect is None else effect.not_after
        return min((until - clock.now_ms()) / 1000, op.begins_until - clock.monotonic())

    def _put_off(self, op: Op) -> None:
        """It waited for too long, and another worker may drive the run: a new intent can tell."""
        late = Fault(DRIVER_ENDED, "its turn came too late, or its lease was; it was not begun")
        again_at = self._context.env.ports.clock.now_ms() + LAPSE_DELAY_MS
        self._try_again(op, late, "driver", at=again_at)

    def _ended(self, op: Op, value: object, error: BaseException | None) -> None:
        if self._context.stopped:
            return
        failpoint = self._context.env.ports.failpoint
        if failpoint is not nothing_happens:
            failpoint("effect.after")
        if error is None:
            self._returned(op, value)
        elif isinstance(error, NotBegun):
            self._put_off(op)
        elif op.cut and isinstance(error, asyncio.CancelledError):
            self._cut_short(op)
        elif isinstance(error, Interrupted):
            self._cut_short(op)
            self._context.interrupted()
        elif isinstance(error, LeaseLost) and op.definition.transaction:
            self._put_off(op)
        elif _nothing_happened(op, error):
            self.absent(op, error, "")
        elif isinstance(error, Unsure) and not op.expired and op.losses < LOSSES_MAX:
            self._lost(op)
        else:
            self._doubt(op, _time_out(op) if op.expired else _reason(error))

    # ends

    def _returned(self, op: Op, value: object) -> None:
        """It is done; an outcome that can't be recorded is told to the flow as such."""
        if op.inside is not None and op.inside.refusal is not None:
            self._tell(op, op.inside.refusal, happened=True)  # its body caught that
            return
        try:
            encoded = op.definition.value_codec.write(value)
        except ValueRefused as refused:
            if inspect.isawaitable(value):
                self._doubt(op, _unawaited(op, value))
            else:
                self._tell(op, refused.by(f"effect {op.id} returned"), happened=True)
            return
        context = self._context
        if type(value) in IMMUTABLE and not context.hider.is_on:
            op.value, op.is_immutable = value, True
        done = EffectDone(context.at(), op.id, op.attempt, encoded)
        if op.inside is not None and op.inside.usage is not None:
            done = replace(done, usage=context.used(op.inside))
        if op.definition.transaction:
            self._end(op, done)
        else:
            op.effect = None
            context.record(done)

    def happened(self, op: Op, outcome: bytes, by: By) -> None:
        """It is done."""
        self._end(op, EffectDone(self._context.at(), op.id, op.attempt, outcome, by))

    def _end(self, op: Op, event: EffectDone | EffectRaised, mail_id: str | None = None) -> None:
        op.effect, context = None, self._context
        if op.definition.transaction and context.env.transactions is not None:
            forget = partial(context.env.transactions.forget, context.run_id, op.id)
            context.log.wait(context.log.seq + 1, forget)
        context.record(event, mail_id)

    def absent(self, op: Op, error: BaseException, by: By) -> None:
        """Nothing happened for certain: try again if that was asked for, else tell the flow."""
        ports = self._context.env.ports
        now, chance = ports.clock.now_ms(), ports.entropy(1)[0] / 256
        decision = decide_failure(op.definition.retry, op.attempt, error, now=now, chance=chance)
        if isinstance(decision, RetryAt) and not op.cancel_wanted:
            fault = fault_of(error, op.definition.value_codec, op.definition.own_errors)
            self._try_again(op, fault, by, at=decision.at)
        else:
            self._tell(op, error, happened=False, by=by)

    def absent_after_cut(self, op: Op, by: By) -> None:
        """The attempt was cut off and nothing happened: it does not count; begin it again."""
        if op.cancel_wanted:
            self._tell(op, asyncio.CancelledError("cancelled; it did not happen"), False, by)
        else:
            self._try_again(op, Fault(DRIVER_ENDED, "its driver ended; it did not happen"), by)

    def repeat(self, op: Op, error: BaseException | None, at: int | None = None) -> None:
        """Nobody knows whether it happened, and its receiver honours the key: do it again."""
        fault = Fault(DRIVER_ENDED, "its driver ended; nobody knows whether it happened")
        if error is not None:
            fault = fault_of(error, op.definition.value_codec, op.definition.own_errors)
        self._try_again(op, fault, "driver", at, happened=None)

    def _try_again(
        self,
        op: Op,
        fault: Fault,
        by: By,
        at: int | None = None,
        *,
        happened: bool | None = False,
    ) -> None:
        context, effect = self._context, op.effect
        assert effect is not None, "an effect is tried again behind its intent"
        retry_at = context.env.ports.clock.now_ms() if at is None else at
        failed = AttemptFailed(context.at(), op.id, op.attempt, fault, retry_at, by, happened)
        failed = replace(failed, usage=context.used(op.inside))
        self._wait_for_next(op, effect, failed)
        context.record(failed)
        if at is None and op.effect is effect:
            at_once(context, op)  # unless what was told just now has settled it

    def _wait_for_next(self, op: Op, effect: OpenEffect, failed: AttemptFailed) -> None:
        effect.maybe = effect.maybe or failed.happened is None
        effect.retry_at, effect.error = failed.retry_at, failed.error
        effect.doubt, effect.asks, effect.over_at = None, False, None
        op.attempt = next_attempt(effect)
        later(self._context, op, failed.retry_at, self._intend)

    def _tell(self, op: Op, error: BaseException, happened: bool | None, by: By = "") -> None:
        fault = fault_of(error, op.definition.value_codec, op.definition.own_errors)
        if happened is False and op.effect is not None and op.effect.maybe:
            happened = None  # this attempt did not, but an earlier one may have
        raised = EffectRaised(self._context.at(), op.id, op.attempt, fault, happened, by)
        self._end(op, replace(raised, usage=self._context.used(op.inside)))

    def give_up(self, op: Op) -> None:
        """If nobody waits for it and it waits for its next attempt, it ends here."""
        between = op.effect is not None and op.effect.retry_at is not None
        if op.cancel_wanted and between and op.timer is not None and not self._context.stopped:
            self._settler.stop(op)
            cancelled = asyncio.CancelledError("cancelled between two attempts")
            self._tell(op, cancelled, happened=False)

    def tell_in_doubt(self, op: Op, error: BaseException) -> None:
        """Nobody knows, and the flow is told so."""
        self._tell(op, error, happened=None, by="driver")

    # doubts

    def _doubt(self, op: Op, error: BaseException) -> None:
        assert op.effect is not None, "an attempt ends behind its intent"
        if op.effect.over_at is None:
            op.effect.over_at = self._context.env.ports.clock.now_ms()
        self._note_doubt(op, fault_of(error, op.definition.value_codec, op.definition.own_errors))
        self._settle(op, error)

    def _lost(self, op: Op) -> None:
        """The database of its transaction went away, or its answer: the attempt does not count."""
        assert op.effect is not None, "an attempt ends behind its intent"
        op.losses += 1
        op.effect.over_at = self._context.env.ports.clock.now_ms()
        self._note_doubt(op, Fault(DRIVER_ENDED, "its database was lost before it answered"))
        self._settle(op, None)

    def _cut_short(self, op: Op) -> None:
        """The worker goes; the next one settles it, and the attempt does not count."""
        assert op.effect is not None, "an attempt ends behind its intent"
        op.effect.over_at = self._context.env.ports.clock.now_ms()
        self._note_doubt(op, Fault(DRIVER_ENDED, "its worker was told to stop before it ended"))

    def _settle(self, op: Op, error: BaseException | None) -> None:
        """Recording the doubt may have let a human's word in, which settled it."""
        if op.effect is not None and op.effect.doubt is not None:
            self._settler.settle(op, error)

    def _note_doubt(self, op: Op, fault: Fault) -> None:
        context, effect, rules = self._context, op.effect, op.definition.effect
        assert effect is not None, "a doubt is about an intent"
        assert rules is not None, "only an effect can be in doubt"
        effect.doubt, effect.asks = fault, rules.doubt == "ask"
        is_over = effect.over_at is not None
        doubted = EffectDoubted(context.at(), op.id, op.attempt, fault, effect.asks, is_over)
        context.record(replace(doubted, usage=context.used(op.inside)))
        if effect.asks:
            self._settler.tell(op, effect)
        else:
            flow, says = context.log.run.start.flow, "run %s (flow %s): effect %s is in doubt (%s)"
            logger.info(says, context.run_id, flow, op.id, fault.type_name)

    def _go_on(self, op: Op) -> None:
        """A driver before this one left the effect open."""
        effect = op.effect
        assert effect is not None, "there is nothing to go on with"
        op.attempt = effect.attempt
        if effect.retry_at is not None:
            op.attempt = next_attempt(effect)
            later(self._context, op, effect.retry_at, self._intend)
            self.give_up(op)
            return
        if effect.doubt is None:
            fault = Fault(DRIVER_ENDED, "its driver ended before it did")
            self._note_doubt(op, fault)
        self._settle(op, None)

    def resolve(self, op: Op | None, letter: Resolve, mail_id: str) -> None:
        """A human's word on a doubt."""
        context = self._context
        now = context.env.ports.clock.now_ms()
        effect = None if op is None or op.task is not None else op.effect
        if op is not None and effect is not None and effect.doubt is None:
            # As long as its key may be another's, it was not attempted.
            effect = effect if self._keys.is_ours(op) else None
        if op is not None and effect is not None and letter.verdict == "happened":
            try:
                letter = _typed_value(letter, op)
            except ValueRefused as refused:
                # A slip of the pen is no reason to stop: the doubt stays, and can be asked again.
                context.note(MailRead(context.at(), mail_id, f"refused: {refused}"), mail_id)
                return
        event = decide_resolve(effect, letter, mail_id, at=context.at(), now=now)
        if op is None or effect is None or isinstance(event, MailRead):
            context.note(event, mail_id)
            return
        self._settler.stop(op)
        op.stage = "new"  # when its key is answered there is nothing left to go on with
        if isinstance(event, AttemptFailed):
            self._wait_for_next(op, effect, event)
            context.record(event, mail_id)
        else:
            self._end(op, event, mail_id)


def _typed_value(letter: Resolve, op: Op) -> Resolve:
    """The outcome that a human wrote as JSON, as the effect's own type."""
    value = op.definition.value_from_json(letter.value)
    return replace(letter, value=op.definition.value_codec.write(value))


def _nothing_happened(op: Op, error: BaseException) -> bool:
    rules = op.definition.effect
    assert rules is not None, "only effects end here"
    if op.definition.transaction:
        return not isinstance(error, Unsure)  # it was rolled back
    return isinstance(error, (NotHappened, *rules.not_happened))


def _unawaited(op: Op, value: object) -> TypeError:
    """The body left what it had to do to somebody else, who never comes."""
    if inspect.iscoroutine(value):
        value.close()
    kind = type(value).__name__
    return TypeError(
        f"the body of effect {op.id} returned a {kind} that nobody awaits; "
        "write it with `async def` and await there what it does"
    )


def _reason(error: BaseException) -> BaseException:
    """What the flow gets if nothing comes of it."""
    return error.__cause__ or error if isinstance(error, Unsure) else error


def _time_out(op: Op) -> TimedOut:
    return TimedOut(f"effect {op.id} took longer than {op.definition.timeout_seconds:g} s")
