"""The closed world of one codec: the classes that its data may name, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from outlive.journal.codec_shapes import EnumShape, Shape, kind_of, shape_of
from outlive.journal.hints import Registry, name_taken


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
        """Who is allowed, for an error's text."""
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
    """Why a value of this exact type is refused, and what to do."""
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
