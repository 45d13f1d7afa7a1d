"""Headers: the searchable summary of a run in the store, made from its fold."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from outlive.errors import RunIdTaken
from outlive.journal.codec.scalars import READERS
from outlive.journal.codec.values import Values, parted_body
from outlive.journal.lane import Lane
from outlive.journal.record import FORMAT, LINK_START, pack
from outlive.model.events import Event, Fault, QuestionAsked, encode_events
from outlive.model.kinds import KIND_BITS
from outlive.model.queues import QueuePlace
from outlive.model.run import ENDED, Run
from outlive.model.shared import Brief
from outlive.stores.seam import Store
from outlive.stores.types import Entry, Head, Header

T = TypeVar("T")

_NO_PLACE = QueuePlace()
#: The prefix of a sealed store's text, which only a key opens.
HIDDEN = "~1:"


def header_of(run: Run, chapter_link: bytes = b"") -> Header:
    """The header of a run, as the store shows it."""
    if run.brief is not None and run.started is None:
        return brief_header(run.brief)
    if run.started is None:
        return _header_beside(run)
    start, place = run.started, run.started.place or _NO_PLACE
    return Header(
        flow=start.flow,
        version=start.version,
        format=FORMAT,
        status=run.shown_status if run.effects else run.status,
        family=start.family,
        started_at=start.started_at,
        wake_at=run.wake_at,
        ended_at=run.ended_at,
        queue=start.queue,
        queue_key=place.key,
        priority=place.priority,
        units=place.units,
        parent=start.parent,
        tags=start.tags,
        reason=run.reason[:500] if run.error is None else _reason(run.error),
        chapter=0 if run.chapter is None else run.chapter.seq,
        chapter_link=chapter_link,
        error="" if run.error is None else fingerprint(run.error),
        published=_published(run) if run.published else "",
        questions=_questions(run) if run.questions else "",
    )


#: Of a published value in a header; its journal has all of it.
PUBLISHED_CHARS = 200


def _published(run: Run) -> str:
    shown = {name: _shown(value) for name, value in run.published.items()}
    return msgspec.json.encode(shown).decode()


def _shown(raw: bytes) -> object:
    """A published value as plain data, cut if it is long."""
    try:
        value = msgspec.msgpack.decode(raw, ext_hook=_plain)
        text = msgspec.json.encode(value)
    except (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError, RecursionError):
        return "…"
    is_short = len(text) <= PUBLISHED_CHARS
    return value if is_short else f"{text[:PUBLISHED_CHARS].decode(errors='ignore')}…"


def _plain(tag: int, payload: memoryview) -> object:
    return READERS[tag](payload) if tag in READERS else "…"


#: A frame of a recorded traceback.
_FRAME = re.compile(r'^  File "(?:[^"]*[/\\])?([^"/\\]*)", line \d+, in (.*)$', re.MULTILINE)
#: How it went on to what led to the exception: other frames come behind.
_CAUSE = re.compile(r"^(?:caused by|raised while handling|one of them:) ", re.MULTILINE)
_FINGERPRINT_CHARS_MAX = 200


def fingerprint(fault: Fault) -> str:
    """By what faults are told from one another: the exception's type, and where it was raised.

    The file's name and the function, without the line: that changes with every release.
    """
    cause = _CAUSE.search(fault.trace)
    frames = _FRAME.findall(fault.trace[: cause.start()] if cause else fault.trace)
    place = f" at {frames[-1][0]}:{frames[-1][1]}" if frames else ""
    return f"{fault.type_name}{place}"[:_FINGERPRINT_CHARS_MAX]


class OpenQuestion(msgspec.Struct, frozen=True, array_like=True):
    """A question as a header has it."""

    id: str
    text: str
    #: JSON schema of the answer; empty: anything.
    schema: str
    #: ms since 1970.
    asked_at: int
    by: str | None = None
    until: int | None = None
    digest: str = ""
    #: The text is shortened, or the schema left out: the journal has them.
    is_cut: bool = False


#: In the place of the questions of a run of an earlier release: only its journal has them.
UNKNOWN_QUESTIONS = "?"
#: What the questions of a run may take in its header, and what is left of a text that is too long.
_QUESTIONS_CHARS_MAX, _TEXT_CHARS_MAX, _QUESTIONS_MAX = 4_000, 200, 20
_read_questions = msgspec.json.Decoder(list[OpenQuestion]).decode


def read_questions(written: str) -> Sequence[OpenQuestion] | None:
    """The open questions of a header; None: the journal has to be asked."""
    if not written:
        return ()
    try:
        return _read_questions(written)
    except (msgspec.MsgspecError, ValueError):
        return None


def _questions(run: Run) -> str:
    if run.status in ENDED:
        return ""
    asked = list(run.questions.values())
    if len(asked) > _QUESTIONS_MAX:
        return UNKNOWN_QUESTIONS
    written = _written(asked, run.start.started_at, is_cut=False)
    if len(written) > _QUESTIONS_CHARS_MAX:
        written = _written(asked, run.start.started_at, is_cut=True)
    return written if len(written) <= 2 * _QUESTIONS_CHARS_MAX else UNKNOWN_QUESTIONS


def _written(asked: Iterable[QuestionAsked], start: int, *, is_cut: bool) -> str:
    return msgspec.json.encode(
        [
            OpenQuestion(
                id=each.question,
                text=each.text[:_TEXT_CHARS_MAX] if is_cut else each.text,
                schema="" if is_cut else each.schema.decode("utf-8", "replace"),
                asked_at=start + each.at,
                by=each.by,
                until=each.until,
                digest=each.digest.hex(),
                is_cut=is_cut,
            )
            for each in asked
        ]
    ).decode()


def _header_beside(run: Run) -> Header:
    """The header of a mark or a key: only a mark's id names its run."""
    if run.marked is not None:
        return key_header("mark", ended_at=run.marked.at)
    if run.kept is not None:
        return key_header("kept", ended_at=run.kept.at)
    return key_header()


