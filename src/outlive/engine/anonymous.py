"""``outlive.do``: a step or effect that nobody declared, named where it is called.

What a declaration would work out once (how arguments are bound, which types may be recorded) is
the function's shape, and is kept by its code: closures, bound methods and partials that are made
anew for every call have the shape of the first. What they hold is theirs, and is not recorded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from inspect import Parameter, Signature, isawaitable
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, TypeVar, TypeVarTuple, Unpack, overload

from outlive.engine.decorators import Errors, effect, step
from outlive.engine.definitions import Definition, check_name
from outlive.engine.place import Body, Branch, place, refuse_plain
from outlive.errors import DefinitionRefused, NotInRun
from outlive.model.decide import Doubt
from outlive.model.defaults import EFFECT_TIMEOUT_SECONDS, SETTLE_AFTER_SECONDS
from outlive.model.ids import NAME_CHARS_MAX
from outlive.model.retry import ONCE, Duration, Retry

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Ids of calls as models make them.
_ORDINARY = re.compile(r"[\w.~-]+", re.ASCII).fullmatch
#: Shapes that are kept; functions made from text at run time could be any number.
SHAPES_MAX = 1000


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """The options of ``@outlive.step``, for ``outlive.do(..., step=...)``."""

    retry: Retry = ONCE
    timeout: Duration | None = None
    raises: Errors = ()
    ignore: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EffectOptions:
    """The options of ``@outlive.effect``, for ``outlive.do(..., effect=...)``."""

    key: str | Callable[..., str] | None = None
    check: Callable[..., Any] | None = None
    undo: Callable[..., Any] | None = None
    not_happened: Errors = ()
    doubt: Doubt | None = None
    timeout: Duration = EFFECT_TIMEOUT_SECONDS
    settle_after: Duration = SETTLE_AFTER_SECONDS
    retry: Retry = ONCE
    raises: Errors = ()
    ignore: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()


class Anonymous(Definition):
    """A step or effect that was made by a call, for that call alone."""

    def learn_async(self) -> None:
        """Its plain function returned a coroutine: what has its shape is awaited from here on."""
        own = vars(self)
        own["is_async"] = own["_shape"].parts["is_async"] = True


#: What a definition works out when it is first needed.
_WORKED_OUT = (
    *("is_async", "signature", "bind", "extra", "unbinder"),
    *("args_codec", "value_codec", "own_errors"),
)


class _Call(NamedTuple):
    """A call of ``do``."""

    name: str
    fn: Any
    #: The number of arguments.
    given: int
    is_effect: bool
    options: Any


class CallShape:
    """A definition without its function, and what that must have in common with the next."""

    def __init__(self, call: _Call) -> None:
        definition = _declared(call)
        for each in _WORKED_OUT:
            getattr(definition, each)
        self.parts = dict(vars(definition))
        del self.parts["fn"]
        inner = _innermost(call.fn)
        #: Known by their addresses, so they must not go.
        self._codes = list(_codes_of(call.fn))
        #: Those of a step are no arguments of the call.
        self._defaults = _defaults_of(inner) if call.is_effect else None
        self._annotations = inner.__annotations__
        self._named = _named_cells(inner)
        self._cells = _contents(inner, self._named)

    def fits(self, fn: Any) -> bool:
        """Functions of one code may differ in their defaults and annotations."""
        inner = _innermost(fn)
        return (
            (self._defaults is None or _are_same(self._defaults, _defaults_of(inner)))
            and (
                self._annotations is inner.__annotations__
                or self._annotations == inner.__annotations__
            )
            and (not self._named or _are_same(self._cells, _contents(inner, self._named)))
        )

    def definition(self, fn: Any) -> Anonymous:
        """What the engine needs of one call."""
        made = object.__new__(Anonymous)
        own = vars(made)
        own.update(self.parts)
        own["fn"], own["_shape"] = fn, self
        return made


class Shapes:
    """The shapes of functions that were given to ``do``."""

    def __init__(self) -> None:
        self._known: dict[Any, CallShape] = {}

    def definition(self, call: _Call) -> Anonymous:
        """What the engine needs of this call."""
        code = _code_of(call.fn)
        if code is None:
            return _unkept(call)
        options = tuple(call.options.items()) if type(call.options) is dict else call.options
        key = (call.name, code, call.given, call.is_effect, options)
        try:
            shape = self._known.get(key)
        except TypeError:  # an option that has no hash
            return _unkept(call)
        if shape is None or not shape.fits(call.fn):
            if len(self._known) >= SHAPES_MAX:
                self._known.clear()
            shape = self._known[key] = CallShape(call)
        return shape.definition(call.fn)


shapes = Shapes()


def _unkept(call: _Call) -> Anonymous:
    """Of a function that can't be known again, or whose options can't."""
    made = object.__new__(Anonymous)
    vars(made).update(vars(_declared(call)))
    return made


def _declared(call: _Call) -> Definition:
    """What a declaration of this very call would be."""
    declare: Any = effect if call.is_effect else step
    name = check_name(call.name)
    definition: Definition = declare(call.fn, name=name, **_given(call.options)).definition
    vars(definition)["signature"] = _recorded(call, definition.signature)
    return definition


def _recorded(call: _Call, signature: Signature) -> Signature:
    """The parameters whose arguments are recorded: what the function itself holds is not.

    A partial holds what it was made with, a function its defaults; but an effect's key, check and
    undo may want these.
    """
    kept: list[Parameter] = []
    held = call.fn.keywords if isinstance(call.fn, partial) else ()
    for position, each in enumerate(signature.parameters.values()):
        is_given = position < call.given and each.kind is not Parameter.KEYWORD_ONLY
        is_held = each.default is not Parameter.empty and not is_given and not call.is_effect
        if each.name not in held and not is_held:
            kept.append(each)
    return signature.replace(parameters=kept)


def _given(options: Any) -> dict[str, Any]:
    if options is None:
        return {}
    if isinstance(options, Mapping):
        return dict(options)
    if isinstance(options, (StepOptions, EffectOptions)):
        return {each.name: getattr(options, each.name) for each in fields(options)}
    raise DefinitionRefused(
        f"{options!r} are no options; write outlive.EffectOptions(key=...), or a dict"
    )


def _code_of(fn: Any) -> Any:
    """What functions of one shape have in common; None: nothing is known of it."""
    kind = type(fn)
    if kind is FunctionType:
        own = fn.__dict__
        # By its address: the hash of a code reads all of it.
        if not own or ("__wrapped__" not in own and "__signature__" not in own):
            return id(fn.__code__)
        return None if "__signature__" in own else _within(id(fn.__code__), own["__wrapped__"])
    if kind is MethodType:
        return _within(MethodType, fn.__func__)
    if kind is partial:
        return _within((len(fn.args), *fn.keywords), fn.func)
    called = getattr(kind, "__call__", None)  # noqa: B004  # of an object's class
    if type(called) is not FunctionType or hasattr(fn, "__signature__"):
        return None
    return _within(kind, fn.__wrapped__) if hasattr(fn, "__wrapped__") else kind


def _codes_of(fn: Any) -> Iterator[Any]:
    """The codes that a function is known by."""
    while fn is not None:
        yield getattr(fn, "__code__", type(fn))
        inner = getattr(fn, "func", None) or getattr(fn, "__func__", None)
        fn = inner or getattr(fn, "__wrapped__", None)


def _within(outside: Any, inside: Any) -> Any:
    code = _code_of(inside)
    return None if code is None else (outside, code)


def _innermost(fn: Any) -> FunctionType:
    """The function whose signature and annotations count."""
    while type(fn) is not FunctionType or "__wrapped__" in fn.__dict__:
        kind = type(fn)
        if kind is partial:
            fn = fn.func
        elif kind is MethodType:
            fn = fn.__func__
        else:
            fn = fn.__wrapped__ if hasattr(fn, "__wrapped__") else kind.__call__
    return fn


def _named_cells(fn: FunctionType) -> tuple[int, ...]:
    """Which of a closure's variables its annotations may name, where they are written as text."""
    texts = " ".join(each for each in fn.__annotations__.values() if isinstance(each, str))
    code: CodeType = fn.__code__
    return tuple(i for i, name in enumerate(code.co_freevars) if name in texts)


