"""Waiting for the outside: signals, requests, questions. Mail in, events out.

A signal is an event when it is read, whether or not anyone waits for it: it is kept for the next
one who does. A question is written down with the schema of its answer; the answer's mail id is the
question's id, so that the store itself refuses a second one. Changed code may ask something else at
the same place: as long as nobody has answered, the old question is closed and the new one asked
under an id of its own. What the flow must still write down (a question, its end, a reply) is owed
until the replay is over, then written once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any

from msgspec.structs import replace

from outlive.engine.context import RunContext
from outlive.engine.inputs import from_json, name_of
from outlive.engine.notices import question_of
from outlive.engine.place import RunStopped
from outlive.engine.replay import Comparing, Replay, changed_part, shown_question
from outlive.errors import ValueRefused
from outlive.model.events import (
    Answered,
    Event,
    MailRead,
    QuestionAsked,
    QuestionClosed,
    Replied,
    SignalReceived,
    SignalTaken,
)
from outlive.model.ids import changed_question, place_of_question
from outlive.model.mail import Answer, Signal
from outlive.model.run import Run

logger = logging.getLogger("outlive")

REASON_CHARS_MAX = 500


class _Wait:
    __slots__ = ("future", "hint", "id", "question")

    def __init__(self, wait_id: str, hint: Any, question: QuestionAsked | None):
        self.id, self.hint, self.question = wait_id, hint, question
        self.future: asyncio.Future[Any]


class Waits:
    """What one run waits for from outside."""

    def __init__(self, context: RunContext, run: Run, replay: Replay, comparing: Comparing) -> None:
        self._context, self._replay, self._comparing = context, replay, comparing
        self._signals: dict[str, deque[SignalReceived]] = {}
        self._waiting: dict[str, _Wait] = {}
        self._by_name: dict[str, deque[str]] = {}
        #: From the journal: asked and still open, and replied to.
        self._asked = dict(run.questions)
        self._replied: set[str] = set()
        self._closed: list[str] = []
        self._owed_replies: dict[str, Replied] = {}
        #: What the flow took while it was replayed, and what of it is not in the journal.
        self._taken: set[str] = set()
        self._owed_taken: list[SignalTaken] = []
        #: What the code asked while it was replayed, by place.
        self._known: dict[str, QuestionAsked] = {}
        #: Closed because the code asks something else at its place, under this id.
        self._replaced: dict[str, str] = {}

    def open_ids(self) -> list[str]:
        """What the flow waits for, by id."""
        return list(self._waiting)

    def signal_names(self) -> tuple[str, ...]:
        """The names of signals that the flow waits for."""
        return tuple(sorted(name for name, waiting in self._by_name.items() if waiting))

    def keep(self, signals: Iterable[SignalReceived]) -> None:
        """These were received in an earlier chapter and not taken."""
        for event in signals:
            self.deliver(event)

    def kept(self) -> list[SignalReceived]:
        """Received and not taken, in the order of their arrival."""
        signals = [event for queue in self._signals.values() for event in queue]
        return sorted(signals, key=lambda event: event.at)

    def cut(self) -> None:
        """The flow is stopped: nobody waits for anything."""
        for question in list(self._asked):
            self._close(question)
        self._waiting.clear()

    # what flow code calls

    async def signal(self, wait_id: str, name: str) -> SignalReceived:
        """The next signal of that name: kept from before, or to come."""
        kept = self._signals.get(name)
        if kept:
            return kept.popleft()
        waiting = self._by_name.setdefault(name, deque())
        waiting.append(wait_id)
        try:
            event: SignalReceived = await self._wait(_Wait(wait_id, None, None))
            return event
        finally:
            if wait_id in waiting:
                waiting.remove(wait_id)

    async def question(self, asked: QuestionAsked, hint: Any) -> tuple[Any, Answered]:
        """A human's answer."""
        if not self._context.is_live:
            self._known[asked.question] = asked
            asked = replace(asked, question=self._replay.question_at(asked.question))
        wait = _Wait(asked.question, hint, asked)
        try:
            event = await self._wait(wait)
        except asyncio.CancelledError:
            self._close(wait.id)
            raise
        try:
            return from_json(hint, event.value), event
        except ValueRefused as refused:
            # It fitted when it came: today's type is another.
            self._comparing.refuse(refused)
            raise RunStopped from None

    async def _wait(self, wait: _Wait) -> Any:
        wait.future = self._context.loop.create_future()
        self._waiting[wait.id] = wait
        if wait.question is not None and self._context.is_live:
            self._ask(wait.question)
        try:
            return await wait.future
        except asyncio.CancelledError:
            self._put_back(wait.future)
            raise
        finally:
            self._waiting.pop(wait.id, None)

    def _put_back(self, future: asyncio.Future[Any]) -> None:
        """Who waited was cancelled when the signal had just come: it is the next one's."""
        if future.done() and not future.cancelled() and not self._context.stopped:
            event = future.result()
            if isinstance(event, SignalReceived):
                self.deliver(event, is_first=True)

    def reply(self, reply: Replied) -> None:
        """Answer a request, once."""
        if reply.signal_id in self._replied:
            return
        self._replied.add(reply.signal_id)
        if self._context.is_live:
            self._note_reply(reply)
        else:
            self._owed_replies[reply.signal_id] = reply

    def was_refused(self, event: SignalReceived) -> bool:
        """The journal says so: it counts, whatever the flow waits for today."""
        refusal = None if self._context.is_live else self._replay.refusal_of(event.signal_id)
        if refusal is not None:
            self.reply(refusal)
        return refusal is not None

    def compare_type(self, event: SignalReceived, hint: Any) -> None:
        """The flow gets this signal as the type that it took it as, or no further."""
        recorded = None if self._context.is_live else self._replay.taken(event.signal_id)
        if recorded is not None and recorded.type_name != name_of(hint):
            self._comparing.differs(recorded, f"signal {event.name} as {name_of(hint)}")
            raise RunStopped

    def note_taken(self, signal_id: str, hint: Any) -> None:
        """The flow has a signal: write down its type, unless that is in the journal."""
        if hint is Any:
            return
        taken = SignalTaken(self._context.at(), signal_id, name_of(hint))
        if self._context.is_live:
            self._context.note(taken)
            return
        if self._replay.taken(signal_id) is None and self.may_refuse:
            self._owed_taken.append(taken)
        self._taken.add(signal_id)

    @property
    def may_refuse(self) -> bool:
        """A signal of another type can be kept from the flow.

        Earlier releases told the flow; where it has gone on from there, it is told again.
        """
        if self._context.is_live:
            return True
        return all(self._is_said(event) for event in self._replay.since(len(self._context.inbox)))

    def _is_said(self, event: Event) -> bool:
        """By the flow, before it came to where it is now."""
        match event:
            case Replied(signal_id=signal_id):
                return signal_id in self._owed_replies
            case SignalTaken(signal_id=signal_id):
                return signal_id in self._taken
            case QuestionAsked(question=question):
                return place_of_question(question) in self._known
            case QuestionClosed(question=question):
                asked_last = self._replay.question_at(place_of_question(question))
                return question in self._closed or question != asked_last
            case _:
                return False

    def _note_reply(self, reply: Replied) -> None:
        if reply.error is not None:
            what = f"run {self._context.run_id} refuses signal {reply.signal_id}"
            logger.warning("%s: %s", what, reply.error.message, extra={"sealed_as": what})
        self._context.note(replace(reply, at=self._context.at()))

    # what is owed to the journal

    def go_live(self) -> None:
        """The replay is over: write down what the last driver could not."""
        self._known.clear()
        for reply in self._owed_replies.values():
            self._note_reply(reply)
        self._owed_replies.clear()
        for taken in self._owed_taken:
            self._context.note(replace(taken, at=self._context.at()))
        self._owed_taken.clear()
        for question in self._closed:
            self._note_closed(question)
        self._closed.clear()
        for wait in self._waiting.values():
            if wait.question is not None:
                self._ask(wait.question)

    def _ask(self, question: QuestionAsked) -> None:
        if question.question not in self._asked:
            asked = replace(question, at=self._context.at())
            self._asked[question.question] = asked
            self._context.note(asked)
            if self._replay.known:
                self._answer_as_before(asked)
            if asked.question in self._asked:
                context = self._context
                shown = self._as_recorded(asked)
                wait = question_of(context.run_id, context.flow.name, [shown])
                context.when_durable(partial(context.env.notices.tell, wait))

    def _answer_as_before(self, asked: QuestionAsked) -> None:
        known = self._replay.known_answer(asked.question)
        if known is None:
            return
        before, answer = known
        asked = self._as_recorded(asked)
        if changed := changed_part(asked, before):
            self._differs(before, asked, changed)
            return
        del self._asked[asked.question]
        self._context.record(replace(answer, at=self._context.at(), question=asked.question))

    def _close(self, question: str) -> None:
        if self._context.stopped:
            return
        if self._context.is_live:
            self._note_closed(question)
        else:
            self._closed.append(question)

    def _note_closed(self, question: str) -> None:
        if self._asked.pop(question, None) is not None:
            self._context.note(QuestionClosed(self._context.at(), question))

    # mail and deliveries

    def compare(self, event: QuestionAsked) -> None:
        """A question in the journal: an answer to it must not be taken for one to another."""
        place = place_of_question(event.question)
        asked = self._known.get(place)
        if asked is None:
            self._comparing.differs(event)
        elif event.question != self._replay.question_at(place):
            return  # the code was changed since: it was closed unanswered, and replaced
        elif changed := changed_part(self._as_recorded(asked), event):
            if event.question in self._asked:
                self._replace(event.question)
            else:
                self._differs(event, self._as_recorded(asked), changed)

    def _replace(self, question: str) -> None:
        """Nobody has answered what the code no longer asks: close it, ask what it asks now."""
        anew = self._replaced[question] = changed_question(question)
        self._closed.append(question)
        wait = self._waiting.pop(question, None)
        if wait is not None and wait.question is not None:
            wait.id, wait.question = anew, replace(wait.question, question=anew)
            self._waiting[anew] = wait

    def _as_recorded(self, asked: QuestionAsked) -> QuestionAsked:
        return replace(asked, text=self._context.hider.text(asked.text))

    def _differs(self, event: QuestionAsked, asked: QuestionAsked, changed: str) -> None:
        """It was answered, or its flow has gone on without: what is asked now is something else."""
        before, now = (
            shown_question(each, with_schema=changed == "schema") for each in (event, asked)
        )
        now = f"{now} with other arguments" if changed == "arguments" else now
        self._comparing.differs(event, now, f"question {before}")

    def replayed(self, event: Replied) -> None:
        """A reply that is in the journal already."""
        self._owed_replies.pop(event.signal_id, None)
        self._replied.add(event.signal_id)

    def take_signal(self, letter: Signal, mail_id: str) -> None:
        """Somebody sent a signal."""
        at, signal_id = self._context.at(), mail_id.removeprefix("signal/")
        event = SignalReceived(at, letter.name, signal_id, letter.value, letter.is_json, letter.by)
        self._context.record(event, mail_id)

    def take_answer(self, letter: Answer, mail_id: str) -> None:
        """A human answered, perhaps too late."""
        at = self._context.at()
        wait = self._waiting.get(letter.question)
        if wait is None or letter.question not in self._asked:
            why = "nobody waits for this answer"
            if anew := self._replaced.get(letter.question):
                why = f"the code no longer asks {letter.question}: it asks {anew} instead"
            self._context.note(MailRead(at, mail_id, why), mail_id)
            return
        try:
            from_json(wait.hint, letter.value)
        except ValueRefused as refused:
            # A slip of the pen is no reason to stop: the question stays, and can be answered.
            why = f"refused: {refused}"[:REASON_CHARS_MAX]
            self._context.note(MailRead(at, mail_id, why), mail_id)
            return
        del self._asked[letter.question]
        answered = Answered(at, letter.question, letter.value, letter.by, mail_id)
        self._context.record(answered, mail_id)

    def deliver(self, event: SignalReceived | Answered, *, is_first: bool = False) -> None:
        """Wake who waits for it; a signal that nobody waits for is kept."""
        if isinstance(event, Answered):
            wait = self._waiting.get(event.question)
            if wait is not None and not wait.future.done():
                wait.future.set_result(event)
            return
        queue = self._by_name.get(event.name)
        while queue:
            wait = self._waiting.get(queue.popleft())
            if wait is not None and not wait.future.done():
                wait.future.set_result(event)
                return
        kept = self._signals.setdefault(event.name, deque())
        if is_first:
            kept.appendleft(event)
        else:
            kept.append(event)
