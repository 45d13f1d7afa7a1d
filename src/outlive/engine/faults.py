"""Exceptions to and from the journal: a name, a text, plain arguments.

A type comes back only if it is built in, one of ours, or declared by the step (``raises=``), and
only if it can be made again so that it says the same; anything else comes back as ``StepFailed``.
Nothing is looked up by a name found in data except in these closed tables, and the flow sees the
same live as on replay.
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
    return Fault(_name_of(type(error), own or {}), text_of(error), _encode_args(error, codec))


def _name_of(cls: type[BaseException], own: Mapping[str, type[BaseException]]) -> str:
    """A name under which no other type comes back."""
    name, full = cls.__qualname__, _full_name(cls)
    if _known(name, own) in (None, cls):
        return name
    return full if own.get(full, cls) is cls else f"another {full}"


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


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
    """The table of a step's own exception types; of two with one name the first has it alone."""
    table: dict[str, type[BaseException]] = {}
    for cls in raises:
        table.setdefault(cls.__qualname__, cls)
        table.setdefault(_full_name(cls), cls)
    return table


def with_subclasses(raises: Sequence[type[BaseException]]) -> tuple[type[BaseException], ...]:
    """Declared types, then those derived from them so far.

    Which there are must not depend on what bodies import later. What is built in is declared
    without its many subclasses.
    """
    found = dict.fromkeys(raises)
    for cls in raises:
        if cls.__module__ != "builtins":
            found |= dict.fromkeys(with_subclasses(cls.__subclasses__()))
    return tuple(found)


def exception_of(
    fault: Fault, own: Mapping[str, type[BaseException]], codec: Codec
) -> BaseException:
    """The exception that the flow gets."""
    failed = StepFailed(fault.type_name, fault.message)
    cls = _known(fault.type_name, own)
    if cls is None:
        return failed
    names = _own_parameters(cls) if issubclass(cls, OutliveError) else []
    if fault.args:
        args = codec.decode(fault.args)
    elif issubclass(cls, OutliveError) and not names:
        args = (fault.message,)  # the engine itself says it so
    else:
        return failed
    try:
        error = cls(**dict(zip(names, args, strict=True))) if names else cls(*args)
    except Exception:
        return failed
    is_faithful = cls.__module__ == "builtins" or text_of(error) == fault.message
    return error if is_faithful else failed


def _own_parameters(cls: type[BaseException]) -> list[str]:
    """The names that an exception of ours is made from; none if it takes what all do."""
    init = cls.__init__
    return list(inspect.signature(init).parameters)[1:] if inspect.isfunction(init) else []
