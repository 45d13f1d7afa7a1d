"""Handles for plain code: the verbs of the async handle, each of which blocks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, TypeVarTuple, Unpack, overload

from outlive.app import handle as async_handle
from outlive.app.feed import RunEvent
from outlive.app.mail import Question
from outlive.app.signatures import EnsureOption, SubmitOptions
from outlive.app.streams import Chunk
from outlive.engine.notices import OnWait
from outlive.engine.signatures import IdOption, Startable
from outlive.model.events import Event
from outlive.model.retry import Duration
from outlive.model.run import Run
from outlive.model.usage import Usage

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
R = TypeVar("R")


class Call(Protocol):
    """Awaits this on the app's loop and blocks until it ends."""

    def __call__(self, work: Callable[[], Awaitable[R]], /) -> R: ...


class Handle(Generic[T]):
    """One run: its status, its outcome, its events, and what it is told."""

    def __init__(self, handle: async_handle.Handle[T], call: Call) -> None:
        self.id = handle.id
        self._handle, self._call = handle, call

    def __repr__(self) -> str:
        return repr(self._handle)

    def status(self) -> str:
        """The run's status."""
        return self._call(self._handle.status)

    def outcome(self, timeout: Duration | None = None, on_wait: OnWait = "log") -> T:
        """What the flow returned, once it has; raises ``RunFailed`` if it failed.

        What the run waits for meanwhile is logged, or raised with ``on_wait="raise"``.
        """
        return self._call(partial(self._handle.outcome, timeout, on_wait))

    def run(self) -> Run:
        """The state of the run: the fold of its journal."""
        return self._call(self._handle.run)

    def read(self) -> list[Event]:
        """All events so far, verified."""
        return self._call(self._handle.read)

    def usage(self) -> dict[str, Usage]:
        """What models were used for in this run, by model, as far as it is durable."""
        return self._call(self._handle.usage)

    def published(self) -> dict[str, Any]:
        """The newest value of each name that the run published, as far as it is durable."""
        return self._call(self._handle.published)

    def stream(self, name: str, after: int = 0) -> Iterator[Chunk]:
        """The chunks of a stream behind an offset, as they become durable, until the run is over.

        A chunk with ``reset`` withdraws what its ``step`` wrote before.
        """
        found: Any = self._handle.stream(name, after)
        try:
            while (chunk := self._call(partial(anext, found, None))) is not None:
                yield chunk
        finally:
            self._call(found.aclose)

    def events(self, after: int = 0) -> Iterator[RunEvent]:
        """Every event after a seq, as it becomes durable, until the run is over."""
        found: Any = self._handle.events(after)
        try:
            while (event := self._call(partial(anext, found, None))) is not None:
                yield event
        finally:
            self._call(found.aclose)

    def fork(
        self,
        at: int | None = None,
        set: Mapping[str, object] | None = None,
        id: str | None = None,
        by: str = "",
    ) -> Handle[T]:
        """Start a run that continues after event ``at`` of this one, or after a step, set anew."""
        return Handle(self._call(partial(self._handle.fork, at, set, id, by)), self._call)

    # mail

    def cancel(self, by: str = "") -> None:
        """Ask the run to stop: at its next durable point, what happened is undone."""
        self._call(partial(self._handle.cancel, by))

    def signal(self, name: str, value: object = None, id: str | None = None, by: str = "") -> bool:
        """Send a signal, kept until the flow takes it; False if that id was sent before."""
        return self._call(partial(self._handle.signal, name, value, id, by))

    def question(self, timeout: Duration | None = None) -> Question:
        """The first question that the run asks, as soon as it asks one."""
        return self._call(partial(self._handle.question, timeout))

    def questions(self) -> list[Question]:
        """The questions that the run asks and nobody has answered yet."""
        return self._call(self._handle.questions)

    def answer(
        self, value: object, question_id: str | Question | None = None, by: str = ""
    ) -> Question:
        """Answer the only open question, or the one named; which one it was is returned."""
        return self._call(partial(self._handle.answer, value, question_id, by))

    def request(
        self,
        name: str,
        value: object,
        id: str | None = None,
        timeout: Duration | None = None,
        type: Any = Any,
    ) -> Any:
        """Send a message and wait for the flow's reply; the same id again gets the same reply."""
        return self._call(partial(self._handle.request, name, value, id, timeout, type))


class PlainStartVerb(Protocol):
    """``StartVerb`` in plain code."""

    @overload
    def __call__(
        self, flow: Startable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[T]: ...
    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        **options: Unpack[IdOption],
    ) -> Handle[T]: ...
    @overload
    def __call__(
        self, flow: Callable[[Unpack[Ts]], T], /, *args: *Ts, **options: Unpack[IdOption]
    ) -> Handle[T]: ...
    @overload
    def __call__(self, flow: Startable[..., T], /, *, id: str, **kwargs: Any) -> Handle[T]: ...


class PlainEnsureVerb(Protocol):
    """``EnsureVerb`` in plain code."""

    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        **options: Unpack[EnsureOption],
    ) -> Handle[T]: ...
    @overload
    def __call__(
        self, flow: Callable[[Unpack[Ts]], T], /, *args: *Ts, **options: Unpack[EnsureOption]
    ) -> Handle[T]: ...
    @overload
    def __call__(self, flow: Startable[..., T], /, *, id: str, **kwargs: Any) -> Handle[T]: ...


class PlainSubmitVerb(Protocol):
    """``SubmitVerb`` in plain code."""

    @overload
    def __call__(
        self, flow: Startable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[T]: ...
    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        **options: Unpack[SubmitOptions],
    ) -> Handle[T]: ...
    @overload
    def __call__(
        self, flow: Callable[[Unpack[Ts]], T], /, *args: *Ts, **options: Unpack[SubmitOptions]
    ) -> Handle[T]: ...
    @overload
    def __call__(
        self,
        flow: Startable[..., T],
        /,
        *,
        id: str | None = None,
        queue: str | None = None,
        tags: Mapping[str, str] | None = None,
        deadline: Duration | datetime | None = None,
        queue_key: str | None = None,
        priority: int | None = None,
        units: int | None = None,
        connection: Any = None,
        **kwargs: Any,
    ) -> Handle[T]: ...
    @overload
    def __call__(
        self,
        flow: str,
        /,
        *args: Any,
        id: str | None = None,
        queue: str | None = None,
        tags: Mapping[str, str] | None = None,
        deadline: Duration | datetime | None = None,
        queue_key: str | None = None,
        priority: int | None = None,
        units: int | None = None,
        connection: Any = None,
        **kwargs: Any,
    ) -> Handle[Any]: ...
