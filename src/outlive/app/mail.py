"""Mail to runs: signals, answers, cancellations, verdicts on doubts, retries.

Only a run's driver writes its journal; everybody else posts mail. Mail that the driver could not
use is refused before it is posted. The reason comes from durable facts, so every process refuses
alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from outlive.app.reader import StoreReader
from outlive.app.streams import StreamFeeds
from outlive.engine.inputs import encode_own
from outlive.errors import (
    AnswerRefused,
    QuestionNotOpen,
    RetryRefused,
    RunEnded,
    RunNotFound,
    StepNotInDoubt,
    UsageError,
    ValueRefused,
)
from outlive.journal.codec.restore import read_whole
from outlive.journal.fork import events_of
from outlive.journal.headers import header_of, next_entry
from outlive.journal.lane import Lane
from outlive.journal.mail import Outbox, read_letter, write_letter
from outlive.journal.reader import read_events
from outlive.model.decide import absence_counts_from
from outlive.model.events import (
    Answered,
    EffectDoubted,
    EffectIntended,
    EffectRaised,
    Event,
    MailRead,
    QuestionAsked,
    QuestionClosed,
    RunRetried,
    RunUndoing,
)
from outlive.model.mail import (
    Answer,
    Cancel,
    Letter,
    Nudge,
    Resolve,
    Signal,
    Verdict,
    check_signal_name,
)
from outlive.model.replay import failure_of
from outlive.model.run import OpenEffect, Run, apply, fold
from outlive.model.schema import misfit, wanted
from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.stores.types import LAST_CHAPTER, MAIL_BYTES_MAX, Entry, Posted, Reading

T = TypeVar("T")
ByLoop: TypeAlias = WeakKeyDictionary[asyncio.AbstractEventLoop, T]
#: Posts mail to a run: its id, the mail's id, the letter.
Post: TypeAlias = Callable[[str, str, bytes], Awaitable[Posted]]

#: Characters of a question that a refusal repeats.
TEXT_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question that a run asks a human."""

    #: The id to give to ``answer``.
    id: str
    #: The question, as a person reads it.
    text: str
    #: JSON schema of the answer; None: any value.
    schema: dict[str, Any] | None
    #: When it was asked.
    asked_at: datetime
    #: Who should answer, if the flow says so.
    by: str | None = None
    #: When its time limit passes, if it has one.
    until: datetime | None = None
    #: Digest of the arguments that an approval is bound to; None for any other question.
    digest: str | None = None


