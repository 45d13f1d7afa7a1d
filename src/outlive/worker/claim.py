"""From an offer to a run in memory: claim it, read it, verify it, and see what is to be done.

Claims travel in one batch, and what was won is read in portions, unless it was read before its
claim. A run that was won is driven, or only its parent has to be told of its
end, or it is put aside; one that can't be read is given back with the reason, and reported.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from outlive.engine.children import tell_parent
from outlive.engine.context import Env
from outlive.engine.drive import Drive
from outlive.engine.exit import MISMATCH_RETRY_MS
from outlive.errors import OutliveError, WrongVersion
from outlive.journal.headers import header_of, next_entry
from outlive.journal.keeper import commit_one
from outlive.journal.log import MailEvent, RunLog
from outlive.model.decide import PROBATION_FROM
from outlive.model.events import DriveBegan, Event, Parked
from outlive.model.mail import Cancel
from outlive.model.run import ENDED, Run
from outlive.ports import Clock
from outlive.stores.types import Claims, Entry, Head, Mail, Offer, Reading, Wanted
from outlive.worker.chapters import Chapter, claim_and_read, portions, read_chapters
from outlive.worker.dependencies import Setting
from outlive.worker.entries import claim_entry
from outlive.worker.neighbours import News, StorePeer
from outlive.worker.poison import Probation, Quarantine, end_without_code, judge, put_aside

logger = logging.getLogger("outlive")

#: Runs that begin in one turn of the loop: others wait, and these share their first flush.
DRIVEN_IN_A_TURN = 16

#: A run that was won: its journal's end, its state, what happened to it, what was posted to it.
Take: TypeAlias = Callable[[RunLog, Run, list[Event], Sequence[Mail]], None]
#: One that is not driven: what to tell whoever waits for it, and whether it is over.
Pass: TypeAlias = Callable[[str, News, bool], None]


class Loading:
    """Takes runs for one worker."""

    def __init__(self, setting: Setting, env: Env, take: Take, pass_by: Pass) -> None:
        self._setting, self._env, self._take, self._pass = setting, env, take, pass_by
        #: Runs whose journal can't be read here, and why: they are not claimed again.
        self.damaged: dict[str, OutliveError] = {}
        #: Runs whose claim was refused at the last look, and the heads that they were offered with.
        self._refused: dict[str, Head] = {}

    def log_for(self, run_id: str) -> RunLog:
        """The appending end of a journal, on this worker's side."""
        return RunLog(self._setting.keeper, self._setting.host, run_id, worker=self._env.worker)

    async def take(self, offers: Sequence[Offer], known: Mapping[str, Chapter]) -> None:
        """Claim these, and go on with what was won; some were read already."""
        now = self._setting.ports.clock.now_ms()
        claims = {offer.head.run_id: claim_entry(offer, self._env.worker, now) for offer in offers}
        won = await asyncio.gather(*(self._commit(entry) for entry, _ in claims.values()))
        ours = [offer for offer, is_won in zip(offers, won, strict=True) if is_won]
        await self._wonder([offer for offer in offers if offer not in ours])
        if logger.isEnabledFor(logging.INFO):
            _announce(ours)
        for portion in portions(ours):
            here = {offer.head.run_id: known.get(offer.head.run_id) for offer in portion}
            unread = [run_id for run_id, chapter in here.items() if chapter is None]
            read = await self._read(unread) if unread else {}
            for number, (run_id, chapter) in enumerate(here.items(), 1):
                if chapter is not None:
                    chapter.claim(*claims[run_id])
                    await self._go_on(chapter)
                elif run_id in read:
                    await self._go_on(read[run_id])
                if number % DRIVEN_IN_A_TURN == 0:
                    await asyncio.sleep(0)

    async def _wonder(self, refused: Sequence[Offer]) -> None:
        """Look at those that are offered as before though their claim was refused.

        Mostly somebody was faster. But a head that its records do not end at is followed by
        nobody's entry, and whoever waits for such a run must hear of that.
        """
        again = [offer for offer in refused if self._refused.get(offer.head.run_id) == offer.head]
        self._refused = {offer.head.run_id: offer.head for offer in refused}
        if not again:
            return
        for run_id, chapter in (await self._read([x.head.run_id for x in again])).items():
            if chapter.error is not None:
                logger.error("%s", chapter.error)
                self.damaged[run_id] = chapter.error
                self._pass(run_id, chapter.error, False)

    async def _read(self, run_ids: Sequence[str]) -> dict[str, Chapter]:
        return await self._setting.lane(read_chapters(self._setting.store, run_ids))

    async def _commit(self, entry: Entry) -> bool:
        """Whether the entry is in."""
        return await commit_one(self._setting.keeper, self._setting.host, entry)

    async def _go_on(self, chapter: Chapter) -> None:
        reading, run, events = chapter.reading, chapter.run, chapter.events
        run_id = reading.head.run_id
        if reading.head.worker != self._env.worker:
            return
        if chapter.error is not None:
            await self._give_back(reading, chapter.error)
            return
        log = self.log_for(run_id)
        log.resume(run, reading.head, reading.header, reading.nodes)
        if run.tells_parent:
            await self._tell_parent(log, run)
            return
        if run.ended_at is not None:
            await self._put_right(chapter)
            return
        match judge(run_id, run, events, reading.mail):
            case "drive":
                self._take(log, run, events, reading.mail)
            case "try":
                self._try(log, run, events, reading.mail)
            case "quarantine":
                shown = shlex.quote(run_id)
                logger.warning(
                    "run %s (flow %s) is quarantined, for it killed its workers: look at it with "
                    "`outlive show %s`, then `outlive resume %s MODULE`",
                    run_id,
                    run.start.flow,
                    shown,
                    shown,
                )
                self._write(log, put_aside(run_id, run, reading.mail))
                log.wait(log.seq, partial(self._pass, run_id, None, False))
                log.close()
            case "end":
                await self._end(log, run, reading.mail)

    def _try(self, log: RunLog, run: Run, events: list[Event], mail: Sequence[Mail]) -> None:
        """Drive a run whose last driver died, once it is durable that its code is run again."""
        now = self._setting.ports.clock.now_ms()
        tried = DriveBegan(max(run.at, now - run.start.started_at))
        log.on_failure = lambda error: log.close()
        log.append(tried)
        log.wait(log.seq, partial(self._take, log, run, [*events, tried], mail))

    def _write(self, log: RunLog, events: list[tuple[Event, str | None]]) -> None:
        log.append_all(
            [event if mail_id is None else MailEvent(event, mail_id) for event, mail_id in events]
        )

    async def _end(self, log: RunLog, run: Run, mail: Sequence[Mail]) -> None:
        """A cancelled run whose code kills its workers ends without it, and so do its children."""
        children = [child for child in run.children.values() if child.is_awaited]
        events = end_without_code(log.run_id, run, mail)
        for child in children:
            mail_id = f"cancel/{log.run_id}/{child.step}/{run.tries}"
            await self._env.kin.post(child.child_id, mail_id, Cancel(f"run {log.run_id}"))
        self._write(log, events)
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        log.on_failure = lambda error: settled.set_result(None)
        log.wait(log.seq, lambda: settled.set_result(None))
        await settled
        if log.failure is None and run.tells_parent:
            await self._tell_parent(log, run)
            return
        self._pass(log.run_id, None, True)
        log.close()

    async def _tell_parent(self, log: RunLog, run: Run) -> None:
        """Its driver ended between the outcome and telling it."""
        if await tell_parent(self._env, log, run):
            log.wait(log.seq, partial(self._pass, log.run_id, None, True))
        log.close()

    async def _put_right(self, chapter: Chapter) -> None:
        """A run that is over, whatever its header says: it is not driven, and shown as it is."""
        head, run = chapter.reading.head, chapter.run
        shown = header_of(run, chapter.reading.header.chapter_link)
        logger.error(
            "run %s had ended (%s), and its header did not say so", head.run_id, run.status
        )
        entry = next_entry(head, Parked(run.at, None), shown, epoch=head.epoch)
        await self._commit(msgspec.structs.replace(entry, lease="free"))
        self._pass(head.run_id, None, True)

    async def _give_back(self, reading: Reading, error: OutliveError) -> None:
        """Nobody can drive what can't be read: say so, loudly, and let go of it.

        One that a newer release wrote is offered again later; a damaged one only with new mail.
        """
        logger.error("%s", error)
        head, header = reading.head, reading.header
        self.damaged[head.run_id] = error
        now = self._setting.ports.clock.now_ms()
        wake_at = now + MISMATCH_RETRY_MS if isinstance(error, WrongVersion) else None
        status = header.status if header.status in ENDED else "waiting"
        shown = msgspec.structs.replace(
            header, status=status, wake_at=wake_at, reason=str(error)[:500]
        )
        parked = Parked(max(0, now - header.started_at), wake_at, str(error))
        entry = next_entry(head, parked, shown, epoch=head.epoch)
        await self._commit(msgspec.structs.replace(entry, lease="free"))
        self._pass(head.run_id, error, False)


