"""Forks: a new run that continues from a place in another run's journal, which both then share.

A fork can't begin where an effect or a child was under way: that belongs to the run that began it
and must not happen twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from outlive.app.mail import check_by
from outlive.app.reader import StoreReader
from outlive.errors import ForkRefused, RunIdTaken, RunNotFound
from outlive.journal.fork import link_of
from outlive.journal.headers import first_entry, header_of, next_entry
from outlive.journal.reader import begin_of, read_events
from outlive.journal.shared import drop_mark, fork_entry
from outlive.model.events import (
    Answered,
    DeadlinePassed,
    EffectDone,
    EffectRaised,
    Event,
    Forked,
    ForkMade,
    QuestionAsked,
    RunStarted,
    StepDone,
    StepRaised,
)
from outlive.model.ids import check_run_id
from outlive.model.replay import past_of
from outlive.model.run import ENDED, Run, apply, fold
from outlive.model.schema import misfit, wanted
from outlive.stores.types import LAST_CHAPTER, Entry, Reading

#: Events whose outcome a fork can replace.
Outcome: TypeAlias = StepDone | StepRaised | EffectDone | EffectRaised | Answered
_OUTCOMES = (StepDone, StepRaised, EffectDone, EffectRaised, Answered)
TRIES_MAX = 5
ONE_CHANGE = (
    "a fork can replace one outcome: what comes after it runs again; let the fork reach the next "
    "one, and fork the fork there"
)


class Forks:
    """Makes forks; ``commit`` writes an entry and says whether the store took it."""

    def __init__(self, reader: StoreReader, commit: Callable[[Entry], Awaitable[bool]]) -> None:
        self._reader, self._ports, self._commit = reader, reader.ports, commit

    async def fork(
        self,
        run_id: str,
        at: int | None,
        set: Mapping[str, object] | None,
        id: str | None,
        by: str = "",
    ) -> str:
        """The id of a new run that continues after event ``at`` of another one; it is durable.

        Raises:
            ForkRefused: it can't be forked there; the message says where it can.
        """
        name = check_run_id(self._ports.entropy(8).hex() if id is None else id)
        check_run_id(run_id)
        check_by(by)
        json = _changes(run_id, {} if set is None else set)
        if at is not None and type(at) is not int:
            raise ForkRefused(run_id, f"at={at!r} is not a seq; `outlive show` lists them")
        mark = fork_entry(run_id, name, self._ports.clock.now_ms())
        await self._commit(mark)
        self._ports.failpoint("fork.marked")
        try:
            event = await self._plan(run_id, name, at, json, by)
        except (ForkRefused, RunNotFound):
            await self._reader.lane(drop_mark(self._reader.store, mark.run_id, 0))
            raise
        self._ports.failpoint("fork.planned")
        entry = first_entry(name, event, header_of(fold([event])))
        if not await self._commit(msgspec.structs.replace(entry, joins=run_id)):
            await self._reader.read(run_id, 1 << 62)  # or it was deleted meanwhile
            raise RunIdTaken(name, "it is another run")
        return name

    async def _plan(
        self, run_id: str, name: str, at: int | None, json: Mapping[str, bytes], by: str
    ) -> Forked:
        """The fork's first event.

        A run that has ended gets an event about its fork, so that retention does not delete it
        meanwhile.
        """
        for _ in range(TRIES_MAX):
            reading = await self._reader.read(run_id, LAST_CHAPTER)
            events = await self._reader.events(reading)
            source = ForkSource(reading, read_events(reading), events)
            now, seed = self._ports.clock.now_ms(), self._ports.entropy(16)
            event = source.fork(at, json, now=now, seed=seed)
            value = self._reader.hider.json(event.value)
            event = msgspec.structs.replace(event, value=value, by=by)
            is_live = reading.header.ended_at is None
            if is_live or await self._commit(source.noted(name, event)):
                return event
        raise ForkRefused(run_id, "it changes all the time; try again")


class ForkSource:
    """A run that is to be forked, as it stands."""

    def __init__(self, reading: Reading, own: Sequence[Event], whole: Sequence[Event]) -> None:
        self._reading, self._run_id = reading, reading.head.run_id
        self._first, self._before = begin_of(reading)
        self._own = own
        #: What it shares itself, if it is a fork.
        self._inherited = list(whole[: len(whole) - len(own)])

    def noted(self, name: str, event: Forked) -> Entry:
        """The other run's own word of its fork."""
        run = fold([*self._inherited, *self._own])
        made = ForkMade(max(run.at, event.at), name, event.seq, event.by)
        header = self._reading.header
        return next_entry(self._reading.head, made, header, epoch=self._reading.head.epoch)

    def fork(self, at: int | None, json: Mapping[str, bytes], *, now: int, seed: bytes) -> Forked:
        """The first event of a fork after event ``at``.

        Raises:
            ForkRefused: there is no such place.
        """
        step, value = next(iter(json.items()), ("", b""))
        if step:
            place, step = self._place_of(step)
            self._check_answer(step, value)
            if at not in (None, place):
                why = f"{step} ended at seq {place}, and all that came after it runs again"
                raise ForkRefused(self._run_id, f"{why}: fork it at {place}")
            at = place
        if at is None:
            raise ForkRefused(
                self._run_id,
                "at= is missing: say where, as a seq; `outlive show` lists them",
            )
        run = self._check(at)
        start = run.start
        return Forked(
            at=max(run.at, now - start.started_at),
            run_id=self._run_id,
            seq=at,
            link=self._link_at(at),
            first=self._first,
            before=self._before,
            start=_own_start(start),
            seed=seed,
            step=step,
            value=value,
        )

    def _place_of(self, step: str) -> tuple[int, str]:
        """The seq at which a step ended, and its id; ``step`` may be a name that is unique."""
        found = {
            _id_of(event): seq
            for seq, event in past_of(self._own, self._first).events
            if isinstance(event, _OUTCOMES) and _is_named(_id_of(event), step)
        }
        exact = {name: seq for name, seq in found.items() if name == step} or found
        if len(exact) != 1:
            told = ", ".join(f"{name} at {seq}" for name, seq in exact.items())
            known = f"{step} is one of {told}" if exact else f"no step {step} ended in it"
            raise ForkRefused(self._run_id, f"{known}; `outlive show` lists its steps")
        ((name, seq),) = exact.items()
        return seq, name

    def _check_answer(self, step: str, value: bytes) -> None:
        """Refuse an answer that does not fit the question; the journal has its schema."""
        for event in reversed(self._own):
            if isinstance(event, QuestionAsked) and event.question == step and event.schema:
                schema = msgspec.json.decode(event.schema)
                why = misfit(msgspec.json.decode(value), schema)
                if why is not None:
                    why = f"question {step} refuses this answer: {why}; it wants {wanted(schema)}"
                    raise ForkRefused(self._run_id, why)
                return

    def _check(self, at: int) -> Run:
        """The run as it was at that seq; refused if something was under way."""
        last = self._first + len(self._own) - 1
        if not self._first <= at <= last:
            why = f"its chapter goes from seq {self._first} to {last}"
            raise ForkRefused(self._run_id, f"seq {at} is not there: {why}")
        good: list[int] = []
        run = fold(self._inherited)
        taken: Run | None = None
        why = ""
        for seq, event in enumerate(self._own, self._first):
            apply(run, event)
            busy = _what_is_open(run)
            if isinstance(event, DeadlinePassed):
                busy = "it is over there"
            if not busy and event is not None:
                good.append(seq)
            if seq == at:
                why, taken = busy, run
                if not busy:
                    break
        assert taken is not None, "the seq is there"
        if why:
            raise ForkRefused(self._run_id, f"at seq {at} {why}{_nearest(good, at)}")
        return taken

    def _link_at(self, at: int) -> bytes:
        record = [each for each in self._reading.records if each.seq <= at][-1]
        return link_of(self._run_id, record)