def _contents(fn: FunctionType, named: tuple[int, ...]) -> tuple[Any, ...]:
    cells = fn.__closure__ or ()
    return tuple(getattr(cells[i], "cell_contents", None) for i in named)


def _are_same(one: Any, other: Any) -> bool:
    """The same objects: what users give as a default need not be comparable."""
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _defaults_of(fn: FunctionType) -> tuple[Any, ...]:
    named = fn.__kwdefaults__ or {}
    return (*(fn.__defaults__ or ()), *named, *named.values())


@overload
def do(
    name: str,
    fn: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
    /,
    *args: *Ts,
    id: str | None = None,
    effect: EffectOptions | Mapping[str, Any] | None = None,
    step: StepOptions | Mapping[str, Any] | None = None,
) -> Coroutine[Any, Any, T]: ...
@overload
def do(
    name: str,
    fn: Callable[[Unpack[Ts]], T],
    /,
    *args: *Ts,
    id: str | None = None,
    effect: EffectOptions | Mapping[str, Any] | None = None,
    step: StepOptions | Mapping[str, Any] | None = None,
) -> Coroutine[Any, Any, T]: ...
def do(  # type: ignore[misc]  # mypy does not take *args for *Ts
    name: str, fn: Any, /, *args: Any, id: str | None = None, effect: Any = None, step: Any = None
) -> Coroutine[Any, Any, Any]:
    """Do this as a step of that name, or as an effect, without a declaration.

    ``fn`` is any function, async or plain (a plain one runs in a thread): a lambda, a partial, a
    bound method. ``args`` are recorded; what ``fn`` holds is not. ``id`` is the caller's own name
    for this call, as the id of an agent's tool call, and becomes part of the step's id. ``effect``
    has the options of ``@outlive.effect``, ``step`` those of ``@outlive.step``.
    """
    here = place.get()
    if not isinstance(here, Branch):
        refuse_plain("do")
        refuse_effect(name, effect)
        return _plainly(fn, args)
    definition = definition_of(name, fn, len(args), id, (effect, step))
    result: Coroutine[Any, Any, Any] = here.drive.perform(definition, args, {})
    here.drive.called.append(result)
    return result


