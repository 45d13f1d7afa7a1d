"""Settling a doubt: by the effect's own rule, never by a guess.

A check is asked until it knows. "It happened" counts at once. "It did not happen" counts only if
it was asked after the attempt surely was over and the receiver had ``settle_after`` to finish it
(``decide.absence_counts_from``); before, it means "unknown". A check that never knows ends with a
human.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from outlive.engine.arguments import call_by_name, is_async
from outlive.engine.attempts import attempt_of
from outlive.engine.context import RunContext
from outlive.engine.definitions import NOT_HAPPENED, UNKNOWN, CheckAnswer
from outlive.engine.faults import exception_of, frames_of, text_of
from outlive.engine.notices import doubt_of
from outlive.engine.ops import Op, own_bound
from outlive.engine.place import Body, place
from outlive.errors import CorruptRecord, InDoubt, NotHappened, ValueRefused
from outlive.model.decide import DRIVER_ENDED, RetryAt, absence_counts_from, decide_failure
from outlive.model.defaults import CHECK_TIMEOUT_SECONDS
from outlive.model.events import By, EffectDoubted
from outlive.model.run import OpenEffect

logger = logging.getLogger("outlive")

#: Times that a check may answer "unknown" after the receiver had its time; then a human is asked.
CHECKS_MAX = 8
CHECK_DELAY_SECONDS = 0.25
CHECK_DELAY_SECONDS_MAX = 30.0


class Ends(Protocol):
    """How an effect may end once its doubt is settled."""

    def happened(self, op: Op, outcome: bytes, by: By) -> None:
        """It is done."""
        ...

    def absent(self, op: Op, error: BaseException, by: By) -> None:
        """It failed and nothing happened."""
        ...

    def absent_after_cut(self, op: Op, by: By) -> None:
        """It was cut off and nothing happened."""
        ...

    def repeat(self, op: Op, error: BaseException | None, at: int | None = None) -> None:
        """Nobody knows whether it happened, and its receiver honours the key: do it again."""
        ...

    def tell_in_doubt(self, op: Op, error: BaseException) -> None:
        """The flow is told that nobody knows."""
        ...


class Settler:
    """Settles the doubts of one run."""

    def __init__(self, context: RunContext, ends: Ends) -> None:
        self._context = context
        self._ends = ends
        self._told: set[tuple[str, type]] = set()

    def settle(self, op: Op, error: BaseException | None) -> None:
        """By the effect's rule; ``error`` is that of an attempt which ended here."""
        effect, rules = op.effect, op.definition.effect
        assert effect is not None, "a doubt is about an intent"
        assert rules is not None, "only an effect can be in doubt"
        op.checks = 0
        op.watched_from = self._context.env.ports.clock.monotonic()
        if effect.asks:
            self._ask(op)
        elif rules.doubt == "check":
            self._check(op)
        elif rules.doubt == "retry":
            self._repeat(op, effect, error)
        else:
            self._ends.tell_in_doubt(op, InDoubt(op.id, op.key, _why(effect)))

    def stop(self, op: Op) -> None:
        """Somebody else settled it."""
        if op.timer is not None:
            op.timer.cancel()
            op.timer = None

    def tell(self, op: Op, effect: OpenEffect) -> None:
        """Only a human can settle this, and should know as soon as it is durable."""
        context = self._context
        wait = doubt_of(context.run_id, context.log.run.start.flow, op.id, effect)
        context.when_durable(partial(context.env.notices.tell, wait))

    def _ask(self, op: Op) -> None:
        op.wait = None
        self._context.rest()

    def _repeat(self, op: Op, effect: OpenEffect, error: BaseException | None) -> None:
        """The receiver honours the key: a repeat is harmless, within the retries asked for."""
        if _was_cut(effect) and not op.cancel_wanted:
            self._ends.repeat(op, None)
            return
        error = error or _restored(op, effect)
        ports = self._context.env.ports
        now, chance = ports.clock.now_ms(), ports.entropy(1)[0] / 256
        decision = decide_failure(op.definition.retry, op.attempt, error, now=now, chance=chance)
        if isinstance(decision, RetryAt) and not op.cancel_wanted:
            self._ends.repeat(op, error, decision.at)
        else:
            self._ends.tell_in_doubt(op, error)

    # asking the receiver

    def _check(self, op: Op) -> None:
        rules = op.definition.effect
        assert rules is not None, "only an effect can be in doubt"
        host, asked_at = self._context.env.host, self._context.env.ports.clock.monotonic()
        transactions = self._context.env.transactions
        if op.definition.transaction and transactions is not None:
            looked = host.create_task(transactions.look(op, attempt_of(self._context, op)))
            looked.add_done_callback(partial(self._answered, op, asked_at))
            return
        assert rules.check is not None, "this rule comes with a check"
        offered = {**own_bound(op), "key": op.key}
        ask = partial(call_by_name, rules.check, offered)
        assert op.context is not None, "an op is checked from the flow that called it"
        own = op.context.copy()
        own.run(place.set, Body(self._context.run_id, op.id, op.attempt, op.user_key))
        task = host.create_task(_answer(host, rules.check, ask), own)
        task.add_done_callback(partial(self._answered, op, asked_at))

    def _answered(self, op: Op, asked_at: float, task: asyncio.Task[Any]) -> None:
        failed = asyncio.CancelledError() if task.cancelled() else task.exception()
        effect, rules = op.effect, op.definition.effect
        if self._context.stopped or effect is None or rules is None or effect.doubt is None:
            return
        if asked_at < op.watched_from:
            return  # it was asked about an earlier doubt
        answer = self._unknown_by(op, failed) if failed else self._read(op, task.result())
        missing = _watch_seconds(op, effect) - (asked_at - op.watched_from)
        if answer is NOT_HAPPENED and missing <= 0:
            self._absent(op, effect)
        elif answer is NOT_HAPPENED:
            self._check_in(op, missing)
        elif isinstance(answer, CheckAnswer):
            # A store that can't be asked now is asked again: no human knows better.
            is_told = not op.definition.transaction or isinstance(failed, CorruptRecord)
            self._unknown(op, effect, missing <= 0 and is_told)
        else:
            self._ends.happened(op, answer, "check")

    def _read(self, op: Op, answer: object) -> CheckAnswer | bytes:
        """A verdict, or the outcome as it is recorded; what can't be recorded is no outcome."""
        if isinstance(answer, CheckAnswer):
            return answer
        try:
            return op.definition.value_codec.write(answer)
        except ValueRefused as refused:
            return self._unknown_by(op, refused)

    def _unknown_by(self, op: Op, error: BaseException) -> CheckAnswer:
        """A check that fails does not know; its author is told, once for each kind of error."""
        kind = op.definition.name, type(error)
        if kind not in self._told and not op.definition.transaction:
            self._told.add(kind)
            where, why = f"effect {op.id} of run {self._context.run_id}", text_of(error)
            says = "the check of %s does not know (outlive.UNKNOWN), since it failed: %s: %s"
            at = "".join(f"\n{frame}" for frame in frames_of(error))
            extra = {"sealed_as": f"the check of {where} failed ({type(error).__qualname__})"}
            logger.warning(f"{says}%s", where, type(error).__qualname__, why, at, extra=extra)
        return UNKNOWN

    def _absent(self, op: Op, effect: OpenEffect) -> None:
        if _was_cut(effect):
            self._ends.absent_after_cut(op, "check")
        else:
            self._ends.absent(op, _restored(op, effect), "check")

    def _unknown(self, op: Op, effect: OpenEffect, receiver_had_its_time: bool) -> None:
        op.checks += receiver_had_its_time
        if op.checks >= CHECKS_MAX:
            effect.asks = True
            fault = effect.doubt
            assert fault is not None, "there is a doubt to ask about"
            context = self._context
            is_over = effect.over_at is not None
            context.record(EffectDoubted(context.at(), op.id, op.attempt, fault, True, is_over))
            self.tell(op, effect)
            self._ask(op)
            return
        self._check_in(op, min(CHECK_DELAY_SECONDS * 2**op.checks, CHECK_DELAY_SECONDS_MAX))

    def _check_in(self, op: Op, seconds: float) -> None:
        """Ask again; the run stays in memory, or what was watched and counted would be lost."""
        op.timer = self._context.env.host.call_later(seconds, self._check_now, op)

    def _check_now(self, op: Op) -> None:
        op.timer = None
        if not self._context.stopped:
            self._check(op)


