"""What a flow has asked for and not got yet: the ops it waits for, and those it gave up on."""

from __future__ import annotations

import asyncio
from typing import Any

from outlive.engine.ops import EffectFuture, Op, call_off


class PendingOps:
    """The ops of one run that have no delivered end."""

    def __init__(self) -> None:
        self._ops: dict[str, Op] = {}
        #: The flow no longer waits for these; what comes of them is recorded all the same.
        self._orphans: dict[str, Op] = {}
        #: Effects whose end is not known: the run can't end before they are settled.
        self.unsettled: set[str] = set()
        #: Open when the flow was stopped; an end of one may have been recorded in between.
        self.cut_off: set[str] = set()

    def add(self, op: Op) -> None:
        """The flow waits for this op."""
        self._ops[op.id] = op
        if op.definition.effect is not None:
            self.unsettled.add(op.id)

    def find(self, step: str) -> Op | None:
        """The op of that id, waited for or not."""
        return self._ops.get(step) or self._orphans.get(step)

    def asked(self) -> list[str]:
        """What the code asks for, by id."""
        return list(self._ops)

    def all(self) -> list[Op]:
        """Every op that is open."""
        return [*self._ops.values(), *self._orphans.values()]

    def under_way(self) -> list[tuple[str, bool]]:
        """The id of each op whose body runs, and whether it is an effect."""
        return [
            (op.id, op.definition.effect is not None)
            for op in self.all()
            if op.has_begun and op.wait == "busy" and not op.is_over
        ]

    @property
    def is_busy(self) -> bool:
        """Something is under way that is no wait."""
        for ops in (self._ops, self._orphans):
            for op in ops.values():
                if op.wait == "busy":
                    return True
        return False

    def go_live(self) -> list[Op]:
        """What must be begun now that the replay is over: what is waited for, and open effects."""
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
        return self._ops.pop(step, None)

    def abandon(self, op: Op, *, is_live: bool) -> None:
        """The flow no longer waits for this op; a plain step that runs is cancelled."""
        if self._ops.pop(op.id, None) is None:
            return
        op.orphan = True
        is_under_way = op.task is not None or op.is_over or not is_live
        if op.definition.effect is not None or is_under_way:
            self._orphans[op.id] = op
        if op.definition.effect is None:
            _call_off(op)

    def cut(self) -> None:
        """The flow is stopped: plain steps are called off, effects run to their end."""
        for op in list(self._ops.values()):
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
            self._ops.pop(op.id, None)
            self._orphans[op.id] = op
            op.orphan = True
            op.future.give_way()

    def stop(self) -> None:
        """The run leaves memory: timers end, plain bodies are cancelled, effects run out."""
        for op in self.all():
            if op.timer is not None:
                op.timer.cancel()
            if op.definition.effect is None:
                _call_off(op)
        self._ops.clear()
        self._orphans.clear()


def _call_off(op: Op) -> None:
    if op.timer is not None:
        op.timer.cancel()
        op.timer = None
    call_off(op)
