"""What users decorate: flows, steps, effects. Declarations only; nothing happens here.

``Definition`` is what the engine needs of a step or effect; ``Step``, ``Effect`` and ``Flow`` are
the callables that users hold. What a call means is decided by the place where it is made: in a
flow it is recorded, elsewhere a step is a plain call and an effect is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import WRAPPER_ASSIGNMENTS, cached_property
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, TypeVar, overload

import msgspec

from outlive.engine.arguments import Bound, Unbinder, compile_binder, is_async, signature_of
from outlive.engine.blob import Blob
from outlive.engine.faults import declared
from outlive.engine.place import Body, Branch, Plain, place
from outlive.errors import (
    DefinitionRefused,
    NotInRun,
    UsageError,
    ValueRefused,
)
from outlive.journal.codec.codec import Codec, codec_for
from outlive.journal.codec.hints import Registry, parameter_hints, return_hint
from outlive.model.decide import Doubt
from outlive.model.defaults import FLOW_VERSION
from outlive.model.ids import NAME_RULES, is_name, is_text
from outlive.model.queues import DEFAULT_QUEUE, QueuePlace, check_place, check_queue_name
from outlive.model.retention import Retention
from outlive.model.retry import Duration, Retry, parse_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a run is started, where a flow's own parameters collide with these names."""

    id: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    queue_key: str | None = None
    #: Lower goes first.
    priority: int | None = None
    units: int | None = None
    #: From the run's start on, or an instant.
    deadline: Duration | datetime | None = None
    pins: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named: tuple[tuple[str, Any], ...] = (("tags", self.tags), ("pins", self.pins))
        for what, given in named:
            pairs = given.items() if isinstance(given, Mapping) else [(given, None)]
            if not all(is_text(part) for pair in pairs for part in pair):
                raise DefinitionRefused(f"{what} are texts by name, not {given!r}")
        if self.queue is not None:
            check_queue_name(self.queue)
        if self.place is not None and self.queue in (None, DEFAULT_QUEUE):
            raise DefinitionRefused("queue_key, priority and units count in a queue: add queue=")
        self.deadline_from(0)

    @property
    def place(self) -> QueuePlace | None:
        """Where in its queue a run stands; None: where all do that say nothing of it."""
        if self.queue_key is None and self.priority is None and self.units is None:
            return None
        named = {"key": self.queue_key, "priority": self.priority, "units": self.units}
        given: dict[str, Any] = {name: each for name, each in named.items() if each is not None}
        return check_place(QueuePlace(**given)) if given else None

    def deadline_from(self, started_at: int) -> int | None:
        """The instant (ms since 1970) at which a run that starts then is stopped."""
        if not isinstance(self.deadline, datetime):
            return None if self.deadline is None else started_at + milliseconds(self.deadline)
        if self.deadline.tzinfo is None:
            raise DefinitionRefused(f"deadline {self.deadline} has no time zone; add one")
        return round(self.deadline.timestamp() * 1000)


def milliseconds(duration: Duration) -> int:
    """A duration as the journal counts it."""
    return round(parse_duration(duration) * 1000)


class NoMethod:
    """A step, effect or flow: called on an object, its first argument would be taken for it."""

    #: What it is made with, below ``outlive``.
    _decorator: ClassVar[str] = "step"

    def __set_name__(self, owner: type, name: str) -> None:
        decorated: Any = self
        fn = getattr(decorated, "definition", decorated).fn
        is_of_class = getattr(fn, "__qualname__", "").rpartition(".")[0] == owner.__qualname__
        if is_of_class and next(iter(signature_of(fn).parameters), "") in ("self", "cls"):
            raise DefinitionRefused(
                f"{owner.__qualname__}.{name} is a method, and can't be a {self._decorator} so: it "
                f"would not be given its object; decorate the bound method, "
                f"outlive.{self._decorator}(obj.{name}), or a staticmethod"
            )