async def _answer(host: Any, check: Any, ask: Any) -> object:
    """What the check says, within its limit; a plain function is asked in a thread."""
    async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
        answer = await (ask() if is_async(check) else host.run_in_thread(copy_context(), ask))
        return await answer if inspect.isawaitable(answer) else answer


def _watch_seconds(op: Op, effect: OpenEffect) -> float:
    """How long a driver must have watched a doubt before an absence counts.

    Counted from where it began to watch, by its own monotonic time: wall clocks jump, and the
    attempt, if it was not over by then, had begun.
    """
    if op.definition.transaction:
        return 0.0  # whatever is under way can't be committed after the look
    rules, limit = op.definition.effect, op.definition.timeout_seconds or 0.0
    assert rules is not None, "only an effect can be in doubt"
    over_at = None if effect.over_at is None else 0
    seen = replace(effect, not_after=round(limit * 1000), over_at=over_at)
    return absence_counts_from(seen, rules.settle_after_ms) / 1000


def _was_cut(effect: OpenEffect) -> bool:
    return effect.doubt is not None and effect.doubt.type_name == DRIVER_ENDED


def _why(effect: OpenEffect) -> str:
    fault = effect.doubt
    return "unknown" if fault is None else f"{fault.type_name}: {fault.message}"


def _restored(op: Op, effect: OpenEffect) -> BaseException:
    """The error of the attempt in doubt, as a flow would get it."""
    definition = op.definition
    if effect.doubt is None:
        return NotHappened("it did not happen")
    return exception_of(effect.doubt, definition.own_errors, definition.value_codec)
