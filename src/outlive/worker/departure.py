"""How a worker goes: what runs reaches a durable point, the rest is handed over at a limit.

Each run leaves by a commit of its own that frees its lease, so that others go on with it while
slower ones still finish here. At the limit plain steps are called off: they may be repeated.
Effects are not, so each gets a moment to say how it ended; one that says nothing is in doubt, which
is in the journal, and the next driver settles it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from outlive.engine.drive import Drive
from outlive.engine.host import Host

#: What a cancelled effect gets to say how it ended, and the store to write down the last words.
GRACE_SECONDS = 1.0


class Departure:
    """The end of one worker."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._changed = asyncio.Event()
        self._is_over = False
        #: Nothing new may begin.
        self.is_asked = False
        #: Everything reached a durable point in time.
        self.is_clean = True

    def ask(self, seconds: float) -> None:
        """Be gone after so long; asked again, the earlier limit counts."""
        self.is_asked = True
        if seconds > 0:
            self._host.call_later(seconds, self._end)
        else:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._changed.set()

    def notice(self) -> None:
        """A run left memory."""
        self._changed.set()

    async def see_off(self, drives: Mapping[str, Drive]) -> None:
        """Until no run is left; those that are in memory leave it one by one."""
        for drive in list(drives.values()):
            try:
                drive.drain()
            except Exception as bug:
                drive.broke(bug)
        await self._until(lambda: not drives or self._is_over)
        if not drives:
            return
        self.is_clean = False
        running = [task for drive in drives.values() for task in drive.waiting.cut_effects()]
        if running:
            await asyncio.wait(running, timeout=GRACE_SECONDS)
        for drive in list(drives.values()):
            drive.leaving.hand_over()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await self._until(lambda: not drives)
        except TimeoutError:
            pass  # the store is slow or gone; whoever finds the leases will know what to do

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._changed.clear()
            await self._changed.wait()
