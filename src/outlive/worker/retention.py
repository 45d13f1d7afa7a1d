"""A worker's turn to clear away what is old: one of many takes it, and works in small portions.

Time is cut into periods. Whoever first creates the mark of a period sweeps in it, and stops at its
end; the others find the mark and rest. A worker that dies in its turn leaves a mark that goes by
itself; the next period is anybody's.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from outlive.errors import OutliveError
from outlive.journal.keeper import commit_one
from outlive.journal.retention.sweep import Rules, Sweep
from outlive.journal.shared import drop_mark, turn_entry
from outlive.worker.dependencies import Setting

logger = logging.getLogger("outlive")

#: How long a sweeper rests after a portion, as a multiple of what that took, and at least.
REST_FACTOR, REST_SECONDS_MIN, REST_SECONDS_MAX = 4.0, 0.002, 60.0
#: Every so many turns nodes without runs are looked for.
ORPHAN_TURNS = 60
#: How often silent runs are looked at within the time that they may be silent.
SILENT_LOOKS = 50


class RetentionTask:
    """The sweeps of one worker."""

    def __init__(self, setting: Setting, rules: Rules, worker: str) -> None:
        self._setting, self._rules, self._worker = setting, rules, worker
        self._period_ms = max(1, round(rules.period_seconds * 1000))
        self._turn = -1
        self._task: asyncio.Task[Any] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = self._setting.host.create_task(self._main())

    def stop(self) -> None:
        """Stop where it is: the next sweep finds the rest."""
        if self._task is not None:
            self._task.cancel()

    async def _main(self) -> None:
        while True:
            # Not all at once, though their clocks agree.
            chance = int.from_bytes(self._setting.ports.entropy(2)) / 65536
            await asyncio.sleep(self._rules.period_seconds * (0.1 + 0.2 * chance))
            try:
                await self._look()
            except (OutliveError, OSError) as error:
                # Nothing waits for it: what can't be cleared away now is looked at again.
                logger.warning("retention: %s", error)

    async def _look(self) -> None:
        setting, now = self._setting, self._setting.ports.clock.now_ms()
        turn = now // self._period_ms
        if turn == self._turn or setting.keeper.failure is not None:
            return
        self._turn = turn
        entry = turn_entry(turn, self._worker, now)
        if await commit_one(setting.keeper, setting.host, entry):
            await self._sweep(turn)
            until = (turn + 2) * self._period_ms
            await setting.lane(drop_mark(setting.store, entry.run_id, until))

    async def _sweep(self, turn: int) -> None:
        setting, clock = self._setting, self._setting.ports.clock
        until = (turn + 1) * self._period_ms
        silent = self._looks_at_silent(turn)
        orphans = turn % ORPHAN_TURNS == 0
        sweep = Sweep(setting.store, self._rules, setting.ports, silent=silent, orphans=orphans)
        while clock.now_ms() < until:
            began = clock.monotonic()
            if not await setting.lane(sweep.step()):
                break
            await asyncio.sleep(rest_after(clock.monotonic() - began))
        for fate, count in sweep.swept.fates.items():
            logger.info("retention: %d runs %s", count, fate)

    def _looks_at_silent(self, turn: int) -> bool:
        """It takes reading each run's end, so it is not done more often than it is worth."""
        ttl = self._rules.retention.shortest_ttl_ms
        return ttl is not None and turn % max(1, ttl // SILENT_LOOKS // self._period_ms) == 0


def rest_after(seconds: float, factor: float = REST_FACTOR) -> float:
    """How long whoever sweeps leaves the store to others after a portion that took so long."""
    return min(max(seconds * factor, REST_SECONDS_MIN), REST_SECONDS_MAX)
