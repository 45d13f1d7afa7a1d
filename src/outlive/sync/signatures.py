"""What type checkers are told of the blocking verbs that start runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import Any, ParamSpec, Protocol, TypeVar, TypeVarTuple, Unpack, overload

from outlive.engine.signatures import Startable
from outlive.model.retry import Duration
from outlive.sync.handle import Handle

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class StartVerb(Protocol):
    """Starts a run here."""

    @overload
    def __call__(
        self,
        flow: Startable[P, T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Handle[T]: ...
    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        id: str | None = None,
    ) -> Handle[T]: ...
    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], T],
        /,
        *args: *Ts,
        id: str | None = None,
    ) -> Handle[T]: ...
    @overload
    def __call__(
        self,
        flow: Startable[..., T],
        /,
        *,
        id: str,
        **kwargs: Any,
    ) -> Handle[T]: ...


class EnsureVerb(Protocol):
    """Starts a run unless there is one of that id."""

    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        id: str,
    ) -> Handle[T]: ...
    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], T],
        /,
        *args: *Ts,
        id: str,
    ) -> Handle[T]: ...
    @overload
    def __call__(
        self,
        flow: Startable[..., T],
        /,
        *,
        id: str,
        **kwargs: Any,
    ) -> Handle[T]: ...


class SubmitVerb(Protocol):
    """Starts a run that a worker drives; by its name, if the code is elsewhere."""

    @overload
    def __call__(
        self,
        flow: Startable[P, T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Handle[T]: ...
    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        id: str | None = None,
        queue: str | None = None,
        tags: Mapping[str, str] | None = None,
        deadline: Duration | datetime | None = None,
        queue_key: str | None = None,
        priority: int | None = None,
        units: int | None = None,
        connection: Any = None,
    ) -> Handle[T]: ...
    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], T],
        /,
        *args: *Ts,
        id: str | None = None,
        queue: str | None = None,
        tags: Mapping[str, str] | None = None,
        deadline: Duration | datetime | None = None,
        queue_key: str | None = None,
        priority: int | None = None,
        units: int | None = None,
        connection: Any = None,
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
