"""What type checkers see of the verbs that start runs; see ``engine.signatures``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import (
    Any,
    ParamSpec,
    Protocol,
    Required,
    TypedDict,
    TypeVar,
    TypeVarTuple,
    Unpack,
    overload,
)

from outlive.app.handle import Handle
from outlive.engine.notices import OnWait
from outlive.engine.signatures import IdOption, Startable
from outlive.model.retry import Duration

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class AppRunOptions(IdOption, total=False):
    """Options of ``app.run``."""

    on_wait: OnWait


class RunVerbOptions(AppRunOptions, total=False):
    """Options of ``outlive.run``."""

    store: str | None


class EnsureOption(TypedDict):
    """The option of ``ensure``."""

    id: Required[str]


class SubmitOptions(IdOption, total=False):
    """Options of ``submit``."""

    queue: str | None
    tags: Mapping[str, str] | None
    deadline: Duration | datetime | None
    queue_key: str | None
    priority: int | None
    units: int | None
    connection: Any


class RunVerb(Protocol):
    """Blocking: starts a run and returns its outcome."""

    @overload
    def __call__(self, flow: Startable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        **options: Unpack[RunVerbOptions],
    ) -> T: ...
    @overload
    def __call__(
        self, flow: Callable[[Unpack[Ts]], T], /, *args: *Ts, **options: Unpack[RunVerbOptions]
    ) -> T: ...
    @overload
    def __call__(
        self,
        flow: Startable[..., T],
        /,
        *,
        id: str,
        store: str | None = None,
        on_wait: OnWait = ...,
        **kwargs: Any,
    ) -> T: ...
    @overload
    def __call__(
        self,
        flow: Startable[..., T],
        /,
        *,
        on_wait: OnWait,
        id: str | None = None,
        store: str | None = None,
        **kwargs: Any,
    ) -> T: ...


class AppRunVerb(Protocol):
    """``RunVerb`` on the store of an app."""

    @overload
    def __call__(self, flow: Startable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        **options: Unpack[AppRunOptions],
    ) -> T: ...
    @overload
    def __call__(
        self, flow: Callable[[Unpack[Ts]], T], /, *args: *Ts, **options: Unpack[AppRunOptions]
    ) -> T: ...
    @overload
    def __call__(
        self, flow: Startable[..., T], /, *, id: str, on_wait: OnWait = ..., **kwargs: Any
    ) -> T: ...
    @overload
    def __call__(
        self,
        flow: Startable[..., T],
        /,
        *,
        on_wait: OnWait,
        id: str | None = None,
        **kwargs: Any,
    ) -> T: ...


class StartVerb(Protocol):
    """Starts a run here."""

    @overload
    def __call__(
        self, flow: Startable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Handle[T]]: ...
    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        **options: Unpack[IdOption],
    ) -> Coroutine[Any, Any, Handle[T]]: ...
    @overload
    def __call__(
        self, flow: Callable[[Unpack[Ts]], T], /, *args: *Ts, **options: Unpack[IdOption]
    ) -> Coroutine[Any, Any, Handle[T]]: ...
    @overload
    def __call__(
        self, flow: Startable[..., T], /, *, id: str, **kwargs: Any
    ) -> Coroutine[Any, Any, Handle[T]]: ...


class EnsureVerb(Protocol):
    """Starts a run unless there is one of that id."""

    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        **options: Unpack[EnsureOption],
    ) -> Coroutine[Any, Any, Handle[T]]: ...
    @overload
    def __call__(
        self, flow: Callable[[Unpack[Ts]], T], /, *args: *Ts, **options: Unpack[EnsureOption]
    ) -> Coroutine[Any, Any, Handle[T]]: ...
    @overload
    def __call__(
        self, flow: Startable[..., T], /, *, id: str, **kwargs: Any
    ) -> Coroutine[Any, Any, Handle[T]]: ...


class SubmitVerb(Protocol):
    """Starts a run that a worker drives; by the flow's name, if the code is elsewhere."""

    @overload
    def __call__(
        self, flow: Startable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Handle[T]]: ...
    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        **options: Unpack[SubmitOptions],
    ) -> Coroutine[Any, Any, Handle[T]]: ...
    @overload
    def __call__(
        self, flow: Callable[[Unpack[Ts]], T], /, *args: *Ts, **options: Unpack[SubmitOptions]
    ) -> Coroutine[Any, Any, Handle[T]]: ...
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
    ) -> Coroutine[Any, Any, Handle[T]]: ...
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
    ) -> Coroutine[Any, Any, Handle[Any]]: ...
