"""``@outlive.flow``, ``@outlive.step``, ``@outlive.effect``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from outlive.engine.arguments import signature_of
from outlive.engine.companions import check_companions
from outlive.engine.definitions import (
    EFFECT_TIMEOUT_SECONDS_MIN,
    Definition,
    Effect,
    EffectRules,
    Flow,
    RunOptions,
    Step,
    check_name,
    milliseconds,
    registry,
    seconds_or_none,
)
from outlive.engine.faults import check_restorable, with_subclasses
from outlive.engine.undo import undoables
from outlive.errors import DefinitionRefused
from outlive.model.decide import Doubt
from outlive.model.defaults import (
    EFFECT_TIMEOUT_SECONDS,
    FLOW_VERSION,
    SETTLE_AFTER_SECONDS,
    TRANSACTION_TIMEOUT_SECONDS,
)
from outlive.model.ids import is_text
from outlive.model.retry import ONCE, Duration, Retry, error_types, parse_duration

P = ParamSpec("P")
R = TypeVar("R")
Errors = tuple[type[BaseException], ...]

#: Whatever is in doubt is looked up in the database, at once.
_TRANSACTION = EffectRules(
    key=None, check=None, undo=None, not_happened=(), doubt="check", settle_after_ms=0
)
_FLOW_OPTIONS = (
    *("name", "version", "accepts", "deadline", "pins", "tags"),
    *("queue", "queue_key", "priority", "units"),
)
_EFFECTS = ("key", "check", "undo", "doubt", "not_happened", "settle_after")
_STEP_OPTIONS = ("name", "retry", "timeout", "raises", "ignore", "redact")
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@overload
def flow(fn: Callable[P, R], /) -> Flow[P, R]: ...
@overload
def flow(
    *,
    name: str | None = None,
    version: str = FLOW_VERSION,
    accepts: tuple[str, ...] = (),
    deadline: Duration | None = None,
    queue: str | None = None,
    priority: int | None = None,
    units: int | None = None,
    pins: Mapping[str, str] | None = None,
) -> Callable[[Callable[P, R]], Flow[P, R]]: ...
def flow(fn: Any = None, /, **options: Any) -> Any:
    """Make a function durable: its runs survive crashes, redeploys and restarts."""
    _check_options("@outlive.flow", options, _FLOW_OPTIONS)
    if fn is None:
        return lambda function: _flow(function, **options)
    return _flow(fn, **options)


def _flow(
    fn: Callable[..., Any],
    name: str | None = None,
    version: str = FLOW_VERSION,
    accepts: tuple[str, ...] = (),
    **preset: Any,
) -> Flow[..., Any]:
    fn = _function_of(fn)
    if not inspect.isroutine(fn):
        raise DefinitionRefused(f"flow {fn!r} is no function; write `def` or `async def`")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise DefinitionRefused(f"flow {fn.__name__} is a generator; return a list instead")
    for each in (version, *_names("accepts", accepts, "versions")):
        if not is_text(each) or not each:
            raise DefinitionRefused(f'a flow\'s version is a text, as in version="2", not {each!r}')
    given = {key: value for key, value in preset.items() if value is not None}
    return Flow(
        name=_name_of(fn, name),
        fn=fn,
        version=version,
        accepts=tuple(accepts),
        preset=RunOptions(**given),
    )


class TransactionalStep(Effect[P, R]):
    """An effect whose receiver is the store's own database; callers give no connection."""

    _decorator = "step"

    @property
    def plain(self) -> Callable[..., R]:
        """The undecorated function, which takes a connection first."""
        return self.definition.fn


