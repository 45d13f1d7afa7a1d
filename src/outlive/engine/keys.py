"""Keys given by users are claimed for the whole store: one effect per key, whoever asks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from outlive.engine.attempts import later
from outlive.engine.context import RunContext
from outlive.engine.faults import fault_of
from outlive.engine.ops import Op
from outlive.errors import KeyTaken, OutliveError
from outlive.journal.headers import first_entry, key_header
from outlive.journal.keeper import Answer, Loose
from outlive.model.events import (
    EffectDone,
    EffectRaised,
    KeyHeld,
)
from outlive.model.ids import key_journal
from outlive.stores.types import Entry

logger = logging.getLogger("outlive")

#: How often another run's effect is looked at while this one waits for its end.
HOLDER_LOOK_MS = 200


Answered = Callable[[Op, EffectDone | EffectRaised | None], None]


class KeyClaims:
    """The key claims of one run."""

    def __init__(self, context: RunContext, answered: Answered) -> None:
        self._context = context
        self._answered = answered
        self._ours: set[str] = set()
        self._told: set[str] = set()

    def is_ours(self, op: Op) -> bool:
        """The effect may be attempted as far as its key goes."""
        return op.user_key is None or op.id in self._ours

    def claim(self, op: Op) -> None:
        """Ask for the key with the next batch."""
        env = self._context.env
        if env.keeper.failure is not None:
            return
        env.keeper.submit(Loose(self._entry(op), env.host, partial(self._settled, op)))

    def _entry(self, op: Op) -> Entry:
        held = KeyHeld(self._context.run_id, op.id, op.digest)
        return first_entry(key_journal(op.key), held, key_header())

    def _settled(self, op: Op, answer: Answer) -> None:
        if self._context.stopped or isinstance(answer, OutliveError):
            return
        if answer is None:
            self._ours.add(op.id)
            self._answered(op, None)
        else:
            self._look(op)

    def _look(self, op: Op) -> None:
        self._context.env.host.create_task(self._ask_holder(op))

    async def _ask_holder(self, op: Op) -> None:
        try:
            await self._ask(op)
        except OutliveError as error:
            if op.id not in self._told:
                self._told.add(op.id)
                logger.error("effect %s of run %s waits: %s", op.id, self._context.run_id, error)
            self._follow(op, None)  # what can't be read now is looked at again

    async def _ask(self, op: Op) -> None:
        peer = self._context.env.peer
        holder = await peer.holder_of(key_journal(op.key))
        if self._context.stopped:
            return
        if holder is None:
            self.claim(op)
            return
        run_id, step, digest = holder
        if (run_id, step) == (self._context.run_id, op.id):
            self._settled(op, None)
        elif digest != op.digest:
            self._taken(op, f"effect {step} of run {run_id}")
        else:
            end = await peer.end_of(run_id, step)
            # Asked second: a run that goes leaves its outcome with the key before it does.
            self._follow(op, end or await peer.kept_end(key_journal(op.key), step))

    def _taken(self, op: Op, holder: str) -> None:
        error = KeyTaken(op.key, holder, f"effect {op.id} of run {self._context.run_id}")
        fault = fault_of(error, op.definition.value_codec)
        at = self._context.at()
        self._answered(op, EffectRaised(at, op.id, op.attempt, fault, False, "holder"))

    def _follow(self, op: Op, end: EffectDone | EffectRaised | None) -> None:
        if self._context.stopped:
            return
        at = self._context.at()
        if end is None:
            now = self._context.env.ports.clock.now_ms()
            later(self._context, op, now + HOLDER_LOOK_MS, self._look)
        elif isinstance(end, EffectDone):
            self._answered(op, EffectDone(at, op.id, op.attempt, end.value, "holder"))
        else:
            told = EffectRaised(at, op.id, op.attempt, end.error, end.happened, "holder")
            self._answered(op, told)
