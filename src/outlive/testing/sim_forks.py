"""Those who fork simulated runs: at any place, at any time, also of runs that are about to go.

A fork is made by the real code, in some process, which may die on the way. What must hold of it:
all that it shares is there as long as it is, it replays to its own end, and nothing of the prefix
is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from outlive.errors import OutliveError
from outlive.forking import Forking
from outlive.handle import Handle
from outlive.journal.immediate import run_immediate
from outlive.ports import Ports
from outlive.store import Entry, Query, Store
from outlive.testing.sim_faults import FAULTY_SECONDS
from outlive.testing.sim_nature import Nature, SimClock
from outlive.testing.sim_process import SimProcess

T = TypeVar("T")

#: How many forks a seed makes at most, and how often somebody thinks of one.
FORKS_MAX = 3
PERIOD_SECONDS = 5.0


class SimForking(Forking):
    """The verb of an app, in a simulated process."""

    def __init__(self, process: SimProcess, nature: Nature) -> None:
        super().__init__(process.store)
        self._ports = Ports(clock=SimClock(nature), entropy=nature.entropy)
        self._lane = _here  # type: ignore[assignment]  # no thread in a simulation
        self._workers = WeakKeyDictionary()

    async def _commit(self, entry: Entry) -> bool:
        (conflict,) = await self.store.commit([entry])
        return conflict is None

    def _handle(self, *told: Any) -> Handle[Any]:
        return None  # type: ignore[return-value]  # nobody asks it


async def _here(work: Coroutine[Any, Any, T]) -> T:
    return await work


class Forker:
    """Forks a run now and then."""

    def __init__(self, nature: Nature, disk: Store, pick: Callable[[], SimProcess | None]) -> None:
        self._nature, self._disk, self._pick = nature, disk, pick
        self._made = 0

    def look(self) -> None:
        """Fork some run, perhaps, and come back later."""
        nature = self._nature
        if self._made >= FORKS_MAX or nature.now > FAULTY_SECONDS:
            return
        found = run_immediate(self._disk.find(Query(flow="story"), None, 1000)).items
        runs = [each for each in found if each.header.parent is None]
        process = self._pick()
        if runs and process is not None:
            # Rather one that ended: those are the ones that may go.
            ended = [each for each in runs if each.header.ended_at is not None]
            chosen = nature.rng.choice(ended or runs)
            self._made += 1
            at = nature.rng.randint(1, chosen.head.seq)
            self._fork(process, chosen.head.run_id, at)
        nature.after(nature.rng.uniform(0.5, 1.5) * PERIOD_SECONDS, self.look)

    def _fork(self, process: SimProcess, run_id: str, at: int) -> None:
        forking, name = SimForking(process, self._nature), f"fork-{self._made}"

        async def fork() -> None:
            with suppress(OutliveError):
                await forking.fork(run_id, at=at, id=name)

        process.loop.call_soon(lambda: process.loop.create_task(fork()), context=process.context)
