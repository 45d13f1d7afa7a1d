"""Waiting for people and other programs, from flow code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, TypeVarTuple, Unpack, overload

import msgspec

from outlive.engine.arguments import Bound
from outlive.engine.definitions import Definition, Effect, milliseconds
from outlive.engine.inputs import schema_of
from outlive.engine.place import Branch, awaited, branch_for, refuse_plain
from outlive.engine.redaction import recorded_args, shown_args
from outlive.engine.signatures import typed
from outlive.errors import DefinitionRefused, TimedOut, ValueRefused
from outlive.journal.redaction import Hider
from outlive.model.events import QuestionAsked
from outlive.model.ids import digest, is_text
from outlive.model.mail import check_signal_name
from outlive.model.retry import Duration, parse_duration

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TEXT_CHARS_MAX = 20_000
#: Of the arguments that an approval shows; it is bound to all of them.
SHOWN_CHARS_MAX = 2_000


class timeout:  # noqa: N801  # used as a verb: ``async with outlive.timeout("10m"):``
    """A time limit that survives restarts; raises ``TimedOut`` when it passes."""

    def __init__(self, within: Duration | None) -> None:
        refuse_plain("timeout")
        branch_for("outlive.timeout")
        self._within = within
        self._limit = asyncio.timeout(None if within is None else parse_duration(within))

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        try:
            await self._limit.__aexit__(kind, error, tb)
        except TimeoutError:
            raise TimedOut(f"it took longer than {self._within}") from None


class WaitSignalVerb(Protocol):
    """Waits for a signal of a type."""

    @overload
    def __call__(
        self, name: str, type: type[T], within: Duration | None = None
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def __call__(
        self, name: str, type: Any = Any, within: Duration | None = None
    ) -> Coroutine[Any, Any, Any]: ...


@typed[WaitSignalVerb]()
@awaited
async def wait_signal(name: str, type: Any = Any, within: Duration | None = None) -> Any:
    """The next signal of that name, sent before or after; ``TimedOut`` when the limit passes.

    One of another type does not reach the flow: it is refused, which the journal tells.
    """
    branch = branch_for("outlive.wait_signal")
    check_signal_name(name)
    async with timeout(within):
        return await branch.drive.signal_of(branch, name, type)


class AskVerb(Protocol):
    """Asks for an answer of a type; a text unless said otherwise."""

    @overload
    def __call__(
        self, text: str, *, within: Duration | None = None
    ) -> Coroutine[Any, Any, str]: ...
    @overload
    def __call__(
        self, text: str, type: type[T], within: Duration | None = None
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def __call__(
        self, text: str, type: Any, within: Duration | None = None
    ) -> Coroutine[Any, Any, Any]: ...


@typed[AskVerb]()
@awaited
async def ask(text: str, type: Any = str, within: Duration | None = None) -> Any:
    """A human's answer; costs no memory while it waits. ``TimedOut`` when the limit passes.

    ``type`` is what an answer must be: built in, a dataclass, a Struct or a pydantic model.
    """
    branch = branch_for("outlive.ask")
    place, schema, until = branch.next_id("ask"), schema_of(type), _until(branch, within)
    asked = QuestionAsked(0, place, _text(text), schema, until=until)
    async with timeout(within):
        value, _ = await branch.drive.question(asked, type)
        return value


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """What a human said to an effect: this one, with these arguments, once."""

    #: Yes or no.
    granted: bool
    #: Who said so.
    by: str
    #: When the flow was told.
    at: datetime
    #: What else they said: answer with ``{"granted": true, "note": "..."}``.
    note: str = ""


class _Verdict(msgspec.Struct, frozen=True):
    granted: bool
    note: str = ""


class ApproveVerb(Protocol):
    """Asks whether an effect may happen with these arguments."""

    @overload
    def __call__(
        self, effect: Effect[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Approval]: ...
    @overload
    def __call__(
        self,
        effect: Callable[[Unpack[Ts]], Any],
        /,
        *args: *Ts,
        by: str | None = None,
        within: Duration | None = None,
    ) -> Coroutine[Any, Any, Approval]: ...
    @overload
    def __call__(
        self,
        effect: Effect[..., Any],
        /,
        *,
        within: Duration,
        by: str | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Approval]: ...


@typed[ApproveVerb]()
@awaited
async def approve(
    effect: Effect[..., Any],
    *args: Any,
    by: str | None = None,
    within: Duration | None = None,
    **kwargs: Any,
) -> Approval:
    """Ask a human whether this effect may happen with exactly these arguments: an ``Approval``.

    ``by`` is who should answer, for whoever looks. ``TimedOut`` when the limit passes. From here on
    every call of the effect in this chapter of the run needs a yes of its own, for its arguments:
    ``NotApproved`` otherwise.
    """
    branch = branch_for("outlive.approve")
    if not isinstance(effect, Effect):
        raise DefinitionRefused(f"{effect!r} is no effect; only effects can be approved")
    if by is not None and not is_text(by):
        raise DefinitionRefused(f"by={by!r} is no text; it says who should answer")
    call = effect.definition
    bound, hider = call.bind(*args, **kwargs), branch.drive.hider
    asked = QuestionAsked(
        0,
        branch.next_id("approve"),
        f"Approve {call.name}({_shown(call, bound, hider)})?",
        schema_of(bool | _Verdict),
        digest(recorded_args(call, bound, hider)[0]),
        by,
        _until(branch, within),
    )
    approvals = branch.drive.approvals
    approvals.put(call.name)
    async with timeout(within):
        said, event = await branch.drive.question(asked, bool | _Verdict)
    verdict = _Verdict(said) if isinstance(said, bool) else said
    if verdict.granted:
        approvals.grant(call.name, asked.digest)
    at = _instant(branch)
    return Approval(granted=verdict.granted, by=event.by, at=at, note=verdict.note)


def _shown(call: Definition, bound: Bound, hider: Hider) -> str:
    """The arguments that count, as a person reads them."""
    values = {name: repr(value) for name, value in shown_args(call, bound, hider)}
    text = ", ".join(f"{name}={value}" for name, value in values.items())
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def _instant(branch: Branch) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=branch.drive.now_ms())


def _until(branch: Branch, within: Duration | None) -> int | None:
    """When a question's own limit passes, for those who look at it from outside."""
    return None if within is None else branch.drive.now_ms() + milliseconds(within)


