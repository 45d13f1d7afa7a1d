"""Exceptions to and from the journal: a name, a text, plain arguments, and the user's frames.

A type comes back only if it is built in, one of ours, or declared by the step (``raises=``), and
always says the same again; anything else comes back as ``StepFailed``. A declared type that no
code can make an instance of is refused at the declaration.
Nothing is looked up by a name found in data except in these closed tables, and the flow sees the
same live as on replay. Where it was raised comes back as a note.
"""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outlive import errors
from outlive.errors import DefinitionRefused, OutliveError, StepFailed, ValueRefused
from outlive.journal.codec.codec import Codec
from outlive.model.events import Fault

MESSAGE_CHARS_MAX = 20_000
#: Of an exception with all that led to it.
FRAMES_MAX = 32
CAUSES_MAX = 8
NOTE_CHARS_MAX = 4_000
#: Marks a type of ours that only says what was recorded.
_IS_SAID = "_outlive_is_said"
#: Frames of ours are left out; and those of Python's own that call a body.
_OWN = str(Path(errors.__file__).parents[1]) + os.sep
_BEGINS = tuple(
    str(Path(module.__file__ or "").parent) + os.sep for module in (asyncio, concurrent.futures)
)


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
    own = own or {}
    name, args, state = _name_of(type(error), own), _encode_args(error, codec), b""
    if own.get(name) is type(error) and not (args and _is_made_from_args(error, codec)):
        args = args or codec.encode((text_of(error),))  # what most make their text of
        state = _encode_state(error, codec)
    return Fault(name, text_of(error), args, trace_of(error), state)


def _is_made_from_args(error: BaseException, codec: Codec) -> bool:
    """Whether its constructor, given its ``args``, makes one that says and has the same."""
    try:
        made = type(error)(*_args(error))
        has = vars(made)
        for name, value in vars(error).items():
            is_left_out = name in has and has[name] is None and not _can_record(value, codec)
            if name != "__notes__" and not is_left_out and (name not in has or has[name] != value):
                return False
    except Exception:
        return False
    return text_of(made) == text_of(error)


def _can_record(value: object, codec: Codec) -> bool:
    try:
        codec.encode(value)
    except ValueRefused:
        return False
    return True


def _encode_state(error: BaseException, codec: Codec) -> bytes:
    """Those of its attributes that can be recorded."""
    state: dict[str, Any] = {}
    members = {name: getattr(error, name, None) for name in _members(type(error))}
    for name, value in (members | vars(error)).items():
        if name != "__notes__" and _can_record(value, codec):
            state[name] = value
    return codec.encode(state)


def _members(cls: type[BaseException]) -> list[str]:
    """Its attributes that are not in its ``__dict__``."""
    names = ["errno", "strerror", "filename", "filename2"] if issubclass(cls, OSError) else []
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return names


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


def trace_of(error: BaseException) -> str:
    """Where it was raised, and what led to it: frames of users and libraries, not of ours.

    Their files, lines and functions; no variables and no source.
    """
    lines: list[str] = []
    seen: set[int] = set()
    todo = [("", error)]
    left = FRAMES_MAX
    while todo and len(seen) < CAUSES_MAX:
        how, here = todo.pop(0)
        if id(here) in seen:
            continue
        seen.add(id(here))
        frames = frames_of(here, left)
        left -= len(frames)
        if how:
            lines.append(f"{how} {type(here).__qualname__}: {text_of(here)[:NOTE_CHARS_MAX]}")
        lines += frames
        lines += [str(note)[:NOTE_CHARS_MAX] for note in getattr(here, "__notes__", ())]
        todo += _led_to(here)
    return "\n".join(lines).encode("utf-8", "replace").decode()[:MESSAGE_CHARS_MAX]