@overload
def step(
    *,
    transaction: Literal[True],
    name: str | None = None,
    retry: Retry = ONCE,
    timeout: Duration = TRANSACTION_TIMEOUT_SECONDS,
    raises: Errors = (),
    ignore: tuple[str, ...] = (),
    redact: tuple[str, ...] = (),
) -> Callable[[Callable[Concatenate[Any, P], R]], TransactionalStep[P, R]]: ...
@overload
def step(fn: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    fn: Callable[P, R],
    /,
    *,
    name: str | None = None,
    retry: Retry = ONCE,
    timeout: Duration | None = None,
    raises: Errors = (),
    ignore: tuple[str, ...] = (),
    redact: tuple[str, ...] = (),
) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry = ONCE,
    timeout: Duration | None = None,
    raises: Errors = (),
    ignore: tuple[str, ...] = (),
    redact: tuple[str, ...] = (),
) -> Callable[[Callable[P, R]], Step[P, R]]: ...
def step(fn: Any = None, /, *, transaction: bool = False, **options: Any) -> Any:
    """Record a function's outcome once; it is harmless to repeat: a model call, a read.

    With ``transaction=True`` it need not be: its first parameter is a connection to the store's own
    database, in a transaction; what is written through it is committed together with the outcome.
    """
    _check_options("@outlive.step", options, _STEP_OPTIONS)
    if transaction not in (True, False):
        raise DefinitionRefused(f"transaction={transaction!r}: it is True or False")
    if fn is None:
        return partial(step, transaction=transaction, **options)
    if not transaction:
        return Step(_define(fn, **options))
    given: dict[str, Any] = {"timeout": TRANSACTION_TIMEOUT_SECONDS, **options}
    if given["timeout"] is None:
        raise DefinitionRefused("transaction=True needs a timeout: a transaction can't be for ever")
    given |= {"rules": _TRANSACTION, "transaction": True}
    return TransactionalStep(_define(_with_connection(fn), **given))


def _with_connection(fn: Callable[..., Any]) -> Callable[..., Any]:
    first = next(iter(signature_of(fn).parameters.values()), None)
    if first is None or first.kind not in _POSITIONAL:
        raise DefinitionRefused(
            f"step {fn!r} has transaction=True: its first parameter is the connection, and must be "
            "an ordinary one"
        )
    return fn


@overload
def effect(
    fn: Callable[P, R],
    /,
    *,
    name: str | None = None,
    key: str | Callable[..., str] | None = None,
    check: Callable[..., Any] | None = None,
    undo: Callable[..., Any] | None = None,
    not_happened: Errors = (),
    doubt: Doubt | None = None,
    timeout: Duration = EFFECT_TIMEOUT_SECONDS,
    settle_after: Duration = SETTLE_AFTER_SECONDS,
    retry: Retry = ONCE,
    raises: Errors = (),
    ignore: tuple[str, ...] = (),
    redact: tuple[str, ...] = (),
) -> Effect[P, R]: ...
@overload
def effect(
    *,
    name: str | None = None,
    key: str | Callable[..., str] | None = None,
    check: Callable[..., Any] | None = None,
    undo: Callable[..., Any] | None = None,
    not_happened: Errors = (),
    doubt: Doubt | None = None,
    timeout: Duration = EFFECT_TIMEOUT_SECONDS,
    settle_after: Duration = SETTLE_AFTER_SECONDS,
    retry: Retry = ONCE,
    raises: Errors = (),
    ignore: tuple[str, ...] = (),
    redact: tuple[str, ...] = (),
) -> Callable[[Callable[P, R]], Effect[P, R]]: ...
def effect(
    fn: Any = None,
    /,
    *,
    name: str | None = None,
    key: str | Callable[..., str] | None = None,
    check: Callable[..., Any] | None = None,
    undo: Callable[..., Any] | None = None,
    not_happened: Errors = (),
    doubt: Doubt | None = None,
    timeout: Duration = EFFECT_TIMEOUT_SECONDS,
    settle_after: Duration = SETTLE_AFTER_SECONDS,
    retry: Retry = ONCE,
    raises: Errors = (),
    ignore: tuple[str, ...] = (),
    redact: tuple[str, ...] = (),
    **others: Any,
) -> Any:
    """Change the world once: intent first; when in doubt, settle it instead of repeating it."""
    _check_options("@outlive.effect", others, (*_STEP_OPTIONS, *_EFFECTS))
    rules = EffectRules(
        key=key,
        check=check,
        undo=undo,
        not_happened=error_types("not_happened=", not_happened),
        doubt=_doubt(doubt, check),
        settle_after_ms=milliseconds(settle_after),
    )

    def decorate(function: Callable[..., Any]) -> Effect[..., Any]:
        definition = _define(
            function,
            name=name,
            retry=retry,
            timeout=timeout,
            raises=raises,
            ignore=ignore,
            redact=redact,
            rules=rules,
        )
        check_companions(definition)
        if undo is not None:
            undoables.add(definition)
        return Effect(definition)

    return decorate if fn is None else decorate(fn)


