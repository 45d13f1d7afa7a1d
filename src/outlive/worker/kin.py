"""Other runs, as a run may touch them: start a child, leave mail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from outlive.engine.definitions import Flow
from outlive.engine.host import Host
from outlive.errors import OutliveError
from outlive.journal.keeper import Answer, Keeper, Loose
from outlive.journal.lane import Lane
from outlive.journal.reader import read_events
from outlive.model.events import Fault, RunStarted
from outlive.model.mail import Letter, encode_letter
from outlive.model.run import fold
from outlive.store import Store
from outlive.worker.claims import start_entry


class StoreKin:
    """Touches other runs through the store."""

    def __init__(
        self,
        store: Store,
        lane: Lane,
        keeper: Keeper,
        host: Host,
        want: Callable[[Flow[Any, Any], str], None],
    ) -> None:
        self._store, self._lane, self._keeper, self._host = store, lane, keeper, host
        self._want = want

    async def start_child(self, run_id: str, event: RunStarted, flow: Any) -> Fault | None:
        """Start a run of its own, once; a fault if the id is another's."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._keeper.submit(Loose(start_entry(run_id, event), self._host, answered.set_result))
        answer = await answered
        if isinstance(answer, OutliveError):
            raise answer
        fault = None if answer is None else await self._compare(run_id, event)
        if fault is None:
            self._want(flow, run_id)
        return fault

    async def _compare(self, run_id: str, event: RunStarted) -> Fault | None:
        reading = await self._lane(self._store.read(run_id))
        if reading is not None:
            there = fold(read_events(reading)).start
            wanted = (event.flow, event.digest, event.parent)
            if (there.flow, there.digest, there.parent) == wanted:
                return None
        return Fault("RunIdTaken", f"run id {run_id!r} is taken by another run")

    async def post(self, run_id: str, mail_id: str, letter: Letter) -> None:
        """Leave mail for another run, once; one that is over or gone needs none."""
        await self._lane(self._store.post(run_id, mail_id, encode_letter(letter)))
