"""Laws of one journal: its frame, its epochs, its time, its effects, and data dependencies.

Pure functions over the events of one run, each yielding broken promises in words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from outlive.engine.replay import DONE_BEFORE_RETRY
from outlive.errors import CorruptRecord
from outlive.journal.codec.parts import whole
from outlive.model import events as ev
from outlive.model.events import Event
from outlive.model.streams import StreamFold
from outlive.testing.audit.waits import ENDS, WAIT_RULES, Rule, first_seq, numbered

NONCE = re.compile(rb"nonce-[0-9a-f]{16}")


def fresh_nonce(entropy: Callable[[int], bytes]) -> str:
    """Make a text that no other step ever made, and that the auditor recognises."""
    return f"nonce-{entropy(8).hex()}"


def nonces_in(text: bytes | str) -> tuple[str, ...]:
    """Every nonce in a text, in order, each once."""
    raw = text.encode(errors="surrogatepass") if isinstance(text, str) else whole(text)
    return tuple(dict.fromkeys(found.decode() for found in NONCE.findall(raw)))


def _check_frame(events: Sequence[Event]) -> Iterator[str]:
    """Check the frame: it begins with its start or a chapter; its end is last."""
    if not events or not isinstance(events[0], (ev.RunStarted, ev.ChapterBegan)):
        yield "its journal does not begin with RunStarted"
    end: Event | None = None
    told = 0
    for seq, event in numbered(events):
        if isinstance(event, ev.RunStarted) and seq > first_seq(events):
            yield f"event {seq} starts it a second time"
        if isinstance(event, ev.RunRetried):
            end, told = None, 0
        elif isinstance(event, ev.ParentTold):
            told += 1
            if end is None or told > 1:
                yield f"event {seq} tells its parent {'again' if end else 'before its end'}"
        elif isinstance(event, ev.ForkMade):
            continue  # somebody may fork it at any time
        elif end is not None and not (isinstance(event, ev.Claimed) and not told):
            yield f"event {seq} ({type(event).__name__}) follows its end"
        if isinstance(event, ENDS):
            end = event


def _check_epochs(events: Sequence[Event]) -> Iterator[str]:
    """Check epochs: each claim takes the next one, with one worker."""
    last = 0
    for seq, event in numbered(events):
        if not isinstance(event, ev.Claimed):
            continue
        is_first_seen = last == 0 and isinstance(events[0], ev.ChapterBegan)
        if event.epoch != last + 1 and not is_first_seen:
            yield f"event {seq} claims epoch {event.epoch} after epoch {last}"
        last = event.epoch


def _check_time(events: Sequence[Event]) -> Iterator[str]:
    """Check times: they never fall; a claim has its claimant's clock, which may be behind."""
    last = 0
    for seq, event in numbered(events):
        if isinstance(event, ev.Claimed):
            continue
        at: int = getattr(event, "at", last)
        if at < last:
            yield f"event {seq} ({type(event).__name__}) is at {at} ms, after one at {last} ms"
        last = max(last, at)


def _check_intents(events: Sequence[Event]) -> Iterator[str]:
    """Check effects: an end or doubt follows an intent; a repeat follows the end of the attempt."""
    intents: dict[str, ev.EffectIntended] = {}
    settled: set[str] = set()
    for seq, event in numbered(events):
        step = getattr(event, "step", "")
        match event:
            case ev.ChapterBegan():
                intents, settled = {}, set()
            case ev.EffectIntended():
                before = intents.get(step)
                if before is not None and step not in settled:
                    yield f"event {seq} attempts {step} again though it was not settled"
                if before is not None and before.key != event.key:
                    yield f"event {seq} attempts {step} with another key"
                intents[step] = event
                settled.discard(step)
            case ev.EffectDone() | ev.EffectRaised() | ev.EffectDoubted() if step not in intents:
                yield f"event {seq} ({type(event).__name__}) of {step} has no intent before it"
            case ev.AttemptFailed() if step in intents:
                settled.add(step)
            case ev.RunRetried():
                settled |= _did_not_happen(events[: seq - first_seq(events)])


def _did_not_happen(events: Sequence[Event]) -> set[str]:
    """Effects that a retry may attempt again."""
    return {
        event.step
        for event in events
        if isinstance(event, ev.EffectRaised) and event.happened is False
    }


def _check_ends(events: Sequence[Event]) -> Iterator[str]:
    """Check ends: a step ends once, a timer fires once, and no effect is left open."""
    ended: dict[str, tuple[int, Event]] = {}
    intended: set[str] = set()
    found: dict[str, Event] = {}
    for seq, event in numbered(events):
        match event:
            case ev.EffectIntended(step=name):
                intended.add(name)
            case (
                ev.StepDone()
                | ev.StepRaised()
                | ev.EffectDone()
                | ev.EffectRaised()
                | ev.TimerFired()
            ):
                name = event.timer if isinstance(event, ev.TimerFired) else event.step
                if name in ended:
                    yield f"event {seq} ends {name} a second time"
                if name in found and not _is_same(found[name], event):
                    yield f"event {seq} ends {name} otherwise than before the retry"
                ended[name] = seq, event
            case ev.RunRetried(since=since):
                dropped = {n: end for n, (place, end) in ended.items() if place >= since}
                found |= {n: end for n, end in dropped.items() if _is_kept(end)}
                ended = {n: end for n, end in ended.items() if n not in dropped}
                intended -= dropped.keys()
            case _:
                pass
        if isinstance(event, (*ENDS, ev.ChapterBegan)):
            for step in sorted(intended - set(ended)):
                yield f"event {seq} ({type(event).__name__}) left effect {step} open"
        if isinstance(event, ev.ChapterBegan):
            ended, intended = {}, set()