P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

#: An effect's limit counts from its intent, which takes a while to become durable.
EFFECT_TIMEOUT_SECONDS_MIN = 0.01

#: Types that no hint reaches, registered with ``outlive.register``.
registry = Registry()
registry.register(Blob, "outlive.Blob")

#: Values that a body can't change under the flow's hands.
IMMUTABLE = frozenset({str, int, float, bool, bytes, type(None)})


def stand_for(wrapper: object, fn: Callable[..., Any]) -> None:
    """Let what users hold look like the function that they wrote: name, text, types, and kind.

    An async one is a coroutine function for ``inspect`` and ``asyncio``, as tool registries ask.
    """
    own = vars(wrapper)
    called: Any = fn if hasattr(fn, "__name__") else getattr(fn, "__call__")  # noqa: B004, B009
    own |= {name: getattr(called, name) for name in WRAPPER_ASSIGNMENTS if hasattr(called, name)}
    own["__wrapped__"] = fn
    if is_async(fn):
        # What ``inspect`` takes for a function besides those of Python, as Cython's, has these.
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            own[name] = getattr(called, name, None)


class CheckAnswer:
    """What a check says when it does not return an outcome."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"outlive.{self._name}"


#: It provably did not happen.
NOT_HAPPENED = CheckAnswer("NOT_HAPPENED")
#: Nobody can tell yet.
UNKNOWN = CheckAnswer("UNKNOWN")


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRules:
    """How an effect is keyed and settled."""

    key: str | Callable[..., str] | None
    check: Callable[..., Any] | None
    undo: Callable[..., Any] | None
    not_happened: tuple[type[BaseException], ...]
    doubt: Doubt
    settle_after_ms: int


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A step or effect as the engine sees it."""

    name: str
    fn: Callable[..., Any]
    retry: Retry
    timeout_seconds: float | None
    raises: tuple[type[BaseException], ...]
    ignore: tuple[str, ...]
    #: Parameters whose arguments are not recorded.
    redact: tuple[str, ...] = ()
    effect: EffectRules | None = None
    #: Its first parameter is a connection, which is no argument: callers do not give it.
    transaction: bool = False

    @cached_property
    def is_async(self) -> bool:
        return is_async(self.fn)

    @cached_property
    def signature(self) -> inspect.Signature:
        signature = signature_of(self.fn)
        if self.transaction:
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        for option in ("ignore", "redact"):
            for name in getattr(self, option):
                if name not in signature.parameters:
                    why = f"{option}={name!r} is no parameter of it"
                    raise DefinitionRefused(f"{self.name}: {why}")
        return signature

    @cached_property
    def bind(self) -> Callable[..., Bound]:
        return compile_binder(self.signature, self.name)

    @cached_property
    def extra(self) -> str:
        """Its parameter with two stars, if it has one."""
        parameters = self.signature.parameters.values()
        return next((p.name for p in parameters if p.kind is Parameter.VAR_KEYWORD), "")

    @cached_property
    def unbinder(self) -> Unbinder:
        return Unbinder(self.signature)

    @cached_property
    def args_codec(self) -> Codec:
        given = list(signature_of(self.fn).parameters)[:1] if self.transaction else ()
        return codec_for(parameter_hints(self.fn, given).values(), registry)

    @cached_property
    def value_codec(self) -> Codec:
        return codec_for([return_hint(self.fn)], registry)

    @cached_property
    def own_errors(self) -> Mapping[str, type[BaseException]]:
        return declared(self.raises)

    def encode_args(self, bound: Bound) -> bytes:
        """The arguments as they are recorded: by name, those ignored left out."""
        if self.ignore:
            bound = {name: value for name, value in bound.items() if name not in self.ignore}
        return self.args_codec.write(bound)

    def own_copy(self, bound: Bound, args: bytes) -> Bound:
        """Arguments that the body may change without the flow noticing."""
        for value in bound.values():
            if type(value) not in IMMUTABLE:
                return {**bound, **self.args_codec.decode(args)}
        return bound

    def value_from_json(self, raw: bytes) -> Any:
        """An outcome that a person wrote as JSON, as the type that the function returns."""
        hint = return_hint(self.fn)
        validate = getattr(hint, "model_validate_json", None)
        try:
            if validate is not None:
                return validate(raw)
            return msgspec.json.decode(raw, type=Any if hint is None else hint)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise ValueRefused(f"this JSON is no {hint!r}: {error}") from None

    def key_for(self, bound: Bound) -> str | None:
        """The key that the user gave, if any."""
        key = self.effect.key if self.effect is not None else None
        if key is None:
            return None
        made = key.format(**bound) if isinstance(key, str) else key(**bound)
        if not is_text(made) or not made:
            raise DefinitionRefused(f"{self.name}: its key is {made!r}; a key is a non-empty text")
        return made


