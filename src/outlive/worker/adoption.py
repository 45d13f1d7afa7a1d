"""Runs that come to a worker from elsewhere, and wait for children that nobody may drive.

A run that waits for its children is not due, so nobody would load it; but only its code knows the
children's flows, and only whoever drives the run can be told of them. So it is woken once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence

from outlive.journal.lane import Lane
from outlive.journal.mail import write_letter
from outlive.model.mail import Nudge
from outlive.store import LAST_CHAPTER, Head, Store
from outlive.worker.chapters import read_chapter

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
        """Wake those among the next that wait for children; what is driven here needs no look."""
        some = [self._waiting.popleft() for _ in range(min(len(self._waiting), LOOKS_MAX))]
        asleep = [run_id for run_id in some if run_id not in driving]
        for run_id in await self._lane(self._parents(asleep)) if asleep else ():
            mail_id = f"nudge/{self._worker}"
            letter = write_letter(run_id, mail_id, Nudge("its children can be driven here"))
            await self._lane(self._store.post(run_id, mail_id, letter))

    async def _parents(self, run_ids: Sequence[str]) -> list[str]:
        return [run_id for run_id in run_ids if await self._waits_for_children(run_id)]

    async def _waits_for_children(self, run_id: str) -> bool:
        reading = await self._store.read(run_id, LAST_CHAPTER, limit=0)
        # What somebody holds, what is over and what never began waits for no child here.
        if reading is None or reading.header.ended_at is not None or not _is_parked(reading.head):
            return False
        # A damaged journal is reported when somebody loads it.
        chapter = await read_chapter(self._store, run_id)
        return chapter is not None and chapter.run.is_parked and bool(chapter.run.children)


def _is_parked(head: Head) -> bool:
    return head.worker is None and head.epoch > 0
