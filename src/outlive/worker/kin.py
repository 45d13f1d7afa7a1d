"""Other runs, as a run may touch them: start a child, leave mail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from outlive.engine.definitions import Flow
from outlive.engine.host import Host
from outlive.engine.others import Started
from outlive.errors import CorruptRecord, RunIdTaken, UsageError, WrongVersion
from outlive.journal.alone import find_or_begin
from outlive.journal.keeper import Keeper, commit_one
from outlive.journal.lane import Lane
from outlive.journal.mail import write_letter
from outlive.journal.outbox import Outbox
from outlive.journal.parts import whole
from outlive.journal.reader import read_events
from outlive.journal.restored import read_whole
from outlive.model.events import Fault, RunStarted
from outlive.model.mail import ChildNews, Letter
from outlive.model.run import ENDED, fold
from outlive.store import Posted, Reading, Store
from outlive.worker.claims import start_entry


class StoreKin:
    """Touches other runs through the store."""

    def __init__(
        self,
        store: Store,
        lane: Lane,
        keeper: Keeper,
        host: Host,
        want: Callable[[str, bool], None],
    ) -> None:
        self._store, self._lane, self._keeper, self._host = store, lane, keeper, host
        self._want = want
        self._outbox = Outbox(store, lane, host.create_task)
        #: Told of the code of a child before it is started; refuses a namesake.
        self.learn: Callable[[Flow[Any, Any]], None] = lambda flow: None
        #: Told who has mail: a run that is driven here need not wait for a look.
        self.on_post: Callable[[str], None] = lambda run_id: None

    async def start_child(self, run_id: str, event: RunStarted, flow: Flow[Any, Any]) -> Started:
        """Start a run of its own, once."""
        refusal = self._refusal(flow)
        if refusal is not None:
            return refusal
        if await commit_one(self._keeper, self._host, start_entry(run_id, event)):
            self._tell(flow, run_id, True)
            return "started"
        found = await self._look(run_id, event, flow)
        if found == "started":
            self._tell(flow, run_id, False)
        return found

    def _refusal(self, flow: Flow[Any, Any]) -> Fault | None:
        """Why this worker must not drive runs of the flow, if so."""
        try:
            if not flow.is_name_only:
                self.learn(flow)
        except UsageError as namesake:
            return Fault("UsageError", str(namesake))
        return None

    def _tell(self, flow: Flow[Any, Any], run_id: str, is_new: bool) -> None:
        if flow.is_name_only:
            self.on_post(run_id)  # whoever has its code drives it, perhaps our worker
        else:
            self._want(run_id, is_new)

    async def _look(self, run_id: str, event: RunStarted, flow: Flow[Any, Any]) -> Started:
        """Who has the id: the child itself, begun by an earlier driver, or somebody else."""
        entry, read = start_entry(run_id, event), partial(self._read, run_id)
        try:
            reading = await find_or_begin(self._store, self._lane, entry, read)
            run = fold([] if reading is None else read_events(reading))
        except (CorruptRecord, RunIdTaken, WrongVersion) as error:
            return Fault(type(error).__name__, str(error))
        there = run.started
        if there is None:
            return Fault("RunIdTaken", "it belonged to a run that was deleted not long ago")
        why = _difference(event, there, flow)
        if why:
            return Fault("RunIdTaken", why)
        if event.is_awaited and run.status in ENDED:
            return ChildNews(run_id, run.status, run.value or b"", run.error)
        return "started"

    async def news_of(self, run_id: str) -> ChildNews | None:
        """What a child told its parent, from its own journal."""
        reading = await self._read(run_id)
        run = fold([] if reading is None else read_events(reading))
        if run.ended_at is None or run.status not in ENDED:
            return None
        return ChildNews(run_id, run.status, whole(run.value or b""), run.error)

    async def _read(self, run_id: str) -> Reading | None:
        return await self._lane(read_whole(self._store, run_id))

    def want(self, flow: Flow[Any, Any], run_id: str) -> None:
        """A child that was started: whoever drives its parent can drive it, too."""
        if self._refusal(flow) is None:
            self._want(run_id, False)

    async def post(self, run_id: str, mail_id: str, letter: Letter) -> Posted:
        """Leave mail for another run, once; one that is over or gone needs none."""
        posted = await self._outbox.post(run_id, mail_id, write_letter(run_id, mail_id, letter))
        if posted == "posted":
            self.on_post(run_id)
        return posted


def _difference(asked: RunStarted, there: RunStarted, flow: Flow[Any, Any]) -> str:
    """Why the run that is there is not the child that is asked for; empty: it is.

    Only children tell their parent how they ended, so the same flow and arguments are not enough.
    """
    if there.flow != asked.flow:
        return f"it is a run of flow {there.flow!r}, not {asked.flow!r}"
    if there.digest != asked.digest and not flow.args_codec.same(there.args, asked.args):
        return f"that run of flow {there.flow!r} has other arguments"
    if there.parent != asked.parent:
        return (
            "it has the same flow and arguments, but this run did not start it "
            "(in a step, outlive.get waits for it)"
        )
    if there.is_awaited != asked.is_awaited:
        verb = "call" if there.is_awaited else "spawn"
        return f"this run started it with outlive.{verb}"
    return ""