def _is_kept(end: Event) -> bool:
    """An outcome that a retry finds again."""
    return isinstance(end, (ev.StepDone, ev.EffectDone)) or (
        isinstance(end, ev.EffectRaised) and end.happened is not False
    )


def _is_same(one: Event, other: Event) -> bool:
    """Two records of one outcome.

    A plain step may be run again with other arguments; an effect that is asked for with others is
    never begun, and ends so when its flow is cancelled.
    """
    if isinstance(one, ev.StepDone) and isinstance(other, ev.StepDone) and one.args != other.args:
        return True
    if isinstance(other, ev.EffectRaised) and DONE_BEFORE_RETRY in other.error.message:
        return True
    return msgspec.structs.replace(one, at=0) == msgspec.structs.replace(other, at=0)


def _check_nonces(events: Sequence[Event]) -> Iterator[str]:
    """Check that values in effects and outcomes came out of a step before them."""
    made: set[str] = set()
    for seq, event in numbered(events):
        match event:
            case ev.StepDone() | ev.EffectDone():
                made.update(nonces_in(event.value))
            case ev.ChildEnded():
                made.update(nonces_in(event.value))
                made.update(nonces_in("" if event.error is None else event.error.message))
            case ev.StepRaised() | ev.EffectRaised():
                made.update(nonces_in(event.error.message))
            case ev.RunStarted():
                made.update(nonces_in(event.args))
            case ev.ChapterBegan() if seq == first_seq(events):
                made.update(nonces_in(event.args))
            case ev.ChapterBegan():
                yield from _lost(seq, made, event.args)
            case ev.EffectIntended():
                yield from _lost(seq, made, event.args)
            case ev.RunCompleted():
                yield from _lost(seq, made, event.value)


def _lost(seq: int, made: set[str], sent: bytes) -> Iterator[str]:
    for nonce in nonces_in(sent):
        if nonce not in made:
            yield f"event {seq} depends on {nonce}, which no earlier step of the journal made"


def _check_fits(events: Sequence[Event]) -> Iterator[str]:
    """Check that no driver found a difference between code and journal.

    After a retry, branches that share state may ask for a done effect with other arguments.
    """
    is_retried = False
    for seq, event in numbered(events):
        is_retried |= isinstance(event, ev.RunRetried)
        reason = event.reason if isinstance(event, ev.Parked) else ""
        if reason and not (is_retried and DONE_BEFORE_RETRY in reason):
            yield f"event {seq} parked it: {reason}"


def _check_streams(events: Sequence[Event]) -> Iterator[str]:
    """Check streams: offsets follow one another, and no two attempts stand side by side."""
    folds: dict[str, StreamFold] = {}
    chapter: tuple[int, Event] = (0, ev.ParentTold(0))
    #: What steps wrote and was not withdrawn; and what of it is of an attempt that is over.
    written: set[tuple[str, str]] = set()
    over: set[tuple[str, str]] = set()
    for seq, event in numbered(events):
        match event:
            case ev.ChapterBegan():
                chapter, folds = (seq, event), {}
                written, over = set(), set()
            case ev.Claimed() | ev.RunRetried():
                over |= written
            case ev.AttemptFailed() | ev.StepDone() | ev.StepRaised():
                over |= {each for each in written if each[1] == event.step}
            case ev.EffectDone() | ev.EffectRaised():
                over |= {each for each in written if each[1] == event.step}
            case ev.Streamed() | ev.StreamReset():
                yield from _check_chunks(seq, event, folds, chapter)
                writing = (event.stream, event.step)
                if isinstance(event, ev.StreamReset):
                    over.discard(writing)
                    written.discard(writing)
                elif not event.in_flow:
                    if writing in over:
                        yield f"event {seq} streams behind an attempt of {event.step} that is over"
                    written.add(writing)
            case _:
                pass


def _check_chunks(
    seq: int,
    event: ev.Streamed | ev.StreamReset,
    folds: dict[str, StreamFold],
    chapter: tuple[int, Event],
) -> Iterator[str]:
    if event.stream not in folds:
        folds[event.stream] = StreamFold("", event.stream)
        folds[event.stream].take(*chapter)
    try:
        folds[event.stream].take(seq, event)
    except CorruptRecord as error:
        yield str(error)


JOURNAL_RULES: tuple[Rule, ...] = (
    _check_frame,
    _check_epochs,
    _check_time,
    _check_intents,
    _check_ends,
    _check_nonces,
    _check_fits,
    _check_streams,
    *WAIT_RULES,
)