class Letterbox:
    """Posts mail to one run."""

    def __init__(self, run_id: str, store: Store, lane: Lane, ports: Ports, post: Post) -> None:
        self.run_id = run_id
        self.store, self.lane = store, lane
        self._ports, self._send = ports, post
        #: Called when mail was posted, so that a worker here reads it at once.
        self.on_post: Callable[[], None] = lambda: None
        #: The letter as it may be stored.
        self.redact: Callable[[Letter], Letter] = lambda letter: letter
        #: The streams that are read in this process.
        self.feeds = StreamFeeds()

    def new_id(self) -> str:
        """A random id."""
        return self._ports.entropy(8).hex()

    # mail

    async def signal(
        self, name: str, value: object, signal_id: str | None = None, by: str = ""
    ) -> bool:
        """Send a signal; False if one of that id was sent before, which changes nothing."""
        letter = Signal(check_signal_name(name), encode_own(value), by=check_by(by))
        return await self._signal(letter, signal_id)

    async def signal_json(
        self, name: str, raw: bytes, signal_id: str | None = None, by: str = ""
    ) -> bool:
        """``signal`` with JSON, from a caller that does not have the flow's types."""
        letter = Signal(check_signal_name(name), raw, True, check_by(by))
        return await self._signal(letter, signal_id)

    async def _signal(self, letter: Signal, signal_id: str | None) -> bool:
        made = self.new_id() if signal_id is None else check_signal_name(signal_id, "a signal's id")
        return await self._post(f"signal/{made}", letter)

    async def cancel(self, by: str = "") -> None:
        """Ask the run to stop; it does at its next durable point."""
        await self._post(f"cancel/{self.new_id()}", Cancel(check_by(by)))

    async def nudge(self, why: str) -> None:
        """Make the run due now; a run that has ended stays as it is."""
        mail_id = f"nudge/{self.new_id()}"
        letter = write_letter(self.run_id, mail_id, Nudge(why))
        if await self._send(self.run_id, mail_id, letter) == "unknown":
            raise RunNotFound(self.run_id)
        self.on_post()

    # questions

    async def questions(self) -> list[Question]:
        """The open questions, the oldest first."""
        reading = await self._read(LAST_CHAPTER)
        return open_questions(reading, await self.lane(events_of(self.store, reading)))

    async def answer(
        self, value: object, question: str | Question | None = None, by: str = ""
    ) -> Question:
        """Answer a question: the only one, or the one that is named.

        Raises:
            QuestionNotOpen: the run does not ask this, or asks several questions.
            AnswerRefused: the answer does not fit the question's schema.
            RunEnded: the run is over.
        """
        check_by(by)
        reading = await self._read(LAST_CHAPTER)
        events = await self.lane(events_of(self.store, reading))
        run = fold(events)
        if reading.header.ended_at is not None:
            raise RunEnded(self.run_id, reading.header.status)
        asked = self._find(run, events, reading, question)
        raw = _fitting(asked, value)
        mail_id = _answer_id(events, reading.head.seq, asked.question)
        if not await self._post(mail_id, Answer(asked.question, raw, by)):
            raise QuestionNotOpen(
                f"question {asked.question} of run {self.run_id} was answered before; "
                "only the first answer counts"
            )
        return _shown(run, asked)

    def _find(
        self,
        run: Run,
        events: Sequence[Event],
        reading: Reading,
        wanted: str | Question | None,
    ) -> QuestionAsked:
        waiting = _open(run, reading)
        if wanted is None:
            return self._only(waiting)
        name = wanted.id if isinstance(wanted, Question) else wanted
        asked = waiting.get(name)
        if asked is None:
            why = _why_closed(events, reading, name)
            raise QuestionNotOpen(f"run {self.run_id}: {why}; {_listed(waiting)}")
        if isinstance(wanted, Question) and _shown(run, asked) != wanted:
            raise QuestionNotOpen(
                f"run {self.run_id} asks {name} anew, not as it was shown "
                f"({_brief(asked)} now); look at it again before you answer"
            )
        self._check_limit(asked)
        return asked

    def _only(self, waiting: dict[str, QuestionAsked]) -> QuestionAsked:
        if not waiting:
            raise QuestionNotOpen(
                f"run {self.run_id} asks nothing right now; "
                f"`outlive show {self.run_id}` tells what it waits for"
            )
        if len(waiting) > 1:
            raise QuestionNotOpen(
                f"run {self.run_id} asks {len(waiting)} questions, name one (question_id=, or "
                f"--question on the command line); {_listed(waiting)}"
            )
        (asked,) = waiting.values()
        self._check_limit(asked)
        return asked

    def _check_limit(self, asked: QuestionAsked) -> None:
        if asked.until is not None and self._ports.clock.now_ms() > asked.until:
            raise QuestionNotOpen(
                f"question {asked.question} of run {self.run_id} expired at "
                f"{_instant(asked.until).isoformat(timespec='seconds')}; its flow goes on without"
            )

    # the store

    async def _post(self, mail_id: str, letter: Letter) -> bool:
        body = write_letter(self.run_id, mail_id, self.redact(letter))
        if len(body) > MAIL_BYTES_MAX:
            raise ValueRefused(f"{len(body)} bytes are more than the {MAIL_BYTES_MAX} of a mail")
        answer = await self._send(self.run_id, mail_id, body)
        if answer in ("posted", "already"):
            self.on_post()
            return answer == "posted"
        raise RunEnded(self.run_id, (await self._read(1 << 62)).header.status)

    async def _read(self, after: int) -> Reading:
        reading = await self.lane(read_whole(self.store, self.run_id, after))
        if reading is None:
            raise RunNotFound(self.run_id)
        return reading


