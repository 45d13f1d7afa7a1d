"""From a call to named arguments, fast: a binder compiled from the function's signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any

from outlive.errors import DefinitionRefused

Bound = dict[str, Any]


def compile_binder(signature: Signature, name: str) -> Callable[..., Bound]:
    """A function with the same parameters that returns them by name, defaults filled in.

    Called with the wrong arguments it raises what ``name`` would.
    """
    parts: list[str] = []
    defaults: dict[str, Any] = {}
    parameters = list(signature.parameters.values())
    for position, parameter in enumerate(parameters):
        if parameter.kind is Parameter.KEYWORD_ONLY and not _has_star(parameters[:position]):
            parts.append("*")
        parts.append(_declare(parameter, defaults))
        if _ends_positional_only(parameters, position):
            parts.append("/")
    names = ", ".join(f"{name!r}: {name}" for name in signature.parameters)
    source = f"def bind({', '.join(parts)}):\n    return {{{names}}}"
    space: dict[str, Any] = {"_defaults": defaults}
    exec(source, space)  # the source holds only this signature's own parameter names
    binder: Any = space["bind"]
    binder.__name__ = binder.__qualname__ = name
    return binder  # type: ignore[no-any-return]  # it was made here


def _has_star(before: list[Parameter]) -> bool:
    stars = (Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL)
    return any(parameter.kind in stars for parameter in before)


def _ends_positional_only(parameters: list[Parameter], position: int) -> bool:
    here = parameters[position].kind is Parameter.POSITIONAL_ONLY
    after = parameters[position + 1 : position + 2]
    return here and not (after and after[0].kind is Parameter.POSITIONAL_ONLY)


def _declare(parameter: Parameter, defaults: dict[str, Any]) -> str:
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    if parameter.kind is Parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    if parameter.default is Parameter.empty:
        return parameter.name
    defaults[parameter.name] = parameter.default
    return f"{parameter.name}=_defaults[{parameter.name!r}]"


class Unbinder:
    """From named arguments back to a call."""

    def __init__(self, signature: Signature) -> None:
        self._parameters = list(signature.parameters.values())

    def call(self, bound: Mapping[str, Any]) -> tuple[list[Any], Bound]:
        """Positional and keyword arguments of a call that means the same."""
        args: list[Any] = []
        kwargs: Bound = {}
        for parameter in self._parameters:
            value = bound[parameter.name]
            match parameter.kind:
                case Parameter.POSITIONAL_ONLY | Parameter.POSITIONAL_OR_KEYWORD:
                    args.append(value)
                case Parameter.VAR_POSITIONAL:
                    args.extend(value)
                case Parameter.KEYWORD_ONLY:
                    kwargs[parameter.name] = value
                case Parameter.VAR_KEYWORD:
                    kwargs.update(value)
        return args, kwargs


def complete(signature: Signature, recorded: Mapping[str, Any]) -> Bound:
    """Recorded arguments for today's signature: parameters that came later take their default.

    Raises:
        TypeError: the function can't be called with what was recorded.
    """
    bound: Bound = {}
    for name, parameter in signature.parameters.items():
        bound[name] = recorded.get(name, parameter.default)
        if bound[name] is Parameter.empty:
            raise TypeError(f"it was recorded without {name!r}, which has no default")
    gone = sorted(set(recorded) - set(bound))
    if gone:
        raise TypeError(f"it was recorded with {', '.join(gone)}, which is no parameter now")
    return bound


def signature_of(fn: Callable[..., Any]) -> Signature:
    """The function's signature, or a clear refusal."""
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError) as error:
        raise DefinitionRefused(f"{fn!r} has no signature to record arguments by") from error


def is_async(fn: Callable[..., Any]) -> bool:
    """Calling it gives a coroutine: it is an ``async def``, or an object that is called so."""
    call = getattr(fn, "__call__", None)  # noqa: B004  # of an object that is called
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)


def call_by_name(fn: Callable[..., Any], offered: Mapping[str, Any]) -> Any:
    """Call ``fn`` with those of the offered values that its signature has."""
    parameters = inspect.signature(fn).parameters.values()
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return fn(**offered)
    return fn(**{p.name: offered[p.name] for p in parameters if p.name in offered})