class Step(NoMethod, Generic[P, R_co]):
    """A named piece of a run whose outcome is recorded once; harmless to repeat."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        vars(self).update(getattr(definition.fn, "__dict__", {}))
        stand_for(self, definition.fn)
        if definition.transaction:
            self.__signature__ = definition.signature  # callers do not give the connection

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        here = place.get()
        if isinstance(here, Branch):
            result: Any = here.drive.perform(self.definition, args, kwargs)
            here.drive.called.append(result)
        elif type(here) is Plain:
            result = here.bridge.perform(self.definition, args, kwargs)
        else:
            result = self.definition.fn(*args, **kwargs)
        return result  # type: ignore[no-any-return]  # R is what the function returns

    @property
    def plain(self) -> Callable[P, R_co]:
        """The undecorated function."""
        return self.definition.fn


class Effect(NoMethod, Generic[P, R_co]):
    """A step that changes the world: intent first, settled when in doubt."""

    _decorator = "effect"

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        vars(self).update(getattr(definition.fn, "__dict__", {}))
        stand_for(self, definition.fn)
        if definition.transaction:
            self.__signature__ = definition.signature  # callers do not give the connection

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        here = place.get()
        name = self.definition.name
        if isinstance(here, Branch):
            result: Any = here.drive.perform(self.definition, args, kwargs)
            here.drive.called.append(result)
        elif type(here) is Plain:
            result = here.bridge.perform(self.definition, args, kwargs)
        elif type(here) is Body:
            raise here.refuse(name)
        else:
            raise NotInRun(name)
        return result  # type: ignore[no-any-return]  # R is what the function returns

    @property
    def plain(self) -> Callable[P, R_co]:
        """The undecorated function: runs now, with no record, no key, no settlement."""
        return self.definition.fn


@dataclass(frozen=True, kw_only=True, eq=False)
class Flow(NoMethod, Generic[P, R_co]):
    """A function whose runs survive their process."""

    _decorator = "flow"

    name: str
    fn: Callable[P, R_co]
    version: str = FLOW_VERSION
    accepts: tuple[str, ...] = ()
    preset: RunOptions = field(default_factory=RunOptions)
    #: What ``options`` has said of runs.
    opted: frozenset[str] = frozenset()
    #: What workers do with its old runs, where the store has no rules for them.
    retention: Retention | None = None

    def __post_init__(self) -> None:
        if not is_name(self.version):
            raise DefinitionRefused(
                f"flow {self.name}: version={self.version!r} is no text of 1 to 200 characters "
                f"({NAME_RULES})"
            )
        stand_for(self, self.fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """The plain function: for tests, and for use inside another flow of its kind."""
        other_kind: type = Plain if self.is_async else Branch
        if isinstance(place.get(), other_kind):
            mine, other = ("async", "plain") if self.is_async else ("plain", "async")
            raise UsageError(
                f"flow {self.name} is {mine} code and was called in {other} code; "
                f"start it as a run of its own: outlive.call({self.name}, ...)"
            )
        return self.fn(*args, **kwargs)

    if TYPE_CHECKING:

        @overload
        def returns(
            self: Flow[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
        ) -> T: ...
        @overload
        def returns(self: Flow[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...
        def returns(self, *args: Any, **kwargs: Any) -> Any: ...

    @cached_property
    def is_async(self) -> bool:
        """Its code awaits what it calls; plain code has a thread of its own."""
        return inspect.iscoroutinefunction(self.fn)

    def options(
        self,
        *,
        id: str | None = None,
        tags: Mapping[str, str] | None = None,
        queue: str | None = None,
        queue_key: str | None = None,
        priority: int | None = None,
        units: int | None = None,
        deadline: Duration | datetime | None = None,
        pins: Mapping[str, str] | None = None,
    ) -> Flow[P, R_co]:
        """The same flow with options for the runs started from it; what is None stays as it is.

        A parameter of the flow that has the name of an option said here can be given by its name.
        """
        named = {"id": id, "tags": tags, "queue": queue, "deadline": deadline, "pins": pins}
        named |= {"queue_key": queue_key, "priority": priority, "units": units}
        given: dict[str, Any] = {name: each for name, each in named.items() if each is not None}
        preset = replace(self.preset, **given)
        return replace(self, preset=preset, opted=self.opted.union(given))

    def takes(self, name: str) -> bool:
        """Whether a keyword with the name of an option is meant for the flow, not for its run."""
        known = self.signature.parameters.values()
        is_known = any(each.name == name or each.kind is Parameter.VAR_KEYWORD for each in known)
        return is_known and name in self.opted

    @property
    def is_name_only(self) -> bool:
        """This process does not have its code, or does not ask for it."""
        return self.fn is nobody

    @property
    def versions(self) -> frozenset[str]:
        """The versions of runs that this code drives."""
        return frozenset((self.version, *self.accepts))

    @cached_property
    def signature(self) -> Signature:
        return signature_of(self.fn)

    @cached_property
    def bind(self) -> Callable[..., Bound]:
        return compile_binder(self.signature, self.name)

    @cached_property
    def unbinder(self) -> Unbinder:
        return Unbinder(self.signature)

    @cached_property
    def names(self) -> frozenset[str]:
        """Its parameters, if each can be given by name; otherwise none."""
        kinds = {parameter.kind for parameter in self.signature.parameters.values()}
        by_name = kinds <= {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
        return frozenset(self.signature.parameters) if by_name else frozenset()

    @cached_property
    def args_codec(self) -> Codec:
        return codec_for(parameter_hints(self.fn).values(), registry)

    @cached_property
    def value_codec(self) -> Codec:
        return codec_for([return_hint(self.fn)], registry)


def not_a_flow(given: object) -> UsageError:
    """What to say to somebody who gave this in place of a flow."""
    name = getattr(given, "__name__", None) or repr(given)
    if inspect.iscoroutine(given):
        given.close()  # told here, not by Python's warning
        return UsageError(f"{name}(...) was called; give the flow and its arguments: {name}, ...")
    if isinstance(given, (Step, Effect)):
        kind = "effect" if isinstance(given, Effect) else "step"
        return UsageError(f"{kind} {name} is not a flow; call it in one, and start the flow")
    return UsageError(f"{name} is not a flow; decorate it with @outlive.flow")


async def nobody() -> None:
    """In place of a flow's code where there is none."""


def check_name(name: str) -> str:
    """A name that can stand in a step id."""
    if not is_name(name) or any(c in name for c in "/#"):
        raise DefinitionRefused(
            f"{name!r} can't be a name: 1 to 200 characters, no / or # ({NAME_RULES})"
        )
    return name


def seconds_or_none(duration: Duration | None) -> float | None:
    """A time limit in seconds, if there is one."""
    return None if duration is None else parse_duration(duration)