class Letterboxes:
    """The letterboxes of an app's runs. ``on_post`` is told of each run that got mail."""

    def __init__(self, reader: StoreReader, on_post: Callable[[str], None]) -> None:
        self._reader, self._on_post = reader, on_post
        #: By event loop: mail that is posted at the same time is written together.
        self._outboxes: ByLoop[Outbox] = WeakKeyDictionary()
        self._feeds = StreamFeeds()

    def of(self, run_id: str) -> Letterbox:
        """The letterbox of a run."""
        reader = self._reader
        letterbox = Letterbox(run_id, reader.store, reader.lane, reader.ports, self._post)
        letterbox.on_post = partial(self._on_post, run_id)
        letterbox.redact, letterbox.feeds = reader.hider.letter, self._feeds
        return letterbox

    async def nudge(self, run_id: str, why: str) -> None:
        """Make a run due now."""
        await self.of(run_id).nudge(why)

    async def resolve(
        self, run_id: str, step: str, verdict: Verdict, value: bytes, by: str = ""
    ) -> None:
        """Settle an effect in doubt by a human's word.

        Raises:
            StepNotInDoubt: there is nothing to settle, or somebody settled it before.
        """
        reader, now = self._reader, self._reader.ports.clock.now_ms()
        check_by(by)
        mail_id, letter = resolve_letter(await reader.read(run_id), step, verdict, value, now)
        letter = msgspec.structs.replace(letter, by=by)
        body = write_letter(run_id, mail_id, reader.hider.letter(letter))
        answer = await self._post(run_id, mail_id, body)
        if answer != "posted":
            raise StepNotInDoubt(f"effect {step} of run {run_id} was answered before ({answer})")
        self._on_post(run_id)

    async def _post(self, run_id: str, mail_id: str, body: bytes) -> Posted:
        self._reader.check_open()
        own = Outbox(self._reader.store, self._reader.lane, asyncio.create_task)
        outbox = self._outboxes.setdefault(asyncio.get_running_loop(), own)
        return await outbox.post(run_id, mail_id, body)


def open_questions(reading: Reading, events: Sequence[Event]) -> list[Question]:
    """The open questions of a run, the oldest first."""
    run = fold(events)
    return [_shown(run, asked) for asked in _open(run, reading).values()]


def check_by(by: object) -> str:
    """Check the name of the person who did it; empty: unknown."""
    if type(by) is not str or (by and not by.isprintable()):
        raise UsageError(f"`by` says who did it, as a printable text, not {by!r}")
    return by


def _open(run: Run, reading: Reading) -> dict[str, QuestionAsked]:
    """Open questions, without those whose answer is posted and not read yet."""
    answered = {letter.question for letter in _unread(reading)}
    return {name: asked for name, asked in run.questions.items() if name not in answered}


def _unread(reading: Reading) -> list[Answer]:
    letters = (read_letter(reading.head.run_id, mail) for mail in reading.mail)
    return [letter for letter in letters if isinstance(letter, Answer)]


def _answer_id(events: Sequence[Event], last: int, question: str) -> str:
    """The id of the answer's mail; the store refuses a second mail of the same id.

    A question that is asked again, or whose answer the driver refused, gets another id.
    """
    mail_id = f"answer/{question}"
    for seq, event in zip(range(last, 0, -1), reversed(events), strict=False):
        if isinstance(event, QuestionAsked) and event.question == question:
            return f"{mail_id}/{seq}"
        if isinstance(event, MailRead) and event.mail_id.startswith(f"{mail_id}/"):
            return f"{mail_id}/{seq}"
    return mail_id


def _why_closed(events: Sequence[Event], reading: Reading, question: str) -> str:
    if any(letter.question == question for letter in _unread(reading)):
        return f"question {question} was answered; the answer waits to be read"
    for event in reversed(events):
        if isinstance(event, Answered) and event.question == question:
            by = f" by {event.by}" if event.by else ""
            return f"question {question} was answered{by}; only the first answer counts"
        if isinstance(event, QuestionClosed) and event.question == question:
            return f"question {question} is closed: its flow no longer waits for an answer"
    return f"it never asked {question!r}"


def _listed(waiting: dict[str, QuestionAsked]) -> str:
    if not waiting:
        return "nothing is asked right now"
    return "open: " + ", ".join(f"{name} {_brief(asked)}" for name, asked in waiting.items())


def _brief(asked: QuestionAsked) -> str:
    text = asked.text if len(asked.text) <= TEXT_SHOWN else f"{asked.text[: TEXT_SHOWN - 1]}…"
    return f"“{text}”"


