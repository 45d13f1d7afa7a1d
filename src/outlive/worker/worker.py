"""A worker: holds leases, drives runs, takes over what dead workers held.

One loop: ask the store what may be claimed and which own runs have mail; claim and load what there
is room for (``loading``). A run that leaves memory gives its place to the next. A worker wants
whatever its flows can drive, and schedules, or only what it was told of. It goes by ``departure``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from outlive.engine.context import Env
from outlive.engine.definitions import Flow
from outlive.engine.drive import Drive
from outlive.engine.end import FlowEnd
from outlive.engine.exit import How
from outlive.engine.host import Host
from outlive.engine.notices import Notices, failure_text, reason_of, stopped_by
from outlive.errors import AppClosed, LeaseLost, OutliveError
from outlive.journal.log import RunLog
from outlive.model.decide import PROBATION_FROM
from outlive.model.defaults import WORKER_CONCURRENCY
from outlive.model.events import Claimed, Event, RunStarted
from outlive.model.run import Run
from outlive.stores.types import Mail, Offer, Wanted
from outlive.worker.chapters import Chapter, RunFound
from outlive.worker.claim import Admission, Loading, next_look
from outlive.worker.dependencies import Setting
from outlive.worker.heartbeat import Pulse, stopped
from outlive.worker.neighbours import Adoption, News, Postman, StoreKin, StorePeer, Watchers
from outlive.worker.poison import LOOK_SECONDS
from outlive.worker.repertoire import Repertoire
from outlive.worker.retention import RetentionTask


def wake_by_store(
    setting: Setting, worker: str, poke: Callable[[], object]
) -> Callable[[], object]:
    """Poke the worker, on its own loop, at the store's hints, if it gives any; returns the end."""
    watchable = setting.store.watchable
    if watchable is None:
        return _nothing
    return watchable.watch(worker, lambda: setting.host.call_threadsafe(poke))


def _nothing() -> None:
    pass


def begin_beside(setting: Setting, worker: str, poke: Callable[[], object]) -> Callable[[], object]:
    """Begin both, as far as they are wanted; returns what ends them."""
    unwatch = wake_by_store(setting, worker, poke)
    if setting.retention is None:
        return unwatch
    retention = RetentionTask(setting, setting.retention, worker)
    retention.start()

    def end() -> None:
        retention.stop()
        unwatch()

    return end


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


logger = logging.getLogger("outlive")

CLAIM_LIMIT = 200
#: A worker that drives nothing and found nothing asks a server so many times as rarely: less than
#: twice a second by default. It hears of work in between, unless a pooler keeps it from that.
IDLE_FACTOR = 2.6


