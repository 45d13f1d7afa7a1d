"""Mail to runs in memory: fetched for many at once, and at once for those known to have some."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from outlive.engine.drive import Drive
from outlive.errors import OutliveError
from outlive.journal.outbox import mail_of_each
from outlive.store import Mail
from outlive.worker.setting import Setting


class Postman:
    """Brings mail to the runs of one worker."""

    def __init__(
        self,
        setting: Setting,
        drives: Mapping[str, Drive],
        failed: Callable[[OutliveError], None],
    ) -> None:
        self._setting, self._drives, self._failed = setting, drives, failed
        self._expected: dict[str, None] = {}
        self._is_under_way = False

    def expect(self, run_id: str) -> bool:
        """Mail was posted to this run just now; False: the run is not in memory here."""
        if run_id not in self._drives:
            return False
        self._expected[run_id] = None
        if not self._is_under_way:
            self._is_under_way = True
            self._setting.host.create_task(self._fetch())
        return True

    async def _fetch(self) -> None:
        try:
            while self._expected:
                some = list(self._expected)
                self._expected.clear()
                await self.bring(some)
        except OutliveError as error:
            self._failed(error)
        finally:
            self._is_under_way = False

    async def bring(self, run_ids: Collection[str]) -> None:
        """What was posted to these and not consumed."""
        # Themselves, not their ids: what we bring to one that left and came back meanwhile, or has
        # begun another chapter, may have been consumed since.
        here = {each: self._drives[each] for each in run_ids if each in self._drives}
        if not here:
            return
        found: Mapping[str, Sequence[Mail]] = await self._setting.lane(
            mail_of_each(self._setting.store, here)
        )
        for run_id, mail in found.items():
            drive = here[run_id]
            if self._drives.get(run_id) is not drive:
                self.expect(run_id)
            elif not drive.stopped:
                drive.mailbox.take(mail)