def _what_is_open(run: Run) -> str:
    if run.effects:
        return f"effect {next(iter(run.effects))} is under way"
    if run.children:
        child = next(iter(run.children.values()))
        return f"its child {child.child_id} is under way"
    if run.status in ENDED or run.is_undoing:
        return "it is over"
    return ""


def _nearest(good: Sequence[int], at: int) -> str:
    before = [seq for seq in good if seq < at][-1:]
    after = [seq for seq in good if seq > at][:1]
    return f"; fork it at {' or '.join(str(seq) for seq in (*before, *after))}" if good else ""


def _own_start(start: RunStarted) -> RunStarted:
    """The start of the other run, without its parent and its deadline."""
    return msgspec.structs.replace(start, parent=None, is_awaited=False, deadline_at=None)


def _id_of(event: Outcome) -> str:
    return event.question if isinstance(event, Answered) else event.step


def _is_named(step_id: str, asked: str) -> bool:
    place = step_id.partition("/")[2] or step_id
    return asked in (step_id, place, place.partition("#")[0])


def _changes(run_id: str, given: object) -> dict[str, bytes]:
    """The new outcome as JSON, by its step."""
    if not isinstance(given, Mapping) or not all(type(step) is str and step for step in given):
        why = "set is not a dict of a step and its outcome; write set={'plan#1': value}"
        raise ForkRefused(run_id, why)
    if len(given) > 1:
        raise ForkRefused(run_id, ONE_CHANGE)
    return {step: _json(step, run_id, value) for step, value in given.items()}


def _json(step: str, run_id: str, value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ForkRefused(run_id, f"the outcome of {step} is not JSON: {error}") from None
