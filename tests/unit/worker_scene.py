"""Apps on one store in memory, whose workers can be killed and whose commits can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from outlive.app.app import App
from outlive.errors import StoreFailed
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Conflict, Entry

QUICK = Settings(lease_seconds=1.0, poll_seconds=0.02, idle_seconds=0.0)

Open = Callable[[], App]


class BreakingStore(MemoryStore):
    """Its commits fail from the moment it is told to; killed workers release nothing."""

    broken = False
    killed: frozenset[str] = frozenset()

    async def commit(self, batch: Sequence[Entry]) -> Sequence[Conflict | None]:
        if self.broken:
            raise StoreFailed("the disk is gone")
        return await super().commit(batch)

    async def release(self, worker: str) -> None:
        if worker not in self.killed:
            await super().release(worker)


@contextmanager
def opening_apps(store: BreakingStore) -> Iterator[Open]:
    """Opens apps on the store, and closes them in the end."""
    apps: list[App] = []

    def begin() -> App:
        apps.append(App(store, settings=QUICK))
        return apps[-1]

    yield begin
    for app in apps:
        app.close()


async def kill_worker(app: App, store: BreakingStore) -> None:
    """What SIGKILL does, as far as the others can see."""
    (worker,) = app._workers.pop(asyncio.get_running_loop())
    store.killed |= {worker.id}
    # The dead write nothing, not even that they hand over.
    app._writer.keeper.end(StoreFailed("the process is gone"))
    await worker.stop()
    store.kill(worker.id)