def _announce(offers: Sequence[Offer]) -> None:
    """These runs are driven here from now on."""
    for offer in offers:
        run_id, flow = offer.head.run_id, offer.header.flow
        if offer.head.worker is not None:
            gone = offer.head.worker
            logger.info("run %s (flow %s) taken over from worker %s", run_id, flow, gone)
        elif offer.header.status == "pending":
            logger.info("run %s (flow %s) started", run_id, flow)
        else:
            logger.debug("run %s (flow %s) goes on", run_id, flow)


#: Looks for what is due do not follow one another faster than this, whatever a store says.
_AHEAD_MS_MIN = 1


def next_look(claims: Claims, clock: Clock) -> float | None:
    """When the next run gets due, in monotonic time.

    The store's clock decides what is due, and ours may be ahead of it.
    """
    if claims.next_at is None:
        return None
    return clock.monotonic() + max(_AHEAD_MS_MIN, claims.next_at - claims.now) / 1000


class Admission:
    """The gate of one worker."""

    def __init__(
        self, setting: Setting, drives: Mapping[str, Drive], damaged: Collection[str]
    ) -> None:
        self._setting, self._drives, self._damaged = setting, drives, damaged
        self.probation = Probation(self._read)
        self._quarantine = Quarantine(StorePeer(setting.store, setting.lane).mail_of)
        #: What was read along with the last offers.
        self._read_along: dict[str, Chapter] = {}
        #: Runs that do not fit our code, why, and when to try again: mail must not drive them.
        self._misfits: dict[str, tuple[int, OutliveError]] = {}

    async def ask(self, worker: str, wanted: Wanted, limit: int) -> Claims:
        """What the store offers; what is about to be read is read in the same call of the lane."""
        store = self._setting.store
        if self.in_vain:
            return await self._setting.lane(store.claim(worker, wanted, limit))
        asked = claim_and_read(store, worker, wanted, limit)
        claims, self._read_along = await self._setting.lane(asked)
        return claims

    async def _read(self, run_ids: Sequence[str]) -> dict[str, Chapter]:
        along, self._read_along = self._read_along, {}
        if all(run_id in along for run_id in run_ids):
            return {run_id: along[run_id] for run_id in run_ids}
        return await self._setting.lane(read_chapters(self._setting.store, run_ids))

    @property
    def in_vain(self) -> int:
        """How many runs may be offered that are not admitted."""
        put_off = self.probation.waiting + self._quarantine.waiting
        return put_off + len(self._damaged) + len(self._misfits)

    async def admit(self, offers: Sequence[Offer]) -> list[Offer]:
        """Those among the offered that may be claimed now."""
        open_ones = [each for each in offers if self._may_take(each.head.run_id)]
        free = await self._quarantine.admit(open_ones)
        has_suspect = any(d.log.run.barren >= PROBATION_FROM for d in self._drives.values())
        return await self.probation.admit(free, has_suspect=has_suspect)

    def _may_take(self, run_id: str) -> bool:
        is_open = run_id not in self._drives and run_id not in self._damaged
        retry_at = self._misfits[run_id][0] if run_id in self._misfits else 0
        return is_open and retry_at <= self._setting.ports.clock.now_ms()

    # what does not fit

    def put_off(self, run_id: str, error: OutliveError) -> None:
        """This run does not fit our code: not again soon."""
        now = self._setting.ports.clock.now_ms()
        self._misfits[run_id] = (now + MISMATCH_RETRY_MS, error)

    def misfit(self, run_id: str) -> OutliveError | None:
        """Why this run was put off, if it was."""
        return self._misfits[run_id][1] if run_id in self._misfits else None

    def give_chance(self, run_id: str) -> None:
        """Somebody wants it driven: try again at once."""
        self._misfits.pop(run_id, None)

    def give_chances(self) -> None:
        """There is new code: try all of them again."""
        self._misfits.clear()
