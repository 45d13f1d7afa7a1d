"""Two runs side by side: where they are the same, and where they first differ.

Steps are matched by their ids, and compared by the digests of arguments and outcomes: a value is
only decoded to be shown. Of a run with chapters the last one is compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outlive.journal.forking import changed_in
from outlive.model.events import (
    Answered,
    ChildEnded,
    ChildIntended,
    EffectDone,
    EffectIntended,
    EffectRaised,
    Event,
    Fault,
    QuestionAsked,
    RunCancelled,
    RunCompleted,
    RunFailed,
    StepDone,
    StepRaised,
)
from outlive.model.ids import digest, recorded_digest
from outlive.model.past import past_of
from outlive.model.run import fold
from outlive.views.rows import from_json

#: What is compared beside the steps.
ARGUMENTS, OUTCOME = "arguments", "outcome"


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What one run has at a place."""

    args_digest: bytes = b""
    digest: bytes
    value: bytes | None = None
    error: Fault | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A place, and what both runs have there."""

    step: str
    a: Ended | None
    b: Ended | None

    @property
    def difference(self) -> str:
        """In a word; empty: none."""
        if self.a is None or self.b is None:
            return "only in A" if self.b is None else "only in B"
        if self.a.args_digest != self.b.args_digest:
            return ARGUMENTS
        if self.a.digest == self.b.digest:
            return ""
        return ARGUMENTS if self.step == ARGUMENTS else OUTCOME


def diff(a: Sequence[Event], b: Sequence[Event]) -> list[Line]:
    """All places of two runs, in the order of the first, then what only the second has."""
    one, other = _places(a), _places(b)
    steps = [*one, *(step for step in other if step not in one)]
    # How they ended comes last.
    steps.sort(key=lambda step: step == OUTCOME)
    return [Line(step=step, a=one.get(step), b=other.get(step)) for step in steps]


def _places(events: Sequence[Event]) -> dict[str, Ended]:
    run = fold(events)
    places = {ARGUMENTS: _ended(value=run.start.args if run.chapter is None else run.chapter.args)}
    changed = changed_in(events)
    asked: dict[str, bytes] = {}
    for _, event in past_of(events, 1).events:
        match event:
            case EffectIntended(step=step) | ChildIntended(step=step):
                asked.setdefault(step, recorded_digest(event))
            case QuestionAsked(question=step):
                asked.setdefault(step, digest(event.text.encode() + event.schema))
            case StepDone() | StepRaised():
                args = recorded_digest(event)
                places[event.step] = _end_of(event, args, is_json=event in changed)
            case EffectDone() | EffectRaised() | ChildEnded():
                args = asked.get(event.step, b"")
                places[event.step] = _end_of(event, args, is_json=event in changed)
            case Answered(question=step):
                places[step] = _ended(asked.get(step, b""), value=from_json(event.value))
            case RunCompleted(value=value):
                places[OUTCOME] = _ended(value=value)
            case RunFailed(error=error) | RunCancelled(error=error):
                places[OUTCOME] = _ended(error=error)
            case _:
                pass
    return places


def _end_of(event: Event, args: bytes, *, is_json: bool) -> Ended:
    error: Fault | None = getattr(event, "error", None)
    if error is not None:
        return _ended(args, error=error)
    value: bytes = getattr(event, "value", b"")
    return _ended(args, value=from_json(value) if is_json else value)


def _ended(args: bytes = b"", *, value: bytes | None = None, error: Fault | None = None) -> Ended:
    told = value or b"" if error is None else f"{error.type_name}\0{error.message}".encode()
    return Ended(args_digest=args, digest=digest(told), value=value, error=error)
