"""Mail to events: each letter once, in order, and not before the replay is over."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

from outlive.engine.children import Children
from outlive.engine.context import RunContext
from outlive.engine.effects import EffectRunner
from outlive.engine.peers import insist
from outlive.engine.timers import FlowTimers
from outlive.engine.waits import Waits
from outlive.journal.mail import READ_BEFORE, Unreadable, mail_ids, read_letter
from outlive.model.events import (
    CancelRequested,
    Event,
    MailRead,
)
from outlive.model.mail import Answer, Cancel, ChildNews, Nudge, Resolve, Signal
from outlive.stores.types import Mail

logger = logging.getLogger("outlive")


class Mailbox:
    """The mail of one run."""

    def __init__(
        self,
        context: RunContext,
        effects: EffectRunner,
        timers: FlowTimers,
        waits: Waits,
        children: Children,
    ) -> None:
        self._context, self._effects, self._timers = context, effects, timers
        self._waits, self._children = waits, children
        context.after_mail = self.before
        #: Brought, and not read.
        self.unopened: deque[Mail] = deque()
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
        for each in events:
            if type(each) is MailRead and each.unreadable is not None:
                self._children.is_news_lost = True

    def take(self, mail: Sequence[Mail]) -> None:
        """Somebody brought mail; what was brought before counts once."""
        for each in mail:
            if each.mail_id not in self._taken:
                self._taken.add(each.mail_id)
                self.unopened.append(each)
        self._context.attend()

    @property
    def unread(self) -> Sequence[Mail]:
        """What was brought and not opened."""
        return tuple(self.unopened)

    def open(self) -> None:
        """Turn what is there into events. Timers due before a letter was posted come before it."""
        self.is_open = True
        try:
            while self.unopened and self._context.takes_mail:
                mail = self.unopened.popleft()
                self._timers.fire_before(mail.posted_at)
                if self._context.takes_mail:
                    self._read(mail)
        finally:
            self.is_open = False

    def _read(self, mail: Mail) -> None:
        context = self._context
        letter = read_letter(context.run_id, mail)
        if mail.mail_id in self._past and not isinstance(letter, Unreadable):
            letter = Unreadable(READ_BEFORE, mail.body)
        match letter:
            case Resolve(step=step):
                self._effects.resolve(context.waiting.find(step), letter, mail.mail_id)
            case Signal():
                self._waits.take_signal(letter, mail.mail_id)
            case Answer():
                self._waits.take_answer(letter, mail.mail_id)
            case ChildNews():
                self._children.take_news(letter, mail.mail_id)
            case Cancel(by=by):
                context.record(CancelRequested(context.at(), by, mail.mail_id), mail.mail_id)
            case Nudge(why=why):
                context.note(MailRead(context.at(), mail.mail_id, why), mail.mail_id)
            case Unreadable():
                self._put_aside(mail, letter)
            case _:
                assert_never(letter)

    def _put_aside(self, mail: Mail, found: Unreadable) -> None:
        """Mail that nobody posted like that: it is kept in the journal, and the run goes on."""
        context = self._context
        what = f"mail {mail.mail_id!r} can't be read: {found.why}"
        logger.error("run %s: %s; it is kept aside, and the run goes on", context.run_id, what)
        event = MailRead(context.at(), mail.mail_id, f"can't be read: {found.why}", found.body)
        context.note(event, mail.mail_id)
        self._children.ask_again()

    def before(self, posted_before: int, callback: Callable[[], None]) -> None:
        """Call once mail posted before an instant has been taken: it beats the timer."""
        waits = self._waits.open_ids() or self._children.open_ids()
        if not waits and not self._due:
            callback()
            return
        # One after the other, however long each look into the store takes.
        self._due.append((posted_before, callback))
        if not self._is_fetching:
            self._is_fetching = True
            self._context.env.host.create_task(self._fetch())

    @property
    def _is_kept(self) -> bool:
        """The run is about to leave, and its mail is the next driver's to read first."""
        return self._context.draining and bool(self.unopened)

    async def _fetch(self) -> None:
        context = self._context
        while self._due:
            asked = len(self._due)
            look = partial(context.env.peer.mail_of, context.run_id, context.chapter)
            mail = await insist(look, lambda: context.stopped)
            for _ in range(asked):
                posted_before, callback = self._due.popleft()
                if mail is not None and not context.stopped:
                    self.take(posted_by(mail, posted_before))
                if mail is not None and not context.stopped and not self._is_kept:
                    callback()
        self._is_fetching = False


def posted_by(mail: Sequence[Mail], instant: int) -> Sequence[Mail]:
    """What was posted by then, and all before it: a clock set back changes no order."""
    last = max((n for n, each in enumerate(mail, 1) if each.posted_at <= instant), default=0)
    return mail[:last]
