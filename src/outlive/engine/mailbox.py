"""Mail to events: each letter once, in order, and not before the replay is over."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, assert_never

from outlive.engine.children import Children
from outlive.engine.effects import EffectRunner
from outlive.engine.ops import Recorder
from outlive.engine.peers import insist
from outlive.engine.pending import PendingOps
from outlive.engine.timers import FlowTimers
from outlive.engine.waits import Waits
from outlive.journal.mail import READ_BEFORE, Unreadable, mail_ids, read_letter
from outlive.model.events import (
    CancelRequested,
    ChapterBegan,
    Event,
    MailRead,
)
from outlive.model.mail import Answer, Cancel, ChildNews, Nudge, Resolve, Signal
from outlive.stores.types import Mail

logger = logging.getLogger("outlive")


class Receiver(Recorder, Protocol):
    """Whom the letters are for."""

    waiting: PendingOps
    waits: Waits
    children: Children
    effects: EffectRunner
    timers: FlowTimers
    chapter: ChapterBegan | None

    @property
    def takes_mail(self) -> bool:
        """The replay is over and everything that was open has been begun."""
        ...


class Mailbox:
    """The mail of one run."""

    def __init__(self, drive: Receiver) -> None:
        self._drive = drive
        self._unopened: deque[Mail] = deque()
        self._taken: set[str] = set()
        #: What the journal says was read before this drive began.
        self._past: set[str] = set()
        #: Timers that are due once mail posted before them has been taken.
        self._due: deque[tuple[int, Callable[[], None]]] = deque()
        self._is_fetching = False
        #: Letters are being read, further up the stack.
        self.is_open = False

    def remember(self, events: Sequence[Event]) -> None:
        """The events of the run so far: whatever they were made of does not count again."""
        self._past = set(mail_ids(events))
        self._drive.children.is_news_lost = any(
            isinstance(each, MailRead) and each.unreadable is not None for each in events
        )

    def take(self, mail: Sequence[Mail]) -> None:
        """Somebody brought mail; what was brought before counts once."""
        for each in mail:
            if each.mail_id not in self._taken:
                self._taken.add(each.mail_id)
                self._unopened.append(each)
        self._drive.attend()

    @property
    def unread(self) -> Sequence[Mail]:
        """What was brought and not opened."""
        return tuple(self._unopened)

    def open(self) -> None:
        """Turn what is there into events. Timers due before a letter was posted come before it."""
        self.is_open = True
        try:
            while self._unopened and self._drive.takes_mail:
                mail = self._unopened.popleft()
                self._drive.timers.fire_before(mail.posted_at)
                if self._drive.takes_mail:
                    self._read(mail)
        finally:
            self.is_open = False

    def _read(self, mail: Mail) -> None:
        drive = self._drive
        letter = read_letter(drive.run_id, mail)
        if mail.mail_id in self._past and not isinstance(letter, Unreadable):
            letter = Unreadable(READ_BEFORE, mail.body)
        match letter:
            case Resolve(step=step):
                drive.effects.resolve(drive.waiting.find(step), letter, mail.mail_id)
            case Signal():
                drive.waits.take_signal(letter, mail.mail_id)
            case Answer():
                drive.waits.take_answer(letter, mail.mail_id)
            case ChildNews():
                drive.children.take_news(letter, mail.mail_id)
            case Cancel(by=by):
                drive.record(CancelRequested(drive.at(), by, mail.mail_id), mail.mail_id)
            case Nudge(why=why):
                drive.note(MailRead(drive.at(), mail.mail_id, why), mail.mail_id)
            case Unreadable():
                self._put_aside(mail, letter)
            case _:
                assert_never(letter)

    def _put_aside(self, mail: Mail, found: Unreadable) -> None:
        """Mail that nobody posted like that: it is kept in the journal, and the run goes on."""
        drive = self._drive
        what = f"mail {mail.mail_id!r} can't be read: {found.why}"
        logger.error("run %s: %s; it is kept aside, and the run goes on", drive.run_id, what)
        event = MailRead(drive.at(), mail.mail_id, f"can't be read: {found.why}", found.body)
        drive.note(event, mail.mail_id)
        drive.children.ask_again()

    def before(self, posted_before: int, callback: Callable[[], None]) -> None:
        """Call once mail posted before an instant has been taken: it beats the timer."""
        waits = self._drive.waits.open_ids() or self._drive.children.open_ids()
        if not waits and not self._due:
            callback()
            return
        # One after the other, however long each look into the store takes.
        self._due.append((posted_before, callback))
        if not self._is_fetching:
            self._is_fetching = True
            self._drive.env.host.create_task(self._fetch())

    @property
    def _is_kept(self) -> bool:
        """The run is about to leave, and its mail is the next driver's to read first."""
        return self._drive.draining and bool(self._unopened)

    async def _fetch(self) -> None:
        drive = self._drive
        while self._due:
            asked = len(self._due)
            look = partial(drive.env.peer.mail_of, drive.run_id, drive.chapter)
            mail = await insist(look, lambda: drive.stopped)
            for _ in range(asked):
                posted_before, callback = self._due.popleft()
                if mail is not None and not drive.stopped:
                    self.take(posted_by(mail, posted_before))
                if mail is not None and not drive.stopped and not self._is_kept:
                    callback()
        self._is_fetching = False


def posted_by(mail: Sequence[Mail], instant: int) -> Sequence[Mail]:
    """What was posted by then, and all before it: a clock set back changes no order."""
    last = max((n for n, each in enumerate(mail, 1) if each.posted_at <= instant), default=0)
    return mail[:last]
