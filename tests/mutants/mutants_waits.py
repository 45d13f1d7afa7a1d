"""Known-bad variants of waiting, ending badly, other runs and chapters."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from outlive.engine import exit as leaving
from outlive.engine import waits
from outlive.engine.drive import Drive
from outlive.engine.end import Deadline, Ending
from outlive.engine.exit import Leaving
from outlive.engine.mailbox import Mailbox
from outlive.engine.waits import Waits
from outlive.envelope import bare
from outlive.journal import mail as letters
from outlive.journal.seal.sealed_store import SealedStore
from outlive.model import schedules
from outlive.model.events import (
    Answered,
    ChapterBegan,
    Event,
    ParentTold,
    RunCancelled,
    RunCompleted,
)
from outlive.model.mail import Answer, ChildNews
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Entry, Mail
from outlive.worker import claim as loading

# ---------------------------------------------------------------- schedules


def instant_not_in_the_id(patch: pytest.MonkeyPatch) -> None:
    """What a schedule fires is named by the schedule alone."""
    patch.setattr(schedules, "run_id_of", lambda name, instant: f"{name}@")


# ---------------------------------------------------------------- mail


def mail_lost_at_park(patch: pytest.MonkeyPatch) -> None:
    """A run that goes to sleep takes along what was posted meanwhile, unread."""
    real = MemoryStore._extend

    def extend(self: MemoryStore, journal: Any, entry: Entry) -> None:
        real(self, journal, entry)
        unread = [name for name, mail in journal.mail.items() if mail is not None]
        if entry.lease == "free" and journal.header.ended_at is None and unread:
            journal.mail.update(dict.fromkeys(unread))
            head = journal.head
            journal.head = msgspec.structs.replace(head, consumed=head.consumed + len(unread))

    patch.setattr(MemoryStore, "_extend", extend)


def mail_check_off(patch: pytest.MonkeyPatch) -> None:
    """A letter counts wherever it is found, whatever its checksum says, or that it has no seal."""
    sealed_mail_check_off(patch)
    patch.setattr(letters, "disclose", lambda run_id, mail_id, enclosed: bare(enclosed))


def sealed_mail_check_off(patch: pytest.MonkeyPatch) -> None:
    """A run that is sealed takes mail that is not."""

    async def takes_plain_mail(self: SealedStore, run_id: str) -> bool:
        return True

    patch.setattr(SealedStore, "_takes_plain_mail", takes_plain_mail)


def signal_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """What was posted last is read first."""
    real = Mailbox.take

    def take(self: Mailbox, mail: Sequence[Mail]) -> None:
        real(self, list(reversed(mail)))

    patch.setattr(Mailbox, "take", take)


def answer_taken_twice(patch: pytest.MonkeyPatch) -> None:
    """Every answer counts, whether or not somebody still waits for one."""

    def take_answer(self: Waits, letter: Answer, mail_id: str) -> None:
        at = self._context.at()
        self._context.record(Answered(at, letter.question, letter.value, letter.by), mail_id)

    patch.setattr(Waits, "take_answer", take_answer)


def text_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A question is its place: whatever stood there was answered."""
    patch.setattr(waits, "changed_part", lambda asked, recorded: "")


# ---------------------------------------------------------------- ends


def undo_before_settling(patch: pytest.MonkeyPatch) -> None:
    """What happened is undone as soon as the flow is over, whatever is still in doubt."""

    def is_ending(self: Drive) -> bool:
        busy = self.context.stopped or self.children.busy
        running = self.waiting.unsettled and self.ending._to_undo is not None
        return not busy and not running and self.flow_is_over()

    patch.setattr(Drive, "_is_ending", is_ending)


def deadline_ignored_after_restart(patch: pytest.MonkeyPatch) -> None:
    """A deadline that passed while nobody drove the run is forgotten."""
    real = Deadline.arm

    def arm(self: Deadline) -> None:
        at, self._at = self._at, self._at
        if at is not None and at <= self._context.env.ports.clock.now_ms() and self._timer is None:
            return
        real(self)

    patch.setattr(Deadline, "arm", arm)


# ---------------------------------------------------------------- other runs


def child_notified_never(patch: pytest.MonkeyPatch) -> None:
    """A child writes down that it told its parent, and does not."""

    async def tell_parent(env: Any, log: Any, run: Any) -> bool:
        log.append(ParentTold(max(run.at, env.ports.clock.now_ms() - run.start.started_at)))
        return True

    patch.setattr(leaving, "tell_parent", tell_parent)
    patch.setattr(loading, "tell_parent", tell_parent)


def parent_told_too_early(patch: pytest.MonkeyPatch) -> None:
    """A parent hears how its child ended before that is durable."""
    real = Leaving.end

    def end(self: Leaving, event: Event) -> None:
        drive = self._context
        start = drive.start_event
        if start.is_awaited and start.parent is not None:
            news = _news(drive.run_id, event)
            drive.env.host.create_task(_post(drive.env.kin, start.parent, news))
        real(self, event)

    patch.setattr(Leaving, "end", end)


async def _post(kin: Any, parent: str, news: ChildNews) -> None:
    await kin.post(parent, f"child/{news.child_id}", news)


def _news(child_id: str, event: Any) -> ChildNews:
    if isinstance(event, RunCompleted):
        return ChildNews(child_id, "completed", event.value, None)
    status = "cancelled" if isinstance(event, RunCancelled) else "failed"
    return ChildNews(child_id, status, b"", event.error)


# ---------------------------------------------------------------- chapters


def carry_drops_mail(patch: pytest.MonkeyPatch) -> None:
    """The next chapter does not get what was received and not taken."""
    real = Ending._begin_chapter

    def begin_chapter(self: Ending, args: bytes) -> ChapterBegan:
        return msgspec.structs.replace(real(self, args), signals=[])

    patch.setattr(Ending, "_begin_chapter", begin_chapter)


def undone_in_order(patch: pytest.MonkeyPatch) -> None:
    """What happened first is undone first."""
    real = Ending.undo

    def undo(self: Ending, event: Any) -> None:
        def next_one(ended: Event | None = None) -> None:
            if self._to_undo:
                self._to_undo = deque(reversed(self._to_undo))
            del self._undo_next  # type: ignore[method-assign]
            self._undo_next(ended)

        self._undo_next = next_one  # type: ignore[method-assign]
        real(self, event)

    patch.setattr(Ending, "undo", undo)
