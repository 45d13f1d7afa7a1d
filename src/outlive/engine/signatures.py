"""What type checkers see of verbs that take a flow and its arguments.

A ``ParamSpec`` leaves no room for options after the arguments, so each verb has four overloads:
arguments alone; positional arguments with options, for async flows and for plain ones; arguments by
name with options. The last does not check the arguments: write ``flow.options(id=...)`` instead to
have them checked.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import (
    Any,
    Generic,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    TypeVarTuple,
    Unpack,
    cast,
    overload,
)

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
V = TypeVar("V")
Ts = TypeVarTuple("Ts")


class Startable(Protocol[P, T_co]):
    """A flow, async or plain, by what its runs take and return. Nobody calls this."""

    def returns(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """The outcome's type."""
        ...


class typed(Generic[V]):  # noqa: N801  # a decorator: ``@typed[CallVerb]()``
    """Show a function to type checkers as this verb; at run time it stays what it is."""

    def __call__(self, verb: Callable[..., Any]) -> V:
        return cast(V, verb)


class IdOption(TypedDict, total=False):
    """The option of verbs that only name the run."""

    id: str | None


class CallVerb(Protocol):
    """Starts a run and waits for its outcome."""

    @overload
    def __call__(
        self, flow: Startable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        **options: Unpack[IdOption],
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def __call__(
        self, flow: Callable[[Unpack[Ts]], T], /, *args: *Ts, **options: Unpack[IdOption]
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def __call__(
        self, flow: Startable[..., T], /, *, id: str, **kwargs: Any
    ) -> Coroutine[Any, Any, T]: ...


class PlainCallVerb(Protocol):
    """``CallVerb`` in plain code."""

    @overload
    def __call__(self, flow: Startable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def __call__(
        self,
        flow: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        /,
        *args: *Ts,
        **options: Unpack[IdOption],
    ) -> T: ...
    @overload
    def __call__(
        self, flow: Callable[[Unpack[Ts]], T], /, *args: *Ts, **options: Unpack[IdOption]
    ) -> T: ...
    @overload
    def __call__(self, flow: Startable[..., T], /, *, id: str, **kwargs: Any) -> T: ...


class SpawnVerb(Protocol):
    """Starts a run and returns its id."""

    @overload
    def __call__(
        self, flow: Startable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, str]: ...
    @overload
    def __call__(
        self, flow: Callable[[Unpack[Ts]], Any], /, *args: *Ts, id: str | None = None
    ) -> Coroutine[Any, Any, str]: ...
    @overload
    def __call__(
        self, flow: Startable[..., Any], /, *, id: str, **kwargs: Any
    ) -> Coroutine[Any, Any, str]: ...


class PlainSpawnVerb(Protocol):
    """``SpawnVerb`` in plain code."""

    @overload
    def __call__(self, flow: Startable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> str: ...
    @overload
    def __call__(
        self, flow: Callable[[Unpack[Ts]], Any], /, *args: *Ts, id: str | None = None
    ) -> str: ...
    @overload
    def __call__(self, flow: Startable[..., Any], /, *, id: str, **kwargs: Any) -> str: ...
