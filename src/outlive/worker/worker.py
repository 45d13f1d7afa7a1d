"""A worker: holds leases, drives runs, takes over what dead workers held.

One loop: ask the store what may be claimed and which own runs have mail; commit the claims (one
batch for all); read, fold and drive what was won. A run that leaves memory gives its place to the
next. A worker wants either whatever its flows can drive, or only the runs it was told of.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from outlive.engine.children import tell_parent
from outlive.engine.definitions import Flow
from outlive.engine.drive import Drive
from outlive.engine.host import Host
from outlive.engine.leaving import MISMATCH_RETRY_MS, How
from outlive.engine.ops import Env
from outlive.errors import AppClosed, FlowNotRegistered, LeaseLost, OutliveError
from outlive.journal.keeper import Answer, Keeper, Loose
from outlive.journal.lane import Lane
from outlive.journal.log import RunLog
from outlive.journal.reader import read_events
from outlive.journal.record import FORMAT
from outlive.model.decide import CLAIMS_MAX, PROBATION_FROM
from outlive.model.events import Claimed, Event, MailRead, RunQuarantined, RunStarted
from outlive.model.run import Run, fold
from outlive.ports import Ports
from outlive.store import Mail, Offer, Reading, Store, Wanted
from outlive.worker.adoption import Adoption
from outlive.worker.claims import claim_entry
from outlive.worker.kin import StoreKin
from outlive.worker.peers import StorePeer
from outlive.worker.probation import LOOK_SECONDS, Probation
from outlive.worker.pulse import LeaseTime, Pulse

logger = logging.getLogger("outlive")

POLL_SECONDS = 0.25
CLAIM_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a worker works with; made by the app."""

    store: Store
    keeper: Keeper
    lane: Lane
    ports: Ports
    host: Host
    lease: LeaseTime
    #: Starts beating for a worker id.
    start_pulse: Callable[[str, Callable[[OutliveError], None]], Pulse]
    idle_ms: int = 2000
    poll_seconds: float = POLL_SECONDS


