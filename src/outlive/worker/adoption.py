"""Runs that come to a worker from elsewhere, and wait for children that nobody may drive.

A run that waits for its children is not due, so nobody would load it; but only its code knows the
children's flows, and only whoever drives the run can be told of them. So it is woken once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from contextlib import suppress

from outlive.errors import CorruptRecord, WrongVersion
from outlive.journal.lane import Lane
from outlive.journal.reader import read_events
from outlive.model.mail import Nudge, encode_letter
from outlive.model.run import Run, fold
from outlive.store import LAST_CHAPTER, Reading, Store

LOOKS_MAX = 100


class Adoption:
    """What one worker has been told of and not looked at yet."""

    def __init__(self, store: Store, lane: Lane, worker: str) -> None:
        self._store, self._lane, self._worker = store, lane, worker
        self._waiting: deque[str] = deque()

    def add(self, run_id: str) -> None:
        """This run may be asleep and have children."""
        self._waiting.append(run_id)

    async def look(self, driving: Container[str]) -> None:
        """Wake those among the next that wait for children."""
        for _ in range(min(len(self._waiting), LOOKS_MAX)):
            run_id = self._waiting.popleft()
            if run_id not in driving and await self._waits_for_children(run_id):
                letter = encode_letter(Nudge("its children can be driven here"))
                await self._lane(self._store.post(run_id, f"nudge/{self._worker}", letter))

    async def _waits_for_children(self, run_id: str) -> bool:
        reading: Reading | None = await self._lane(self._store.read(run_id, LAST_CHAPTER))
        run = Run()
        # A damaged journal is reported when somebody loads it.
        with suppress(CorruptRecord, WrongVersion):
            run = fold([] if reading is None else read_events(reading))
        return run.is_parked and bool(run.children)
