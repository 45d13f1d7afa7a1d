"""A type hint is an allow-list: the classes that it reaches are all that recorded data may name.

Nothing here checks values against hints. What no hint reaches can be registered by hand.
Hints are resolved when a codec is first needed, not when a decorator runs: by then every name
that an annotation mentions has been defined.
"""

from __future__ import annotations

import enum
import functools
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, Literal, TypeVar, get_args, get_origin

from outlive.errors import DefinitionRefused
from outlive.journal.codec.parts import LeafMemo
from outlive.journal.codec.shapes import EnumShape, Shape, is_pydantic, kind_of, shape_of


class Registry:
    """Classes that may be recorded although no hint reaches them, and names given by hand."""

    def __init__(self) -> None:
        self._names: dict[type, str] = {}
        #: The cache of leaves' digests, shared by all codecs.
        self.memo = LeafMemo()
        #: Grows with every registration, so that codecs notice.
        self.version = 0
        self._reached: tuple[int, Mapping[type, str]] = (0, MappingProxyType({}))

    def register(self, cls: Any, name: str | None = None) -> None:
        """Allow ``cls``, recorded under ``name`` (its qualified name by default).

        Raises:
            DefinitionRefused: it is no recordable class, or the name belongs to another.
        """
        if not isinstance(cls, type) or kind_of(cls) is None:
            raise DefinitionRefused(
                f"{cls!r} can't be registered: only dataclasses, NamedTuples, Enums, "
                "msgspec Structs and pydantic models can be recorded"
            )
        given = cls.__qualname__ if name is None else name
        names = {known: held for known, held in self._names.items() if not _redefines(cls, known)}
        for known, held in names.items():
            if held == given and known is not cls:
                raise name_taken(given, known, cls)
        self._names = {**names, cls: given}
        self.version += 1

    def name_of(self, cls: type) -> str:
        """The name under which a class is recorded, registered or not."""
        return self._names.get(cls) or cls.__qualname__

    def reached(self) -> Mapping[type, str]:
        """Every registered class and every class that those reach, with their names."""
        version, found = self._reached
        if version != self.version:
            version, roots = self.version, tuple(self._names)
            found = {cls: self.name_of(cls) for cls in reachable_classes(roots)}
            self._reached = (version, MappingProxyType(found))
        return found


def name_taken(name: str, one: type, other: type) -> DefinitionRefused:
    if _redefines(one, other):
        return DefinitionRefused(
            f"{one.__module__}.{one.__qualname__} was defined twice; define what uses it again, too"
        )
    return DefinitionRefused(
        f"{one.__module__}.{one.__qualname__} and {other.__module__}.{other.__qualname__} would "
        f"both be recorded as {name!r}; give one a name of its own: outlive.register(cls, name=...)"
    )


def _redefines(cls: type, known: type) -> bool:
    """The same definition executed again, as notebooks do."""
    return cls is not known and (cls.__module__, cls.__qualname__) == (
        known.__module__,
        known.__qualname__,
    )


def parameter_hints(fn: Callable[..., Any], ignore: Iterable[str] = ()) -> dict[str, Any]:
    """The annotated parameters of a function, resolved; those to ``ignore`` are not looked at.

    Raises:
        DefinitionRefused: an annotation names something that can't be found.
    """
    return _function_hints(fn, lambda name: name != "return" and name not in set(ignore))


def return_hint(fn: Callable[..., Any]) -> Any:
    """A function's return annotation, resolved; ``Any`` if there is none.

    Raises:
        DefinitionRefused: the annotation names something that can't be found.
    """
    return _function_hints(fn, lambda name: name == "return").get("return", Any)