def _text(text: str) -> str:
    if not is_text(text) or not text or len(text) > TEXT_CHARS_MAX:
        raise DefinitionRefused(
            f"a question is a text of 1 to {TEXT_CHARS_MAX:,} characters (no lone surrogate)"
        )
    return text


class Request(Generic[T]):
    """A message that wants a reply: its ``id``, its ``value``."""

    __slots__ = ("_branch", "id", "value")

    def __init__(self, branch: Branch, request_id: str, value: T) -> None:
        self._branch = branch
        self.id, self.value = request_id, value

    @awaited
    async def reply(self, value: object) -> None:
        """Answer it; whoever asked gets this, once."""
        self._branch.drive.reply(self.id, value)


class RequestsVerb(Protocol):
    """Brings messages of a type, one after another."""

    @overload
    def __call__(
        self, name: str, type: type[T], idle: Duration | None = None
    ) -> AsyncIterator[Request[T]]: ...
    @overload
    def __call__(
        self, name: str, type: Any = Any, idle: Duration | None = None
    ) -> AsyncIterator[Request[Any]]: ...


@typed[RequestsVerb]()
@awaited
async def requests(
    name: str, type: Any = Any, idle: Duration | None = None
) -> AsyncIterator[Request[Any]]:
    """Messages of that name, one after another, until none came for ``idle``.

    One of another type does not reach the flow: whoever sent it is told so.
    """
    branch = branch_for("outlive.requests")
    while True:
        try:
            async with timeout(idle):
                event = await branch.drive.signal(branch, name)
        except TimedOut:
            return
        try:
            value = branch.drive.taken(event, type)
        except ValueRefused as refused:
            branch.drive.refuse(event.signal_id, refused)
        else:
            yield Request(branch, event.signal_id, value)