def _doubt(doubt: Doubt | None, check: Callable[..., Any] | None) -> Doubt:
    if doubt is None:
        return "check" if check is not None else "ask"
    if doubt not in ("check", "retry", "ask", "fail"):
        raise DefinitionRefused(f'doubt={doubt!r}: it is one of "check", "retry", "ask", "fail"')
    if doubt == "check" and check is None:
        raise DefinitionRefused('doubt="check" needs a check= function')
    return doubt


def _define(
    fn: Callable[..., Any],
    name: str | None = None,
    retry: Retry = ONCE,
    timeout: Duration | None = None,
    raises: Errors = (),
    ignore: tuple[str, ...] = (),
    redact: tuple[str, ...] = (),
    rules: EffectRules | None = None,
    *,
    transaction: bool = False,
) -> Definition:
    fn = _function_of(fn)
    if not callable(fn):
        raise DefinitionRefused(f"{fn!r} can't be called, so it can't be a step")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        name = getattr(fn, "__name__", repr(fn))
        raise DefinitionRefused(f"step {name} is a generator; return a list instead")
    if not isinstance(retry, Retry):
        raise DefinitionRefused(f"retry={retry!r}: write outlive.Retry(attempts=3)")
    if seconds_or_none(timeout) == 0:
        raise DefinitionRefused("timeout=0 leaves no time to do anything")
    if rules is not None:
        _check_effect_timeout(timeout)
    wanted = error_types("raises=", raises)
    check_restorable(wanted)
    return Definition(
        name=_name_of(fn, name),
        fn=fn,
        retry=retry,
        timeout_seconds=seconds_or_none(timeout),
        raises=with_subclasses(wanted),
        ignore=_names("ignore", ignore),
        redact=_names("redact", redact),
        effect=rules,
        transaction=transaction,
    )


def _name_of(fn: Any, given: str | None) -> str:
    """What it is called in journals, where it must be told from all others."""
    name = given or getattr(fn, "__name__", None)
    if name is None or name == "<lambda>":
        what = f"{fn!r}" if name is None else f"the lambda at {_line_of(fn)}"
        raise DefinitionRefused(f'{what} has no name; give it one: name="..."')
    return check_name(name)


def _line_of(fn: Any) -> str:
    return f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}"


def _function_of(fn: Any) -> Any:
    """What a staticmethod holds: whether that is async can't be seen from outside."""
    return fn.__func__ if isinstance(fn, staticmethod) else fn


def _check_effect_timeout(timeout: Duration | None) -> None:
    """Who takes over counts with this limit, and it must leave time to begin."""
    if timeout is None:
        raise DefinitionRefused(
            "timeout=None: every effect has a limit, after which it is settled; "
            'write timeout="1h" if it may take that long, or leave it out for 60 s'
        )
    if parse_duration(timeout) < EFFECT_TIMEOUT_SECONDS_MIN:
        raise DefinitionRefused(
            f"timeout={timeout!r} would pass before the effect's intent is durable; "
            f"it is at least {EFFECT_TIMEOUT_SECONDS_MIN * 1000:g} ms"
        )


def _check_options(what: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """What is misspelt is not what was meant."""
    for name in given:
        if name in known:
            continue
        from difflib import get_close_matches  # only mistakes need it

        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
        others = "; key, check, undo and doubt are for @outlive.effect" if name in _EFFECTS else ""
        raise DefinitionRefused(f"{what} has no option {name!r}; {hint}{others}")


def _names(option: str, given: Any, what: str = "parameters") -> tuple[str, ...]:
    if isinstance(given, str):
        raise DefinitionRefused(f"{option}= names {what}: write ({given!r},)")
    return tuple(given)


def register(cls: type, name: str | None = None) -> type:
    """Let values of this class be recorded where no type hint reaches it."""
    registry.register(cls, name)
    return cls