class Worker:
    """Drives runs on one loop."""

    def __init__(
        self,
        setting: Setting,
        flows: Iterable[Flow[Any, Any]],
        *,
        everything: bool,
        concurrency: int = 100,
    ) -> None:
        self.id = setting.ports.entropy(8).hex()
        self.failure: OutliveError | None = None
        self._setting = setting
        self._flows: dict[str, Flow[Any, Any]] = {}
        for flow in flows:
            self.learn(flow)
        self._everything = everything
        self._concurrency = concurrency
        self._only: set[str] = set()
        self._drives: dict[str, Drive] = {}
        self._damaged: dict[str, OutliveError] = {}
        #: Runs that do not fit our code, why, and when to try again: mail must not drive them.
        self._misfits: dict[str, tuple[int, OutliveError]] = {}
        self._watchers: dict[str, list[asyncio.Future[Any]]] = {}
        self._probation = Probation(self._barren)
        self._poke = asyncio.Event()
        self._adoption = Adoption(setting.store, setting.lane, self.id)
        self._env = Env(
            host=setting.host,
            keeper=setting.keeper,
            ports=setting.ports,
            lease=setting.lease,
            peer=StorePeer(setting.store, setting.lane),
            kin=StoreKin(
                setting.store, setting.lane, setting.keeper, setting.host, self._want_child
            ),
            worker=self.id,
            idle_ms=setting.idle_ms,
        )
        self._pulse: Pulse | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_halted = False

    # life

    def start(self) -> None:
        """Enlist and begin to look for work. Starting twice is fine."""
        if self._task is None:
            self._pulse = self._setting.start_pulse(self.id, self._pulse_failed)
            self._setting.keeper.on_end.append(self._keeper_ended)
            self._task = self._setting.host.create_task(self._work())

    async def stop(self) -> None:
        """Hand over what is in memory and free every lease. Stopping twice is fine."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def wait(self) -> None:
        """Until this worker stops, by itself or by ``stop``."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _halt(self) -> None:
        """Nothing of this worker runs any further; called wherever its loop ends."""
        self._is_halted = True
        is_clean = True
        for drive in list(self._drives.values()):
            is_clean &= drive.leaving.hand_over()
        if self._pulse is not None:
            self._pulse.stop()
            self._pulse = None
        self._tell_all(self.failure)
        # With an effect still running here the lease is kept: only this process's end, or a
        # whole lease of silence, may let another worker think about that effect.
        if is_clean and self._setting.keeper.failure is None:
            # A store that is gone can't be told; the others will find out.
            with suppress(OutliveError):
                await self._setting.lane(self._setting.store.release(self.id))

    def _pulse_failed(self, error: OutliveError) -> None:
        self._setting.host.call_threadsafe(self._fail, error)

    def _keeper_ended(self, error: OutliveError) -> None:
        self._setting.lease.revoke()
        self._setting.host.call_threadsafe(self._fail, error)

    def _fail(self, error: OutliveError) -> None:
        if self.failure is None:
            self.failure = error
            if self._task is not None:
                self._task.cancel()

    # what to drive

    def learn(self, flow: Flow[Any, Any]) -> None:
        """This worker can drive runs of this flow."""
        known = self._flows.setdefault(flow.name, flow)
        if known.fn is not flow.fn:
            self._flows[flow.name] = flow
            self._misfits.clear()

    @property
    def flows(self) -> Mapping[str, Flow[Any, Any]]:
        """The flows that this worker drives, by name."""
        return self._flows

    @property
    def driving(self) -> frozenset[str]:
        """The runs in memory here."""
        return frozenset(self._drives)

    def _want_child(self, flow: Flow[Any, Any], run_id: str, is_new: bool) -> None:
        self.learn(flow)
        if is_new:
            self._only.add(run_id)
        self.want(run_id)

    def want(self, run_id: str) -> None:
        """Drive this run as soon as it may be claimed."""
        if run_id not in self._only:
            self._adoption.add(run_id)
        self._only.add(run_id)
        self._misfits.pop(run_id, None)
        self._poke.set()

    def watch(self, run_id: str) -> asyncio.Future[Drive | None]:
        """Done with the drive when the run ends here, with None when it leaves otherwise."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if run_id in self._misfits and run_id not in self._drives:
            future.set_exception(self._misfits[run_id][1])
            return future
        self._watchers.setdefault(run_id, []).append(future)
        return future

    async def start_run(self, run_id: str, start: RunStarted) -> bool:
        """Start a run with a lease of this worker and drive it; False if the id is in use."""
        log = self.log_for(run_id)
        events: list[Event] = [start, Claimed(0, 1, self.id, True)]
        begun: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def refuse(error: OutliveError) -> None:
            if isinstance(error, LeaseLost):
                begun.set_result(False)
            else:
                begun.set_exception(error)

        log.on_failure = refuse
        for event in events:
            log.append(event)
        log.wait(log.seq, lambda: begun.set_result(True))
        if not await begun:
            log.close()
            return False
        if self._is_halted:
            log.close()
            raise self.failure or AppClosed("its worker stopped; another one will drive the run")
        self._only.add(run_id)
        self._drive(log, fold(events), events)
        return True

    def log_for(self, run_id: str) -> RunLog:
        """The appending end of a journal, on this worker's side."""
        return RunLog(self._setting.keeper, self._setting.host, run_id, worker=self.id)

    # the loop

    async def _work(self) -> None:
        try:
            while True:
                await self._round()
                await self._rest()
        except OutliveError as error:
            self.failure = self.failure or error
            logger.error("the worker stops: %s", error)
        except Exception as error:
            self.failure = self.failure or OutliveError(f"the worker broke down: {error!r}")
            logger.exception("the worker stops")
        finally:
            await self._halt()

    async def _rest(self) -> None:
        seconds = self._setting.poll_seconds
        try:
            async with asyncio.timeout(
                min(seconds, LOOK_SECONDS) if self._probation.waiting else seconds
            ):
                await self._poke.wait()
        except TimeoutError:
            pass
        self._poke.clear()

    async def _round(self) -> None:
        """Claim what may be claimed, bring mail to those who have some."""
        await self._adoption.look(self._drives)
        room = self._concurrency - len(self._drives)
        wanted = self._wanted(room)
        limit = max(0, room) + self._probation.waiting
        claims = await self._call(self._setting.store.claim(self.id, wanted, limit))
        for run_id in claims.mail:
            await self._bring_mail(run_id)
        offers = [each for each in claims.offers if self._may_take(each.head.run_id)]
        has_suspect = any(d.log.run.barren >= PROBATION_FROM for d in self._drives.values())
        offers = await self._probation.admit(offers, has_suspect=has_suspect)
        some = offers[: max(0, min(room, CLAIM_LIMIT))]
        won = await asyncio.gather(*(self._claim(offer) for offer in some))
        for run_id in won:
            if run_id is not None:
                await self._load(run_id)

    def _wanted(self, room: int) -> Wanted:
        flows = {flow.name: flow.versions for flow in self._flows.values()} if room > 0 else {}
        only = None if self._everything else frozenset(self._only - set(self._drives))
        return Wanted(flows=flows, format=FORMAT, run_ids=only)

    def _may_take(self, run_id: str) -> bool:
        is_open = run_id not in self._drives and run_id not in self._damaged
        retry_at = self._misfits[run_id][0] if run_id in self._misfits else 0
        return is_open and retry_at <= self._setting.ports.clock.now_ms()

    async def _barren(self, run_id: str) -> int:
        """Claims in a row without an outcome; a damaged journal is reported when it is loaded."""
        reading: Reading | None = await self._call(self._setting.store.read(run_id))
        with suppress(OutliveError):
            return 0 if reading is None else fold(read_events(reading)).barren
        return 0

    async def _call(self, work: Any) -> Any:
        return await self._setting.lane(work)

    async def _claim(self, offer: Offer) -> str | None:
        """The run's id if the claim was won."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        entry = claim_entry(offer, self.id, self._setting.ports.clock.now_ms())

        def settle(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._setting.keeper.submit(Loose(entry, self._setting.host, settle))
        answer = await answered
        if isinstance(answer, OutliveError):
            raise answer
        return offer.head.run_id if answer is None else None

    async def _load(self, run_id: str) -> None:
        """Read, verify, fold and drive a run that was won."""
        reading: Reading | None = await self._call(self._setting.store.read(run_id))
        if reading is None or reading.head.worker != self.id:
            return
        try:
            events = read_events(reading)
        except OutliveError as error:
            self._report_damage(run_id, error)
            return
        run = fold(events)
        log = self.log_for(run_id)
        log.resume(run, reading.head.link)
        if run.tells_parent:
            await self._tell_parent(log, run)
            return
        if run.barren > CLAIMS_MAX:
            self._quarantine(log, run, reading.mail)
            return
        self._drive(log, run, events, reading.mail)

    async def _tell_parent(self, log: RunLog, run: Run) -> None:
        """Its driver died between the outcome and telling it."""
        if await tell_parent(self._env, log, run):
            self._only.discard(log.run_id)
            log.wait(log.seq, partial(self._tell, log.run_id, None))
        log.close()

    def _report_damage(self, run_id: str, error: OutliveError) -> None:
        logger.error("%s", error)
        self._damaged[run_id] = error
        self._tell(run_id, error)

    def _quarantine(self, log: RunLog, run: Run, mail: Sequence[Mail]) -> None:
        reason = f"claimed {run.barren - 1} times in a row without one new outcome"
        for each in mail:
            # Unread, it would make the run due again at once; a human's word may be said again.
            log.append(MailRead(run.at, each.mail_id, reason), each.mail_id)
        log.append(RunQuarantined(run.at, reason))
        log.wait(log.seq, lambda: self._tell(log.run_id, None))
        log.close()

    def _drive(self, log: RunLog, run: Run, events: list[Event], mail: Sequence[Mail] = ()) -> None:
        flow = self._flows.get(run.start.flow)
        if flow is None:
            raise FlowNotRegistered(run.start.flow, list(self._flows))
        drive = Drive(flow, log, run, self._env, self._left)
        self._drives[log.run_id] = drive
        self._misfits.pop(log.run_id, None)
        # Mail first: a run that only waits leaves memory as soon as it has begun.
        drive.mailbox.take(mail)
        drive.begin(events)

    async def _bring_mail(self, run_id: str) -> None:
        drive = self._drives.get(run_id)
        if drive is None:
            return
        reading = await self._call(self._setting.store.read(run_id, drive.log.durable))
        if reading is not None and not drive.stopped:
            drive.mailbox.take(reading.mail)

    # ends

    def _left(self, drive: Drive, how: How, error: OutliveError | None) -> None:
        self._drives.pop(drive.run_id, None)
        if how == "ended":
            self._only.discard(drive.run_id)
            self._tell(drive.run_id, drive)
        elif how == "misfit":
            now = self._setting.ports.clock.now_ms()
            assert error is not None, "a run that does not fit says why"
            self._misfits[drive.run_id] = (now + MISMATCH_RETRY_MS, error)
            self._tell(drive.run_id, error)
        else:
            # Parked or lost: it may go on and end elsewhere; then the store tells.
            self._tell(drive.run_id, None if isinstance(error, LeaseLost) else error)
        self._poke.set()

    def _tell(self, run_id: str, what: Drive | OutliveError | None) -> None:
        for watcher in self._watchers.pop(run_id, ()):
            if watcher.done():
                continue
            if isinstance(what, OutliveError):
                watcher.set_exception(what)
            else:
                watcher.set_result(what)

    def _tell_all(self, error: OutliveError | None) -> None:
        for run_id in list(self._watchers):
            self._tell(run_id, error)
