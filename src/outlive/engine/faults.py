"""Exceptions to and from the journal: a name, a text, plain arguments.

A type comes back only if it is built in, one of ours, or declared by the step (``raises=``);
anything else comes back as ``StepFailed``. Nothing is looked up by a name found in data except in
these closed tables, and the flow sees the same live as on replay.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from outlive import errors
from outlive.errors import OutliveError, StepFailed, ValueRefused
from outlive.journal.codec import Codec
from outlive.model.events import Fault

MESSAGE_CHARS_MAX = 20_000


def _exceptions_of(module: Any) -> dict[str, type[Exception]]:
    found = {}
    for name, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, Exception):
            found[name] = value
    return found


_BUILTIN = _exceptions_of(builtins)
_OURS = {name: cls for name, cls in _exceptions_of(errors).items() if issubclass(cls, OutliveError)}


def fault_of(
    error: BaseException, codec: Codec, own: Mapping[str, type[BaseException]] | None = None
) -> Fault:
    """What is recorded of an exception; ``own`` are the types that its step declares."""
    cls = type(error)
    name = cls.__qualname__
    if _known(name, own or {}) not in (None, cls):
        # A namesake of a type that would come back: it must not come back as that one.
        name = f"{cls.__module__}.{name}"
    return Fault(name, text_of(error), _encode_args(error, codec))


def _known(name: str, own: Mapping[str, type[BaseException]]) -> type[BaseException] | None:
    """The type that comes back under this name."""
    return own.get(name) or _BUILTIN.get(name) or _OURS.get(name)


def text_of(error: BaseException) -> str:
    """What it says, whatever its own code does when it is asked."""
    try:
        text = str(error)
        if isinstance(error, BaseExceptionGroup):
            # A group's own text names none of those in it.
            text += "".join(f"; {type(each).__qualname__}: {each}" for each in error.exceptions)
    except Exception:
        text = "(its text can't be made)"
    return text.encode("utf-8", "replace").decode()[:MESSAGE_CHARS_MAX]


def _args(error: BaseException) -> tuple[Any, ...]:
    try:
        return tuple(error.args)
    except Exception:
        return ()  # a property of the user's that fails


def _encode_args(error: BaseException, codec: Codec) -> bytes:
    args = _args(error)
    if isinstance(error, OutliveError):
        names = _own_parameters(type(error))
        if names and all(hasattr(error, name) for name in names):
            args = tuple(getattr(error, name) for name in names)
    elif isinstance(error, OSError) and type(error) in _BUILTIN.values() and error.filename:
        args = (error.errno, error.strerror, error.filename, None, error.filename2)
    try:
        return codec.encode(args)
    except ValueRefused:
        return b""


def declared(raises: Sequence[type[BaseException]]) -> Mapping[str, type[BaseException]]:
    """The table of a step's own exception types."""
    return {cls.__qualname__: cls for cls in raises}


def exception_of(
    fault: Fault, own: Mapping[str, type[BaseException]], codec: Codec
) -> BaseException:
    """The exception that the flow gets."""
    cls = _known(fault.type_name, own)
    if cls is None or not fault.args:
        return StepFailed(fault.type_name, fault.message)
    args = codec.decode(fault.args)
    try:
        names = _own_parameters(cls) if issubclass(cls, OutliveError) else []
        error = cls(**dict(zip(names, args, strict=True))) if names else cls(*args)
    except Exception:
        return StepFailed(fault.type_name, fault.message)
    return error


def _own_parameters(cls: type[BaseException]) -> list[str]:
    """The names that an exception of ours is made from; none if it takes what all do."""
    init = cls.__init__
    return list(inspect.signature(init).parameters)[1:] if inspect.isfunction(init) else []