def brief_header(brief: Brief) -> Header:
    """The header of a journal that is not a run's: never driven."""
    return Header(
        flow="",
        version=brief.kind,
        format=FORMAT,
        status=brief.status,
        family=brief.family,
        started_at=brief.started_at,
        wake_at=brief.wake_at,
        ended_at=brief.ended_at,
        tags=brief.tags,
    )


def _reason(error: Fault) -> str:
    return f"{error.type_name}: {error.message}"[:500]


def key_header(
    status: str = "held", *, ended_at: int | None = None, parent: str | None = None
) -> Header:
    """The header of a key's journal, or of a mark: never due, never driven."""
    return Header(
        flow="",
        version="",
        format=FORMAT,
        status=status,
        family="",
        started_at=0,
        wake_at=None,
        ended_at=ended_at,
        parent=parent,
    )


def first_entry(journal: str, event: Event, header: Header) -> Entry:
    """Make the entry that creates a journal."""
    body, nodes, flags = parted_body([event], Values())
    kinds = KIND_BITS[type(event)]
    record, link = pack(
        journal, prev=LINK_START, epoch=0, seq=1, kinds=kinds, body=body, flags=flags
    )
    return Entry(
        run_id=journal,
        after=0,
        last=1,
        epoch=0,
        record=record,
        link=link,
        header=header,
        nodes=nodes,
    )


def next_entry(
    head: Head, event: Event, header: Header, *, epoch: int, taken_by: str | None = None
) -> Entry:
    """Make the entry that follows a head; with ``taken_by`` it takes the lease."""
    kinds, body = KIND_BITS[type(event)], encode_events([event])
    record, link = pack(
        head.run_id, prev=head.link, epoch=epoch, seq=head.seq + 1, kinds=kinds, body=body
    )
    return Entry(
        run_id=head.run_id,
        after=head.seq,
        last=head.seq + 1,
        epoch=epoch,
        record=record,
        link=link,
        header=header,
        lease="keep" if taken_by is None else "take",
        worker=taken_by,
    )


#: The delay between two attempts, which doubles; and their number: about a minute in all.
_PAUSE_FIRST, _PAUSE_MAX = 0.02, 1.0
_TRIES_MAX = 65


async def find_or_begin(
    store: Store, lane: Lane, entry: Entry, read: Callable[[], Awaitable[T | None]]
) -> T | None:
    """The run whose first entry was refused; None: the id belonged to one that was deleted.

    Raises:
        RunIdTaken: the transaction that holds the id does not end.
    """
    pause = _PAUSE_FIRST
    for _ in range(_TRIES_MAX):
        found = await read()
        if found is not None:
            return found
        (answer,) = await lane(store.commit([entry]))
        if answer is not None and answer.gone:
            return None
        if answer is not None and answer.seq == 0:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX)
    raise RunIdTaken(entry.run_id, "a transaction that is still open has begun it")
