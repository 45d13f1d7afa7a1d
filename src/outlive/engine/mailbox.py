"""Mail to events: each letter once, in order, and not before the replay is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, assert_never

from outlive.engine.children import Children
from outlive.engine.effects import EffectRunner
from outlive.engine.ops import Recorder
from outlive.engine.waiting import Waiting
from outlive.engine.waits import Waits
from outlive.model.events import CancelRequested, MailRead
from outlive.model.mail import Answer, Cancel, ChildNews, Nudge, Resolve, Signal, decode_letter
from outlive.store import Mail


class Receiver(Recorder, Protocol):
    """Whom the letters are for."""

    waiting: Waiting
    waits: Waits
    children: Children
    effects: EffectRunner

    @property
    def takes_mail(self) -> bool:
        """The replay is over and everything open has been begun."""
        ...


class Mailbox:
    """The mail of one run."""

    def __init__(self, drive: Receiver) -> None:
        self._drive = drive
        self._unopened: deque[Mail] = deque()
        self._taken: set[str] = set()

    def take(self, mail: Sequence[Mail]) -> None:
        """Somebody brought mail; what was brought before counts once."""
        for each in mail:
            if each.mail_id not in self._taken:
                self._taken.add(each.mail_id)
                self._unopened.append(each)
        self.open()

    def open(self) -> None:
        """Turn what is there into events."""
        while self._unopened and self._drive.takes_mail:
            self._read(self._unopened.popleft())

    def _read(self, mail: Mail) -> None:
        drive, letter = self._drive, decode_letter(mail.body)
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
                drive.record(CancelRequested(drive.at(), by), mail.mail_id)
            case Nudge(why=why):
                drive.note(MailRead(drive.at(), mail.mail_id, why), mail.mail_id)
            case _:
                assert_never(letter)

    def before(self, posted_before: int, callback: Callable[[], None]) -> None:
        """Call once mail posted before an instant has been taken: it beats the timer."""
        if self._drive.waits.open_ids() or self._drive.children.open_ids():
            self._drive.env.host.create_task(self._fetch(posted_before, callback))
        else:
            callback()

    async def _fetch(self, posted_before: int, callback: Callable[[], None]) -> None:
        mail = await self._drive.env.peer.mail_of(self._drive.run_id)
        self.take([each for each in mail if each.posted_at <= posted_before])
        if not self._drive.stopped:
            callback()
