"""What users decorate: flows, steps, effects. Declarations only; nothing happens here.

``Definition`` is what the engine needs of a step or effect; ``Step``, ``Effect`` and ``Flow`` are
the callables that users hold. What a call means is decided by the place where it is made: in a
flow it is recorded, elsewhere a step is a plain call and an effect is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from outlive.engine.binding import Bound, Unbinder, compile_binder, signature_of
from outlive.engine.faults import declared
from outlive.engine.place import Body, Branch, place
from outlive.errors import DefinitionRefused, InsideStep, NotInRun, ValueRefused
from outlive.journal.codec import Codec, codec_for
from outlive.journal.hints import Registry, parameter_hints, return_hint
from outlive.model.decide import Doubt
from outlive.model.retry import Duration, Retry, parse_duration

P = ParamSpec("P")
R = TypeVar("R")

EFFECT_TIMEOUT_SECONDS = 60.0
SETTLE_AFTER_SECONDS = 5.0
NAME_CHARS_MAX = 200

#: Types that no hint reaches, registered with ``outlive.register``.
registry = Registry()

#: Values that a body can't change under the flow's hands.
_IMMUTABLE = frozenset({str, int, float, bool, bytes, type(None)})


class Verdict:
    """What a check says when it does not return an outcome."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"outlive.{self._name}"


#: It provably did not happen.
NOT_HAPPENED = Verdict("NOT_HAPPENED")
#: Nobody can tell yet.
UNKNOWN = Verdict("UNKNOWN")


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
    effect: EffectRules | None = None

    @cached_property
    def is_async(self) -> bool:
        call = getattr(self.fn, "__call__", None)  # noqa: B004  # of an object that is called
        return inspect.iscoroutinefunction(self.fn) or inspect.iscoroutinefunction(call)

    @cached_property
    def _signature(self) -> inspect.Signature:
        signature = signature_of(self.fn)
        for name in self.ignore:
            if name not in signature.parameters:
                raise DefinitionRefused(f"{self.name}: ignore={name!r} is no parameter of it")
        return signature

    @cached_property
    def bind(self) -> Callable[..., Bound]:
        return compile_binder(self._signature)

    @cached_property
    def unbinder(self) -> Unbinder:
        return Unbinder(self._signature)

    @cached_property
    def args_codec(self) -> Codec:
        return codec_for(parameter_hints(self.fn).values(), registry)

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
        return self.args_codec.encode(bound)

    def own_copy(self, bound: Bound, args: bytes) -> Bound:
        """Arguments that the body may change without the flow noticing."""
        for value in bound.values():
            if type(value) not in _IMMUTABLE:
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
        if type(made) is not str or not made:
            raise DefinitionRefused(f"{self.name}: its key is {made!r}; a key is a non-empty text")
        return made


class Step(Generic[P, R]):
    """A named piece of a run whose outcome is recorded once; harmless to repeat."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        update_wrapper(self, definition.fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        here = place.get()
        if type(here) is Branch:
            result: Any = here.drive.perform(self.definition, args, kwargs)
        else:
            result = self.definition.fn(*args, **kwargs)
        return result  # type: ignore[no-any-return]  # R is what the function returns

    @property
    def plain(self) -> Callable[P, R]:
        """The undecorated function."""
        return self.definition.fn


class Effect(Generic[P, R]):
    """A step that changes the world: intent first, settled when in doubt."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        update_wrapper(self, definition.fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        here = place.get()
        name = self.definition.name
        if type(here) is Branch:
            result: Any = here.drive.perform(self.definition, args, kwargs)
            return result  # type: ignore[no-any-return]  # R is what the function returns
        if type(here) is Body:
            raise InsideStep(name, here.step)
        raise NotInRun(name)

    @property
    def plain(self) -> Callable[P, R]:
        """The undecorated function: runs now, with no record, no key, no settlement."""
        return self.definition.fn


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a run is started, where a flow's own parameters collide with these names."""

    id: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    deadline: Duration | None = None
    pins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Flow(Generic[P, R]):
    """A function whose runs survive their process."""

    name: str
    fn: Callable[P, R]
    version: str = "1"
    accepts: tuple[str, ...] = ()
    preset: RunOptions = field(default_factory=RunOptions)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The plain function: for tests, and for use inside another flow."""
        return self.fn(*args, **kwargs)

    def options(self, **options: Any) -> Flow[P, R]:
        """The same flow with options for the runs started from it."""
        return replace(self, preset=replace(self.preset, **options))

    @property
    def versions(self) -> frozenset[str]:
        """The versions of runs that this code drives."""
        return frozenset((self.version, *self.accepts))

    @cached_property
    def bind(self) -> Callable[..., Bound]:
        return compile_binder(signature_of(self.fn))

    @cached_property
    def unbinder(self) -> Unbinder:
        return Unbinder(signature_of(self.fn))

    @cached_property
    def args_codec(self) -> Codec:
        return codec_for(parameter_hints(self.fn).values(), registry)

    @cached_property
    def value_codec(self) -> Codec:
        return codec_for([return_hint(self.fn)], registry)


def check_name(name: str) -> str:
    """A name that can stand in a step id."""
    if not name or len(name) > NAME_CHARS_MAX or any(c in name for c in "/#\0\n"):
        raise DefinitionRefused(f"{name!r} can't be a name: 1 to 200 characters, no / # or newline")
    return name


def milliseconds(duration: Duration) -> int:
    """A duration as the journal counts it."""
    return round(parse_duration(duration) * 1000)


def seconds_or_none(duration: Duration | None) -> float | None:
    """A time limit in seconds, if there is one."""
    return None if duration is None else parse_duration(duration)