class Worker:
    """Drives runs on one loop."""

    def __init__(
        self,
        setting: Setting,
        repertoire: Repertoire,
        *,
        everything: bool,
        concurrency: int = WORKER_CONCURRENCY,
    ) -> None:
        self.id = setting.ports.entropy(8).hex()
        self.failure: OutliveError | None = None
        self._setting = setting
        self._repertoire = repertoire
        self._everything = everything
        self._concurrency = concurrency
        self._only: set[str] = set()
        #: Those of them that are not in memory nor being claimed, for as long as that holds.
        self._absent: frozenset[str] | None = None
        self._drives: dict[str, Drive] = {}
        #: Runs that are being claimed. Two claims of one worker may be the same to the byte, and so
        #: both be in: nobody here claims what is in this set.
        self._taking: set[str] = set()
        self._watchers = Watchers()
        self._poke = asyncio.Event()
        self._adoption = Adoption(setting.store, setting.lane, self.id)
        self._peer = StorePeer(setting.store, setting.lane)
        #: The lease's lapses when it was last asked which runs are still held.
        self._lapses = 0
        kin = StoreKin(setting.store, setting.lane, setting.keeper, setting.host, self._want_child)
        kin.on_post, kin.learn = self.has_mail, self.learn
        self._env = Env(
            host=setting.host,
            keeper=setting.keeper,
            ports=setting.ports,
            lease=setting.lease,
            peer=self._peer,
            kin=kin,
            worker=self.id,
            idle_ms=setting.idle_ms,
            transactions=setting.transactions,
            hider=setting.hider,
            notices=setting.notices or Notices(setting.ports.clock),
            occupation=setting.occupation,
        )
        self._loading = Loading(setting, self._env, self._drive, self._pass_by)
        self._admission = Admission(setting, self._drives, self._loading.damaged)
        self._postman = Postman(setting, self._drives, self._fail)
        #: When the next run that may be driven here gets due, as far as is known; monotonic.
        self._next_look: float | None = None
        #: Each look is a transaction of a server; the last one found nothing to do.
        self._is_served = setting.store.threads is not None
        self._is_idle = False
        self._departure = Departure(setting.host)
        self._pulse: Pulse | None = None
        self._task: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], object] | None = None
        self._is_halted = False
        #: Its leases are free or will be: what was still being loaded is not driven here.
        self._is_gone = False

    # life

    def start(self) -> None:
        """Enlist and begin to look for work. Starting twice is fine."""
        if self._task is None:
            self._pulse = self._setting.start_pulse(self.id, self._pulse_failed)
            self._lapses = self._setting.lease.lapses
            self._setting.keeper.on_end.append(self._keeper_ended)
            self._task = self._setting.host.create_task(self._work())
            self._unwatch = begin_beside(self._setting, self.id, self._poke.set)

    async def drain(self, seconds: float | None = None) -> bool:
        """Take nothing more, let what runs reach a durable point, hand over the rest in the end.

        Called again with a shorter limit it hurries. False: something was cut off at the limit.
        """
        task, limit = self._task, self._setting.drain_seconds if seconds is None else seconds
        if task is None:
            return True
        self._departure.ask(limit)
        self._poke.set()
        # A store that hangs must not keep us.
        self._setting.host.call_later(limit + GRACE_SECONDS, self._leave_loop)
        await asyncio.wait([task])
        return self._departure.is_clean

    async def stop(self) -> None:
        """Hand over what is in memory and free every lease, at once. Stopping twice is fine."""
        await self.drain(0)

    async def wait(self) -> None:
        """Until this worker stops, by itself or because it was told to."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _halt(self) -> None:
        """Nothing of this worker runs any further; called wherever its loop ends."""
        self._is_halted = True
        if self.failure is not None:
            self._departure.ask(0)
        if self._setting.keeper.failure is None:
            await self._departure.see_off(self._drives)
        self._is_gone = True
        for drive in list(self._drives.values()):
            drive.leaving.abandon()
        if self._pulse is not None:
            await self._setting.lane(stopped(self._pulse))
            self._pulse = None
        if self._unwatch is not None:
            self._unwatch()
        self._watchers.tell_all(self.failure)
        if self._setting.keeper.failure is None:
            # A store that is gone can't be told; the others will find out.
            with suppress(OutliveError):
                await self._setting.lane(self._setting.store.release(self.id))
            if self._setting.transactions is not None:
                await self._setting.transactions.flush()

    def _pulse_failed(self, error: OutliveError) -> None:
        self._setting.host.call_threadsafe(self._fail, error)

    def _keeper_ended(self, error: OutliveError) -> None:
        self._setting.lease.revoke()
        self._setting.host.call_threadsafe(self._fail, error)

    def _fail(self, error: OutliveError) -> None:
        if self.failure is None:
            self.failure = error
            self._leave_loop()
            # If it was about to leave in good order: there is nothing left to wait for.
            self._departure.ask(0)

    def _leave_loop(self) -> None:
        if self._task is not None and not self._is_halted:
            self._task.cancel()

    # what to drive

    def learn(self, flow: Flow[Any, Any]) -> None:
        """This worker can drive runs of this flow."""
        if self._repertoire.learn(flow):
            self._admission.give_chances()

    @property
    def versions(self) -> Mapping[str, frozenset[str]]:
        """By flow, the versions of runs that this worker drives."""
        return self._repertoire.versions()

    @property
    def driving(self) -> frozenset[str]:
        """The runs in memory here."""
        return frozenset(self._drives)

    def is_driving(self, run_id: str) -> bool:
        """The run is in memory here."""
        return run_id in self._drives

    def will_tell(self, run_id: str) -> bool:
        """The run is in memory here, or is looked at next: asking the store would be in the way."""
        if run_id in self._drives or run_id in self._taking:
            return True
        return run_id in self._only and self._poke.is_set()

    def will_have(self, run_id: str) -> bool:
        """The run is in memory here, or is being claimed."""
        return run_id in self._drives or run_id in self._taking

    def log_of(self, run_id: str) -> RunLog | None:
        """The journal of a run in memory here, for those who wait for it to grow."""
        drive = self._drives.get(run_id)
        return None if drive is None else drive.log

    def _want_child(self, run_id: str, is_new: bool) -> None:
        if is_new:
            self._add(run_id)
        self.want(run_id)

    def _add(self, run_id: str) -> None:
        self._only.add(run_id)
        self._absent = None

    def want(self, run_id: str, look: RunFound | None = None) -> None:
        """Drive this run as soon as it may be claimed: at once, if a look at it says so."""
        self._admission.give_chance(run_id)
        if look is not None and look.claimable is not None and self._may_take(*look.claimable):
            self._add(run_id)
            self._taking.add(run_id)  # at once, not when the task has its turn
            self._setting.host.create_task(self._take_read(*look.claimable))
            return
        if run_id not in self._only:
            self._adoption.add(run_id)
        self._add(run_id)
        self._poke.set()

    def _may_take(self, offer: Offer, chapter: Chapter) -> bool:
        """Whether a run may be claimed without a look at all others."""
        run_id, header = offer.head.run_id, offer.header
        is_ours = header.version in self.versions.get(header.flow, ())
        is_suspect = offer.head.worker is not None and chapter.run.barren + 1 >= PROBATION_FROM
        is_known = self.will_have(run_id) or offer.head.worker == self.id
        is_sound = chapter.error is None and run_id not in self._loading.damaged
        is_leaving = self._departure.is_asked or self._is_halted
        return is_ours and is_sound and not (is_suspect or is_known or is_leaving)

    async def _take(self, offers: Sequence[Offer], read: Mapping[str, Chapter]) -> None:
        run_ids = [offer.head.run_id for offer in offers]
        self._taking.update(run_ids)
        try:
            await self._loading.take(offers, read)
        finally:
            self._taking.difference_update(run_ids)
            self._absent = None

    async def _take_read(self, offer: Offer, chapter: Chapter) -> None:
        """Claim a run that was read and drive it; if that is refused, look at it like at others.

        Mail that came between the reading and the claim is found by the next look.
        """
        run_id = offer.head.run_id
        try:
            await self._take([offer], {run_id: chapter})
        except OutliveError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("the worker stops")
            self._fail(OutliveError(f"the worker broke down: {error!r}"))
        if run_id in self._only and run_id not in self._drives:
            self._adoption.add(run_id)
            self._poke.set()

    def has_mail(self, run_id: str) -> None:
        """Mail was posted to this run just now: look at it at once, if it is driven here."""
        if not self._postman.expect(run_id):
            self._poke.set()

    def under_way(self, run_id: str) -> list[tuple[str, bool]]:
        """The steps of this run whose bodies run here; of each, whether it is an effect."""
        drive = self._drives.get(run_id)
        return [] if drive is None else drive.waiting.under_way()

    def watch(self, run_id: str) -> asyncio.Future[FlowEnd | None]:
        """Done with the verdict when the run ends here, with None when it leaves otherwise."""
        future = self._watchers.add(run_id)
        if run_id not in self._drives:
            misfit = self._admission.misfit(run_id) or self._loading.damaged.get(run_id)
            if misfit is not None:
                self._watchers.tell(run_id, misfit)
        return future

    def start_run(self, run_id: str, start: RunStarted) -> asyncio.Future[bool]:
        """Start a run with a lease of this worker and drive it; False if the id is in use.

        A run that has begun is driven, whether or not its caller still waits, in its context.
        """
        self._check_staying()
        log = self._loading.log_for(run_id)
        events: list[Event] = [start, Claimed(0, 1, self.id, True)]
        begun: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        log.on_failure = partial(self._not_begun, log, begun)
        log.append_all(events)
        log.wait(log.seq, copy_context().run, self._begun, log, events, begun)
        return begun

    def _not_begun(self, log: RunLog, begun: asyncio.Future[bool], error: Exception) -> None:
        log.close()
        if begun.done():
            return
        if isinstance(error, LeaseLost):
            begun.set_result(False)
        else:
            begun.set_exception(error)

    def _begun(self, log: RunLog, events: list[Event], begun: asyncio.Future[bool]) -> None:
        if self._is_halted:
            try:
                self._check_staying()
            except OutliveError as error:
                self._not_begun(log, begun, error)
            return
        self._add(log.run_id)
        try:
            logger.info("run %s (flow %s) started", log.run_id, log.run.start.flow)
            # Nothing is queued behind these, so what the keeper folded is nobody's but ours.
            self._drive(log, log.run, events)
        except Exception as error:
            self._not_begun(log, begun, error)
        if not begun.done():
            begun.set_result(True)

    def _check_staying(self) -> None:
        if self._departure.is_asked or self._is_halted:
            raise self.failure or AppClosed("its worker stopped; another one will drive the run")

    # the loop

    async def _work(self) -> None:
        try:
            while not self._departure.is_asked:
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
        seconds = self._setting.poll_seconds * (IDLE_FACTOR if self._is_idle else 1)
        if self._admission.probation.waiting:
            seconds = min(seconds, LOOK_SECONDS)
        if self._next_look is not None:
            ahead = self._next_look - self._setting.ports.clock.monotonic()
            seconds = min(seconds, max(0.0, ahead))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._poke.wait()
        self._poke.clear()

    async def _round(self) -> None:
        """Claim what may be claimed, bring mail to those who have some."""
        if self._lapses != self._setting.lease.lapses:
            await self._call_off_lost()
        if not (self._everything or self._only):
            return
        room = self._concurrency - len(self._drives)
        # One more than there is room for: to see that somebody waits for a place.
        limit = max(1, min(room, CLAIM_LIMIT)) + self._admission.in_vain
        claims = await self._admission.ask(self.id, self._wanted(), limit)
        self._next_look = next_look(claims, self._setting.ports.clock)
        self._is_idle = self._is_served and not (self._drives or claims.offers)
        await self._postman.bring(claims.mail)
        offers = await self._admission.admit(claims.offers)
        if claims.crowded or (offers and room <= 0):
            self._make_room(None if offers and room <= 0 else claims.crowded)
        free = [offer for offer in offers if not self.will_have(offer.head.run_id)]
        some, probation = free[: max(0, room)], self._admission.probation
        if some and not self._departure.is_asked:
            await self._take(some, probation.chapters)
        is_full = len(claims.offers) == limit and room > len(some) > 0
        if is_full or probation.chapters or probation.has_more:
            # There is more to be claimed; or mail may have come between the reading and the claim.
            self._poke.set()
        probation.chapters = {}
        # Last: what was offered is driven by now, and tells of its children itself.
        await self._adoption.look(self._drives)

    def _wanted(self) -> Wanted:
        if not self._everything and self._absent is None:
            self._absent = frozenset(self._only.difference(self._drives, self._taking))
        return self._repertoire.wanted(only=None if self._everything else self._absent)

    def _make_room(self, queues: Sequence[str] | None) -> None:
        """Others wait for a place: runs that only wait leave memory, however short their wait.

        A parent with a short time limit of its own could keep its child from ever being driven.
        """
        for drive in list(self._drives.values()):
            if queues is None or drive.context.start_event.queue in queues:
                drive.leaving.park_if_idle(patience_ms=-1)

    def _drive(self, log: RunLog, run: Run, events: list[Event], mail: Sequence[Mail] = ()) -> None:
        if self._is_gone:
            log.close()
            return
        start = run.start
        flow = self._repertoire.find(start.flow, start.version)
        drive = Drive(flow, log, run, self._env, self._left)
        self._drives[log.run_id] = drive
        self._absent = None
        self._admission.give_chance(log.run_id)
        if mail:  # first: a run that only waits leaves memory when it has begun
            drive.mailbox.take(mail)
        drive.begin(events)
        if self._departure.is_asked:
            drive.drain()

    async def _call_off_lost(self) -> None:
        """Stop what others took over while the lease had lapsed: no outcome of it could count.

        Without this its bodies would go on beside those of the new driver until they end.
        """
        self._lapses = self._setting.lease.lapses
        for run_id, drive in list(self._drives.items()):
            if not await self._peer.is_held(run_id, self.id) and not drive.context.stopped:
                drive.leaving.lost(LeaseLost(run_id))

    # ends

    def _left(self, drive: Drive, how: How, error: OutliveError | None) -> None:
        self._drives.pop(drive.run_id, None)
        self._say_left(drive, how, error)
        self._setting.host.call_soon(drive.let_go)  # it may be further up the stack
        self._absent = None
        if how == "ended":
            self._only.discard(drive.run_id)
            self._watchers.tell(drive.run_id, drive.ending.verdict)
        elif how == "chapter":
            self._turn_page(drive.log, drive.mailbox.unread)
            return  # it is still held: nobody gets a place, and who waits may wait on
        elif how == "misfit":
            assert error is not None, "a run that does not fit says why"
            self._admission.put_off(drive.run_id, error)
            self._watchers.tell(drive.run_id, error)
        else:
            # Parked or lost: it may go on and end elsewhere; then the store tells.
            self._watchers.tell(drive.run_id, None if isinstance(error, LeaseLost) else error)
        self._departure.notice()
        if self._everything or self._only:
            self._poke.set()

    def _say_left(self, drive: Drive, how: How, error: OutliveError | None) -> None:
        run_id, flow = drive.run_id, drive.flow.name
        verdict = drive.ending.verdict
        if how == "ended" and verdict is not None:
            fault = verdict.error
            if fault is None:
                logger.info("run %s (flow %s) %s", run_id, flow, verdict.status)
                return
            why = "" if self._env.notices.secret else failure_text(fault)
            says = "run %s (flow %s) %s: %s%s"
            # Whoever started it here is told by an exception.
            level = logging.WARNING if self._everything else logging.INFO
            logger.log(level, says, run_id, flow, verdict.status, fault.type_name, why)
        elif how == "misfit" and error is not None and self._everything:
            self._env.notices.tell(stopped_by(run_id, flow, reason_of(error)))
        elif isinstance(error, LeaseLost):
            says = "run %s (flow %s) was taken over: this worker lost its lease"
            logger.warning(says, run_id, flow)

    def _turn_page(self, last: RunLog, mail: Sequence[Mail]) -> None:
        """Begin the next chapter as whoever reads the journal would: with its first event alone."""
        try:
            log, chapter = last.turn_page()
            self._drive(log, log.run, [chapter], mail)
        except OutliveError as error:
            self._fail(error)
        if last.run_id not in self._drives:
            self._watchers.tell(last.run_id, None)  # it may be driven elsewhere: look again
            self._departure.notice()

    def _pass_by(self, run_id: str, news: News, is_over: bool) -> None:
        """A run that was claimed and is not driven."""
        if is_over:
            self._only.discard(run_id)
            self._absent = None
        self._watchers.tell(run_id, news)
