"""A theatre in memory for one run, whose processes can be held up in the middle of a commit."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from outlive.engine.definitions import Flow
from outlive.settings import Settings
from outlive.stores.types import Entry
from tests.harness import theatre
from tests.harness.theatre import EVICTING, PATIENCE_SECONDS, Theatre, breathe
from tests.order.journals import drive_on

__all__ = ["EVICTING", "STAYING", "Door", "Scene", "breathe", "live_and_replayed"]

#: No wait leaves memory.
STAYING = Settings(lease_seconds=80_000, poll_seconds=0.05, idle_seconds=80_000)


class Door(theatre.Door):
    """A store as one process sees it: counted, held up, broken or slammed."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.batches: list[Sequence[Entry]] = []
        #: Cleared: commits hang until it is set again.
        self.open = threading.Event()
        self.open.set()

    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
        if not wait:
            return None  # a commit here may hang
        self.open.wait(PATIENCE_SECONDS)
        self.enter("commit")
        self.batches.append(batch)
        return await self.store.commit(batch)

    def slam(self) -> None:
        super().slam()
        self.open.set()


class Scene(Theatre):
    """Apps on one store in memory, and the time they live in: it stands still where nobody asks."""

    door = Door
    step = 0.0

    def __init__(self) -> None:
        super().__init__(STAYING)

    async def close(self) -> None:
        for door in self.doors.values():
            door.open.set()
        await super().close()

    async def run(self, flow: Flow[Any, Any], *args: Any, id: str = "r") -> Any:
        """Start a run in a process of its own and let time pass until it is over."""
        handle = await self.open().start(flow, *args, id=id)
        return await self.outcome(handle)


async def live_and_replayed(scene: Scene, flow: Flow[[], Any]) -> list[Any]:
    """What a flow returns when it runs, and what it returns when it is replayed."""
    handle = await scene.open().start(flow, id="r")
    live = await scene.outcome(handle)
    replayed = await drive_on((await handle.read())[:-1], flow, run_id="r")
    return [live, replayed.outcome[1]]