def _fitting(asked: QuestionAsked, value: object) -> bytes:
    """The answer as JSON; refused if it does not fit."""
    schema = msgspec.json.decode(asked.schema) if asked.schema else None
    try:
        raw = msgspec.json.encode(value, enc_hook=_by_its_own_rules)
    except (TypeError, ValueError, RecursionError) as error:
        raise AnswerRefused(asked.question, f"it is not JSON: {error}", wanted(schema)) from None
    why = None if schema is None else misfit(msgspec.json.decode(raw), schema)
    if why is not None:
        raise AnswerRefused(asked.question, why, wanted(schema))
    return raw


def _by_its_own_rules(value: Any) -> Any:
    """Encode an object that msgspec does not know: a pydantic model."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__qualname__} has no JSON")
    return dump(mode="json")


def _shown(run: Run, asked: QuestionAsked) -> Question:
    return Question(
        id=asked.question,
        text=asked.text,
        schema=msgspec.json.decode(asked.schema) if asked.schema else None,
        asked_at=_instant(run.start.started_at + asked.at),
        by=asked.by,
        until=None if asked.until is None else _instant(asked.until),
        digest=asked.digest.hex() if asked.digest else None,
    )


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def resolve_letter(
    reading: Reading, step: str, verdict: Verdict, value: bytes, now: int
) -> tuple[str, Resolve]:
    """The mail that settles this doubt, and its id; each doubt takes one such mail.

    Raises:
        StepNotInDoubt: there is nothing to settle, or it is too early to tell.
    """
    events = read_events(reading)
    effect = fold(events).effects.get(step)
    run_id = reading.head.run_id
    if effect is None or effect.retry_at is not None:
        raise StepNotInDoubt(
            f"run {run_id} has no effect {step!r} in doubt; `outlive show` lists its doubts"
        )
    if effect.doubt is None and reading.head.worker is not None:
        raise StepNotInDoubt(f"effect {step} is being attempted right now; wait for its end")
    if verdict == "not_happened":
        check_over(effect, now)
    seq = max(position for position, event in enumerate(events, 1) if _asks_anew(event, step))
    return f"resolve/{step}/{seq}", Resolve(step, effect.attempt, verdict, value, effect.seq)


def check_over(effect: OpenEffect, now: int) -> None:
    """Refuse "not happened" while a driver that only paused may still perform the effect.

    Raises:
        StepNotInDoubt: it is too early to tell.
    """
    seconds = (absence_counts_from(effect, 0) - now) / 1000
    if seconds > 0:
        raise StepNotInDoubt(
            f"effect {effect.intent.step} may still be running for {seconds:.0f} s: its driver was "
            "silent, not dead; look again after that"
        )


def _asks_anew(event: Event, step: str) -> bool:
    """Whether a new verdict counts after this: a new attempt or doubt, or a refused verdict."""
    if isinstance(event, MailRead):
        return event.mail_id.startswith(f"resolve/{step}/")
    return isinstance(event, (EffectIntended, EffectDoubted)) and event.step == step


def retry_entry(
    reading: Reading, *, now: int, by: str, events: Sequence[Event] | None = None
) -> Entry:
    """The entry that makes a failed run due again; for a fork, ``events`` has the shared ones too.

    Raises:
        RetryRefused: the run did not fail, or must not be tried again.
    """
    run_id = reading.head.run_id
    events = read_events(reading) if events is None else events
    run = fold(events)
    if run.status != "failed" or run.tells_parent:
        raise RetryRefused(
            run_id, f"it is {run.shown_status}, and only failed runs are tried again"
        )
    failure = failure_of(events, run.seq - len(events) + 1)
    if failure is None:
        assert any(isinstance(event, RunUndoing) for event in events), "or it did not fail"
        raise RetryRefused(run_id, "its effects were undone; start another run")
    seq, event = failure
    if isinstance(event, EffectRaised) and event.happened is not False:
        why = f"it failed of effect {event.step}, which happened or may have"
        raise RetryRefused(run_id, f"{why}; see to that, and start another run")
    at = max(run.at, now - run.start.started_at)
    retried = RunRetried(at, seq, by)
    apply(run, retried)
    header = header_of(run, reading.header.chapter_link)
    return next_entry(reading.head, retried, header, epoch=reading.head.epoch)
