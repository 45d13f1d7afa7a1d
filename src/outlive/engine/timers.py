"""A flow's timers: set from the flow's own clock, fired as events.

When a timer is due follows from the journal alone (the flow's clock is the time of the last
delivery), so setting one needs no event; that it fired, and before or after what, is one.
"""

from __future__ import annotations

import asyncio
from functools import partial
from math import ceil

from outlive.engine.context import RunContext
from outlive.engine.host import Cancellable
from outlive.engine.place import LOOSE_TIMER
from outlive.engine.replay import Comparing
from outlive.model.events import TimerFired


class _Timer:
    __slots__ = ("armed", "fire_at", "handle", "id", "is_recorded")

    def __init__(self, timer_id: str, handle: asyncio.TimerHandle, fire_at: int) -> None:
        self.id, self.handle, self.fire_at = timer_id, handle, fire_at
        self.armed: Cancellable | None = None
        self.is_recorded = False


class FlowTimers:
    """The timers of one run."""

    def __init__(self, context: RunContext, comparing: Comparing) -> None:
        self._context, self._comparing = context, comparing
        context.loop.set_timer, context.loop.drop_timer = self.set_timer, self.drop_timer
        self.waiting: dict[str, _Timer] = {}
        self._by_handle: dict[int, str] = {}
        self._dropped: set[str] = set()

    def set_timer(self, handle: asyncio.TimerHandle, timer_id: str) -> None:
        """Fire this handle at its time, as an event."""
        fire_at = self._context.started_at + ceil(handle.when() * 1000)
        timer = _Timer(timer_id, handle, fire_at)
        self.waiting[timer_id] = timer
        self._by_handle[id(handle)] = timer_id
        if self._context.is_live:
            self._arm(timer)

    def drop_timer(self, handle: asyncio.TimerHandle) -> None:
        """The handle was cancelled."""
        timer_id = self._by_handle.pop(id(handle), None)
        timer = self.waiting.pop(timer_id, None) if timer_id is not None else None
        if timer is not None and timer_id is not None:
            if not self._context.is_live:
                self._dropped.add(timer_id)
            if timer.armed is not None:
                timer.armed.cancel()

    def go_live(self) -> None:
        """The journal is behind: from here on time is the host's."""
        self._dropped.clear()
        # Those that came due meanwhile fire in the order in which they would have.
        for timer in sorted(self.waiting.values(), key=lambda each: each.fire_at):
            self._arm(timer)

    def times(self) -> list[int]:
        """When the waiting ones are due (ms since 1970)."""
        return [timer.fire_at for timer in self.waiting.values()]

    def hurry(self, until: int) -> None:
        """The wall clock may have been set forward: look anew at what is due so soon."""
        for timer in sorted(self.waiting.values(), key=lambda each: each.fire_at):
            if timer.fire_at <= until and timer.armed is not None:
                timer.armed.cancel()
                self._arm(timer)

    def _arm(self, timer: _Timer) -> None:
        now = self._context.env.ports.clock.now_ms()
        # Negative if it is due already: the host keeps them in order.
        delay = (timer.fire_at - now) / 1000
        timer.armed = self._context.env.host.call_later(delay, self._due, timer)

    def _due(self, timer: _Timer) -> None:
        if self._context.stopped or timer.id not in self.waiting:
            return
        if self._context.env.ports.clock.now_ms() < timer.fire_at:
            # The wall clock was set back meanwhile, and timers go by it.
            self._arm(timer)
            self._context.rest()
            return
        self._context.after_mail(timer.fire_at, partial(self._fire, timer))

    def fire_before(self, instant: int) -> None:
        """Fire, in their order, those that were due before an instant in the past."""
        until = min(instant, self._context.env.ports.clock.now_ms() + 1)
        due = [timer for timer in self.waiting.values() if timer.fire_at < until]
        for timer in sorted(due, key=lambda each: each.fire_at):
            self._fire(timer)

    def _fire(self, timer: _Timer) -> None:
        if timer.id in self.waiting and not timer.is_recorded:
            timer.is_recorded = True
            self._context.record(TimerFired(self._context.at(), timer.id))

    def fired(self, event: TimerFired) -> None:
        """Deliver: the flow's callback gets ready, unless it was called off before."""
        timer = self.waiting.pop(event.timer, None)
        if timer is None:
            is_loose = f"/{LOOSE_TIMER}" in event.timer
            if event.timer not in self._dropped and not self._context.is_live and not is_loose:
                self._comparing.differs(event)
            return
        self._by_handle.pop(id(timer.handle), None)
        handle = timer.handle
        if not handle.cancelled():
            self._context.loop.ready.append(handle)

    def stop(self) -> None:
        """The run leaves memory."""
        for timer in self.waiting.values():
            if timer.armed is not None:
                timer.armed.cancel()
        self.waiting.clear()
        self._by_handle.clear()