def definition_of(
    name: str, fn: Any, given: int, id: str | None, options: tuple[Any, Any]
) -> Anonymous:
    """What the engine needs of a call of ``do`` with so many arguments."""
    of_effect, of_step = options
    if of_effect is not None and of_step is not None:
        raise DefinitionRefused(f"{name}: it is a step or an effect; give it one of step=, effect=")
    is_effect = of_effect is not None
    made = shapes.definition(_Call(name, fn, given, is_effect, of_effect if is_effect else of_step))
    if id is not None:
        vars(made)["name"] = f"{name}:{check_id(name, id)}"
    return made


def check_id(name: str, id: str) -> str:
    """The caller's own name for a call, as it can stand in a step's id."""
    if type(id) is str and len(id) <= NAME_CHARS_MAX and _ORDINARY(id) is not None:
        return id
    try:
        return check_name(id)
    except DefinitionRefused as refused:
        raise DefinitionRefused(f"outlive.do({name!r}, ..., id=...): {refused}") from None


def refuse_effect(name: str, effect: Any) -> None:
    """Outside a flow a step is a plain call, and an effect is nothing."""
    here = place.get()
    if effect is None:
        return
    if type(here) is Body:
        raise here.refuse(f"outlive.do({name!r}, effect=...)")
    raise NotInRun(f"outlive.do({name!r}, effect=...)")


async def _plainly(fn: Any, args: tuple[Any, ...]) -> Any:
    made = fn(*args)
    return await made if isawaitable(made) else made
