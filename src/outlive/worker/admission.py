"""Which of the runs that a store offers a worker claims: not all that are due may be driven now.

Some are in memory here already, some can't be read or do not fit our code, some are in quarantine,
and some are suspected of killing their drivers: those have to wait for one another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from outlive.engine.drive import Drive
from outlive.engine.leaving import MISMATCH_RETRY_MS
from outlive.errors import OutliveError
from outlive.model.decide import PROBATION_FROM
from outlive.store import Claims, Offer, Wanted
from outlive.worker.chapters import Chapter, claim_and_read, read_chapters
from outlive.worker.peers import StorePeer
from outlive.worker.probation import Probation
from outlive.worker.quarantine import Quarantine
from outlive.worker.setting import Setting


class Admission:
    """The gate of one worker."""

    def __init__(
        self, setting: Setting, drives: Mapping[str, Drive], damaged: Collection[str]
    ) -> None:
        self._setting, self._drives, self._damaged = setting, drives, damaged
        self.probation = Probation(self._read)
        self._quarantine = Quarantine(StorePeer(setting.store, setting.lane).mail_of)
        #: What was read along with the last offers.
        self._read_along: dict[str, Chapter] = {}
        #: Runs that do not fit our code, why, and when to try again: mail must not drive them.
        self._misfits: dict[str, tuple[int, OutliveError]] = {}

    async def ask(self, worker: str, wanted: Wanted, limit: int) -> Claims:
        """What the store offers; what is about to be read is read in the same call of the lane."""
        store = self._setting.store
        if self.in_vain:
            return await self._setting.lane(store.claim(worker, wanted, limit))
        asked = claim_and_read(store, worker, wanted, limit)
        claims, self._read_along = await self._setting.lane(asked)
        return claims

    async def _read(self, run_ids: Sequence[str]) -> dict[str, Chapter]:
        along, self._read_along = self._read_along, {}
        if all(run_id in along for run_id in run_ids):
            return {run_id: along[run_id] for run_id in run_ids}
        return await self._setting.lane(read_chapters(self._setting.store, run_ids))

    @property
    def in_vain(self) -> int:
        """How many runs may be offered that are not admitted."""
        put_off = self.probation.waiting + self._quarantine.waiting
        return put_off + len(self._damaged) + len(self._misfits)

    async def admit(self, offers: Sequence[Offer]) -> list[Offer]:
        """Those among the offered that may be claimed now."""
        open_ones = [each for each in offers if self._may_take(each.head.run_id)]
        free = await self._quarantine.admit(open_ones)
        has_suspect = any(d.log.run.barren >= PROBATION_FROM for d in self._drives.values())
        return await self.probation.admit(free, has_suspect=has_suspect)

    def _may_take(self, run_id: str) -> bool:
        is_open = run_id not in self._drives and run_id not in self._damaged
        retry_at = self._misfits[run_id][0] if run_id in self._misfits else 0
        return is_open and retry_at <= self._setting.ports.clock.now_ms()

    # what does not fit

    def put_off(self, run_id: str, error: OutliveError) -> None:
        """This run does not fit our code: not again soon."""
        now = self._setting.ports.clock.now_ms()
        self._misfits[run_id] = (now + MISMATCH_RETRY_MS, error)

    def misfit(self, run_id: str) -> OutliveError | None:
        """Why this run was put off, if it was."""
        return self._misfits[run_id][1] if run_id in self._misfits else None

    def give_chance(self, run_id: str) -> None:
        """Somebody wants it driven: try again at once."""
        self._misfits.pop(run_id, None)

    def give_chances(self) -> None:
        """There is new code: try all of them again."""
        self._misfits.clear()
