"""Who waits in this process for a run to end."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TypeAlias

from outlive.engine.ending import Verdict
from outlive.errors import OutliveError

#: How a run ended here; None: it left memory otherwise, ask the store; or an error.
News: TypeAlias = Verdict | OutliveError | None


class Watchers:
    """By run, who wants to be told."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[Verdict | None]]] = {}

    def add(self, run_id: str) -> asyncio.Future[Verdict | None]:
        """Done with the next news of this run."""
        future: asyncio.Future[Verdict | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, []).append(future)
        future.add_done_callback(partial(self._forget, run_id))
        return future

    def _forget(self, run_id: str, future: asyncio.Future[Verdict | None]) -> None:
        """It was told, or nobody waits any more."""
        waiting = self._waiting.get(run_id, [])
        if future in waiting:
            waiting.remove(future)
        if not waiting:
            self._waiting.pop(run_id, None)

    def tell(self, run_id: str, news: News) -> None:
        """Tell everybody who waits for this run, once."""
        for watcher in self._waiting.pop(run_id, ()):
            if watcher.done():
                continue
            if isinstance(news, OutliveError):
                watcher.set_exception(news)
            else:
                watcher.set_result(news)

    def tell_all(self, error: OutliveError | None) -> None:
        """The worker ends: nobody will hear anything from it any more."""
        for run_id in list(self._waiting):
            self.tell(run_id, error)