def _function_hints(fn: Callable[..., Any], wanted: Callable[[str], bool]) -> dict[str, Any]:
    fn = _plain_function(fn)
    annotations = getattr(fn, "__annotations__", {})
    holder = SimpleNamespace(
        __annotations__={name: hint for name, hint in annotations.items() if wanted(name)}
    )
    inner = _innermost(fn)
    names = _type_parameters(inner) | _closure_names(inner)
    try:
        return typing.get_type_hints(
            holder, getattr(inner, "__globals__", {}), names, include_extras=True
        )
    except Exception as exc:
        raise _unresolved(f"the annotations of {fn.__qualname__}", exc) from exc


def _plain_function(fn: Any) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn if hasattr(fn, "__annotations__") else type(fn).__call__


def _innermost(fn: Any) -> Any:
    while hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    return getattr(fn, "__func__", fn)


def _type_parameters(generic: Any) -> dict[str, Any]:
    """The T of ``def f[T]`` and ``class C[T]``, from 3.12 on."""
    return {variable.__name__: variable for variable in getattr(generic, "__type_params__", ())}


def _closure_names(fn: Any) -> dict[str, Any]:
    """The local names that a nested function can see."""
    code, cells = getattr(fn, "__code__", None), getattr(fn, "__closure__", None) or ()
    names = {}
    for name, cell in zip(code.co_freevars if code else (), cells, strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return names


def _unresolved(what: str, exc: Exception) -> DefinitionRefused:
    if isinstance(exc, NameError):
        return DefinitionRefused(
            f"{what} name {exc.name!r}, which is not defined where it is needed; "
            "import or define it at module level (and not under `if TYPE_CHECKING`)"
        )
    return DefinitionRefused(f"{what} can't be resolved: {type(exc).__name__}: {exc}")


def reachable_classes(hints: Iterable[Any]) -> list[type]:
    """The recordable classes that these hints mention, directly or through one another."""
    found: dict[type, None] = {}
    # Hints are kept while their ids are in use: some are made on the fly.
    seen: dict[int, Any] = {}
    roots = list(hints)
    waiting = roots[::-1]
    while waiting:
        hint = waiting.pop()
        if id(hint) in seen:
            continue
        seen[id(hint)] = hint
        if isinstance(hint, type) and get_origin(hint) is None and kind_of(hint):
            found[hint] = None
        waiting.extend(reversed(list(_parts(hint, [*roots, *found]))))
    return list(found)


def _parts(hint: Any, known: Iterable[Any]) -> list[Any]:
    """The hints directly inside a hint."""
    origin = get_origin(hint)
    if origin is Literal:
        return [type(arg) for arg in get_args(hint) if isinstance(arg, enum.Enum)]
    if origin is typing.Annotated:
        return [get_args(hint)[0]]
    if origin is not None:
        return [origin, *get_args(hint)]
    if isinstance(hint, (list, tuple)):  # the parameters of a Callable
        return list(hint)
    if isinstance(hint, TypeVar):
        return _variable_parts(hint)
    if isinstance(hint, typing.NewType):
        return [hint.__supertype__]
    if type(hint).__name__ == "TypeAliasType":
        return [_alias_value(hint)]
    if isinstance(hint, (str, typing.ForwardRef)):
        raise DefinitionRefused(
            f"the forward reference {hint!r} can't be resolved; use the class itself"
        )
    return _fields(hint, known) if isinstance(hint, type) else []


def _variable_parts(variable: TypeVar) -> list[Any]:
    parts = [variable.__bound__, *variable.__constraints__]
    if getattr(variable, "has_default", bool)():  # from 3.13 on
        parts.append(getattr(variable, "__default__", None))
    names = vars(sys.modules[variable.__module__]) if variable.__module__ in sys.modules else {}
    holder = SimpleNamespace(__annotations__=dict(enumerate(parts)))
    try:
        return list(typing.get_type_hints(holder, names, {}, include_extras=True).values())
    except Exception as exc:
        raise _unresolved(f"the bounds of {variable.__name__}", exc) from exc


def _alias_value(alias: Any) -> Any:
    try:
        return alias.__value__
    except Exception as exc:
        raise _unresolved(f"the type alias {alias.__name__}", exc) from exc


def _fields(cls: type, known: Iterable[Any]) -> list[Any]:
    if issubclass(cls, enum.Enum):
        return []
    if is_pydantic(cls):
        return _pydantic_fields(cls)
    if kind_of(cls) is None and not typing.is_typeddict(cls):
        return []
    return [*_class_hints(cls, known).values(), *_base_arguments(cls)]


def _base_arguments(cls: type) -> list[Any]:
    return [arg for base in getattr(cls, "__orig_bases__", ()) for arg in get_args(base)]


def _class_hints(cls: type, known: Iterable[Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError:
        pass  # a class defined inside a function: its name is nowhere to be looked up
    except Exception as exc:
        raise _unresolved(f"the fields of {cls.__qualname__}", exc) from exc
    try:
        names = {other.__name__: other for other in (*known, cls) if isinstance(other, type)}
        names |= _type_parameters(cls)
        return typing.get_type_hints(cls, localns=names, include_extras=True)
    except Exception as exc:
        raise _unresolved(f"the fields of {cls.__qualname__}", exc) from exc


def _pydantic_fields(cls: Any) -> list[Any]:
    if not cls.__pydantic_complete__:
        try:
            cls.model_rebuild()
        except Exception as exc:
            raise DefinitionRefused(
                f"the fields of {cls.__qualname__} can't be resolved: {exc}"
            ) from exc
    return [field.annotation for field in cls.model_fields.values()]


class Allowed:
    """The classes that a codec's hints reach, and those of the registry, which may still grow."""

    def __init__(self, classes: Iterable[type], registry: Registry) -> None:
        self._own = tuple(classes)
        self._registry = registry
        self.memo = registry.memo
        self._version = -1
        self._by_type: dict[type, Shape | EnumShape] = {}
        self._by_name: dict[str, Shape | EnumShape] = {}
        self._follow_registry()

    def by_type(self, cls: type) -> Shape | EnumShape | None:
        if self._version != self._registry.version:
            self._follow_registry()
        return self._by_type.get(cls)

    def by_name(self, name: str) -> Shape | EnumShape | None:
        if self._version != self._registry.version:
            self._follow_registry()
        return self._by_name.get(name)

    def names(self) -> str:
        """The allowed classes, for an error's text."""
        return ", ".join(sorted(shape.name for shape in self._by_type.values())) or "no class"

    def _follow_registry(self) -> None:
        version = self._registry.version
        by_type: dict[type, Shape | EnumShape] = {}
        by_name: dict[str, Shape | EnumShape] = {}
        for cls in dict.fromkeys((*self._own, *self._registry.reached())):
            name = self._registry.name_of(cls)
            if name in by_name:
                raise name_taken(name, by_name[name].cls, cls)
            by_type[cls] = by_name[name] = shape_of(cls, name)
        # Recorded before it was registered under another name: still its own, if nobody else's.
        for cls, shape in by_type.items():
            by_name.setdefault(cls.__qualname__, shape)
        self._by_type, self._by_name, self._version = by_type, by_name, version


def explain(cls: type, allowed: Allowed) -> str:
    """Explain why a value of this exact type is refused, and what to do."""
    kind = kind_of(cls)
    name = cls.__qualname__
    if kind is not None:
        return (
            f"no annotation reaches the {kind} {name} (allowed here: {allowed.names()}); "
            f"annotate the return type or parameter with it, or outlive.register({cls.__name__})"
        )
    for plain in (bool, int, float, str, bytes, bytearray, tuple, list, dict, set, frozenset):
        if issubclass(cls, plain):
            return f"{name} would come back as a plain {plain.__name__}; convert it to one"
    if issubclass(cls, BaseException):
        return f"an exception ({name}) is not a value; raise it, or return its text"
    return (
        f"a value of type {cls.__module__}.{name} can't be recorded; use plain data, "
        "a dataclass, a NamedTuple, an Enum, a Struct or a pydantic model"
    )
