"""Streams in a journal: the chunks that a reader gets, and what each writer has written. Pure.

A stream is written by steps and by places in the flow, one chunk after the other; each chunk and
each reset takes the next offset. A reset withdraws what its step wrote before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from outlive.errors import CorruptRecord
from outlive.model.events import (
    ChapterBegan,
    Event,
    Forked,
    Published,
    RunRetried,
    Streamed,
    StreamReset,
    Tagged,
)

#: A stream, and the step or place that writes it.
Writing: TypeAlias = tuple[str, str]


class StreamItem(NamedTuple):
    """A chunk of a stream, or a reset, which has no value."""

    offset: int
    step: str
    attempt: int
    value: bytes | None


class StreamFold:
    """The items of one stream, from the events of its run in order."""

    def __init__(self, run_id: str, stream: str) -> None:
        self._run_id, self._stream = run_id, stream
        self._last: int | None = None
        self._attempts: dict[str, int] = {}

    def take(self, seq: int, event: Event) -> list[StreamItem]:
        """The items that an event adds.

        Raises:
            CorruptRecord: they do not follow those before.
        """
        if type(event) is ChapterBegan:
            self._turn_page(seq, event)
        if self._last is None:
            self._last = 0
        if not isinstance(event, (Streamed, StreamReset)) or event.stream != self._stream:
            return []
        step, attempt = event.step, self._attempts.get(event.step, 1)
        if isinstance(event, StreamReset):
            self._check(seq, event.offset, event.attempt, attempt + 1)
            self._attempts[step] = event.attempt
            self._last += 1
            return [StreamItem(event.offset, step, event.attempt, None)]
        self._check(seq, event.offset, event.attempt, attempt)
        self._last += len(event.chunks)
        numbered = enumerate(event.chunks, event.offset)
        return [StreamItem(offset, step, attempt, chunk) for offset, chunk in numbered]

    def _turn_page(self, seq: int, event: ChapterBegan) -> None:
        last = event.streams.get(self._stream, 0)
        if self._last is not None and self._last != last:
            raise CorruptRecord(self._run_id, seq, f"stream {self._stream} ends at {self._last}")
        self._last = last

    def _check(self, seq: int, offset: int, attempt: int, expected: int) -> None:
        if offset != (self._last or 0) + 1:
            why = f"offset {offset} of stream {self._stream} follows offset {self._last}"
            raise CorruptRecord(self._run_id, seq, why)
        if attempt != expected:
            why = f"stream {self._stream}: attempt {attempt} in place of {expected}"
            raise CorruptRecord(self._run_id, seq, why)


@dataclass(slots=True)
class Written:
    """What the writers of a chapter have written."""

    #: By place in the flow: chunks that count.
    places: dict[Writing, int] = field(default_factory=dict)
    attempts: dict[Writing, int] = field(default_factory=dict)
    #: Streams of a step in which there is something of it that was not withdrawn.
    steps: dict[str, set[str]] = field(default_factory=dict)
    #: Places whose chunks belong to what a retry does again.
    stale: set[Writing] = field(default_factory=set)
    #: Calls of flow code to publish or to tag that are in the journal.
    told: int = 0


def written_in(events: Iterable[Event], first: int) -> Written:
    """What was written by these events, of which the first has this seq."""
    made = Written()
    seqs: dict[Writing, int] = {}
    tells: list[tuple[int, int]] = [(0, 0)]
    for seq, event in enumerate(events, first):
        match event:
            case Streamed(stream=stream, step=step):
                made.attempts[stream, step] = event.attempt
                if event.in_flow:
                    count = made.places.get((stream, step), 0)
                    made.places[stream, step] = count + len(event.chunks)
                    seqs[stream, step] = seq
                else:
                    made.steps.setdefault(step, set()).add(stream)
            case StreamReset(stream=stream, step=step):
                made.attempts[stream, step] = event.attempt
                made.places.pop((stream, step), None)
                made.steps.get(step, set()).discard(stream)
                made.stale.discard((stream, step))
                seqs.pop((stream, step), None)
            case RunRetried(since=since):
                made.stale |= {writing for writing, at in seqs.items() if at >= since}
                tells = [(at, told) for at, told in tells if at < since]
            case Published(told=told) | Tagged(told=told):
                tells.append((seq, told))
            case Forked():
                # What it shares is the other run's; the flow does not write it again.
                made = Written(places=made.places)
                seqs.clear()
            case _:
                pass
    made.told = max((told for _, told in tells), default=0)
    for writing in made.stale:
        made.places.pop(writing, None)
    return made