def _led_to(error: BaseException) -> list[tuple[str, BaseException]]:
    found: list[tuple[str, BaseException]] = []
    if error.__cause__ is not None:
        found.append(("caused by", error.__cause__))
    elif error.__context__ is not None and not error.__suppress_context__:
        found.append(("raised while handling", error.__context__))
    if isinstance(error, BaseExceptionGroup):
        found += [("one of them:", each) for each in error.exceptions]
    return found


def frames_of(error: BaseException, limit: int = FRAMES_MAX) -> list[str]:
    """Its frames, the innermost last; of too many, the outermost and the innermost."""
    found: list[str] = []
    at = error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        is_begin = not found and code.co_filename.startswith(_BEGINS)
        if not code.co_filename.startswith(_OWN) and not is_begin:
            found.append(f'  File "{code.co_filename}", line {at.tb_lineno}, in {code.co_qualname}')
        at = at.tb_next
    if len(found) <= limit:
        return found
    outer = limit // 4
    return found[:outer] + found[len(found) - (limit - outer) :]


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


def check_restorable(raises: Sequence[type[BaseException]]) -> None:
    """Refuse types of which no instance can be made from what is recorded."""
    for cls in raises:
        try:
            if cls.__module__ != "builtins":
                blank(cls)
        except Exception:
            raise DefinitionRefused(
                f"raises=: no {_full_name(cls)} can be made again from a record of one; leave it "
                f"out and catch errors.StepFailed, whose type_name is {cls.__qualname__!r}, or "
                "raise an error of your own from it in the body"
            ) from None


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
            derived = [each for each in cls.__subclasses__() if _IS_SAID not in vars(each)]
            found |= dict.fromkeys(with_subclasses(derived))
    return tuple(found)


def exception_of(
    fault: Fault, own: Mapping[str, type[BaseException]], codec: Codec, where: str = ""
) -> BaseException:
    """The exception that the flow gets; a note says where it was raised."""
    error = _made_again(fault, own, codec)
    if fault.trace:
        error.add_note(f"raised in {where}:\n{fault.trace}" if where else fault.trace)
    return error


def _made_again(
    fault: Fault, own: Mapping[str, type[BaseException]], codec: Codec
) -> BaseException:
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
        if fault.state and cls in own.values():
            error = _with_state(cls, args, codec.decode(fault.state))
        else:
            error = cls(**dict(zip(names, args, strict=True))) if names else cls(*args)
        if cls.__module__ == "builtins" or text_of(error) == fault.message:
            return error
        return _saying(fault.message, error) if cls in own.values() else failed
    except Exception:
        return failed


def _with_state(
    cls: type[BaseException], args: Sequence[Any], state: Mapping[str, Any]
) -> BaseException:
    """An error with these attributes, whatever its constructor takes."""
    error = blank(cls, args)
    error.args = tuple(args)
    members = _members(cls)
    for name, value in state.items():
        if name in members:
            object.__setattr__(error, name, value)
        else:
            vars(error)[name] = value
    return error


def blank(cls: type[BaseException], args: Sequence[Any] = ()) -> BaseException:
    """An error that no ``__init__`` has seen; ``TypeError``: nobody can make one."""
    try:
        return cls.__new__(cls, *args)
    except Exception:
        base = next(each for each in cls.__mro__ if each.__module__ == "builtins")
        made: BaseException = base.__new__(cls, *args)
        return made


def _saying(text: str, error: BaseException) -> BaseException:
    """The same error where it makes its text of what can't be recorded."""
    cls = type(error)
    told = {"__str__": lambda _: text, "__repr__": lambda _: f"{cls.__qualname__}({text!r})"}
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__slots__": ()}
    error.__class__ = type(cls.__name__, (cls,), {**names, **told, _IS_SAID: True})
    return error


def _own_parameters(cls: type[BaseException]) -> list[str]:
    """The names that an exception of ours is made from; none if it takes what all do."""
    init = cls.__init__
    return list(inspect.signature(init).parameters)[1:] if inspect.isfunction(init) else []
