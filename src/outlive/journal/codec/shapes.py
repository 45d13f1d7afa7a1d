"""Shapes of classes: recorded name, fields, and how instances are taken apart and made.

Taking apart refuses attributes that are not fields; making runs no ``__init__`` and no validator
(a Struct's ``__post_init__`` can't be avoided: the recorded values are restored after it).
A *fingerprint* of the field names is recorded beside the name, so that a class which changed
since is noticed.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from hashlib import blake2b
from types import MemberDescriptorType
from typing import Any, NamedTuple

import msgspec

from outlive.journal.codec.bounds import Refusal
from outlive.journal.codec.scalars import pack, write_int

#: Taken apart: the fields (not to be changed), and which of them were given (pydantic only).
Parts = tuple[dict[str, Any], "set[str] | None"]


class _NoDefault(enum.Enum):
    NO_DEFAULT = enum.auto()


NO_DEFAULT = _NoDefault.NO_DEFAULT


class Anatomy(NamedTuple):
    """The way in which instances of one class are taken apart and made again."""

    names: tuple[str, ...]
    take: Callable[[Any], Parts]
    make: Callable[[dict[str, Any], set[str] | None], Any]
    default: Callable[[str], Any]


class Shape(NamedTuple):
    """A class that may be recorded under a name."""

    cls: type
    name: str
    names: tuple[str, ...]
    name_set: frozenset[str]
    fingerprint: bytes
    #: The beginning of every recorded instance: an array's head, name, fingerprint.
    prefix: bytes
    take: Callable[[Any], Parts]
    make: Callable[[dict[str, Any], set[str] | None], Any]
    default: Callable[[str], Any]

    def render(self) -> str:
        return f"{self.name}({', '.join(self.names)})"


class EnumShape(NamedTuple):
    """An Enum that may be recorded under a name: by its members' names."""

    cls: type[enum.Enum]
    name: str

    def take(self, member: enum.Enum) -> list[object]:
        name = member._name_
        if self.cls.__members__.get(name) is member:
            return [self.name, name]
        if isinstance(member, enum.Flag):
            return [self.name, write_int(member._value_)]
        raise Refusal(f"{self.name} has no member of that name")

    def make(self, member: object) -> enum.Enum:
        if type(member) is str and member in self.cls.__members__:
            return self.cls.__members__[member]
        if type(member) is int and issubclass(self.cls, enum.Flag):
            return self.cls(member)
        raise Refusal(
            f"recorded {self.name}.{member!s:.80}; the Enum now has: "
            + ", ".join(self.cls.__members__)
        )


def kind_of(cls: type) -> str | None:
    """The kind of a recordable class, or None."""
    if issubclass(cls, enum.Enum):
        return "Enum"
    if issubclass(cls, tuple):
        return "NamedTuple" if _is_named_tuple(cls) else None
    if issubclass(cls, msgspec.Struct):
        return "Struct"
    if is_pydantic(cls):
        return "pydantic model"
    return "dataclass" if dataclasses.is_dataclass(cls) else None


def shape_of(cls: type, name: str) -> Shape | EnumShape:
    """The shape of a class of one of those kinds."""
    kind = kind_of(cls)
    if kind == "Enum":
        return EnumShape(cls, name)
    anatomy = _ANATOMIES[kind or ""](cls)
    return Shape(
        cls,
        name,
        anatomy.names,
        frozenset(anatomy.names),
        fingerprint(anatomy.names),
        (b"\x94" if kind == "pydantic model" else b"\x93")
        + pack(name)
        + pack(fingerprint(anatomy.names)),
        *anatomy[1:],
    )


def fingerprint(names: Iterable[str]) -> bytes:
    """A four-byte fingerprint of a set of field names; their order does not count."""
    return blake2b("\0".join(sorted(names)).encode(), digest_size=4).digest()


def is_pydantic(cls: type) -> bool:
    """Whether this is a pydantic model, without importing pydantic to find out."""
    main = sys.modules.get("pydantic.main")
    return main is not None and issubclass(cls, main.BaseModel) and cls is not main.BaseModel


def _is_named_tuple(cls: type) -> bool:
    fields = getattr(cls, "_fields", None)
    return type(fields) is tuple and isinstance(getattr(cls, "_field_defaults", None), dict)


def _named_tuple(cls: Any) -> Anatomy:
    names: tuple[str, ...] = cls._fields

    def take(value: Any) -> Parts:
        if len(value) != len(names):
            raise Refusal(f"{cls.__qualname__} holds {len(value)} items, not {len(names)}")
        _refuse_extra(cls, getattr(value, "__dict__", {}))
        return dict(zip(names, value, strict=True)), None

    def make(fields: dict[str, Any], _: object) -> Any:
        return tuple.__new__(cls, [fields[name] for name in names])

    return Anatomy(names, take, make, lambda name: cls._field_defaults.get(name, NO_DEFAULT))


def _struct(cls: Any) -> Anatomy:
    names: tuple[str, ...] = cls.__struct_fields__
    corrects = hasattr(cls, "__post_init__")

    def take(value: Any) -> Parts:
        _refuse_extra(cls, getattr(value, "__dict__", {}))
        return _taken(cls, {name: getattr(value, name, NO_DEFAULT) for name in names}), None

    def make(fields: dict[str, Any], _: object) -> Any:
        value = cls(**fields)
        if corrects:
            for name in names:
                msgspec.structs.force_setattr(value, name, fields[name])
        return value

    def default(name: str) -> Any:
        field = next(field for field in msgspec.structs.fields(cls) if field.name == name)
        return _default(field.default, field.default_factory, msgspec.NODEFAULT)

    return Anatomy(names, take, make, default)


def _dataclass(cls: Any) -> Anatomy:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    names = tuple(fields)
    unfit = _unfit_dataclass(cls, fields)
    has_dict = bool(cls.__dictoffset__)
    in_slots = frozenset(name for name in names if _slot(cls, name))

    def take(value: Any) -> Parts:
        if unfit:
            raise Refusal(unfit)
        state: dict[str, Any] = value.__dict__ if has_dict else {}
        if tuple(state) == names:
            return state, None
        _refuse_extra(cls, [key for key in state if key not in fields])
        return _taken(
            cls,
            {
                name: getattr(value, name, NO_DEFAULT)
                if name in in_slots
                else state.get(name, fields[name].default)
                for name in names
            },
        ), None

    def make(recorded: dict[str, Any], _: object) -> Any:
        if unfit:
            raise Refusal(unfit)
        value = object.__new__(cls)
        if in_slots:
            for name in names:
                object.__setattr__(value, name, recorded[name])
        else:
            value.__dict__.update(recorded)
        return value

    def default(name: str) -> Any:
        return _default(fields[name].default, fields[name].default_factory, dataclasses.MISSING)

    return Anatomy(names, take, make, default)


def _pydantic(cls: Any) -> Anatomy:
    names: tuple[str, ...] = tuple(cls.model_fields)
    has_private = bool(cls.__private_attributes__)
    takes_extra = cls.model_config.get("extra") == "allow"
    is_root = bool(getattr(cls, "__pydantic_root_model__", False))

    def take(value: Any) -> Parts:
        state: dict[str, Any] = value.__dict__
        parts = state
        if tuple(state) != names:
            parts = {name: state.get(name, NO_DEFAULT) for name in names}
            _refuse_extra(cls, [key for key in state if key not in parts])
        if not is_root:
            _refuse_extra(cls, value.__pydantic_extra__ or {}, "an extra attribute")
            _refuse_extra(cls, value.__pydantic_private__ or {}, "a private attribute")
        return _taken(cls, parts), set(value.__pydantic_fields_set__)

    def make(fields: dict[str, Any], given: set[str] | None) -> Any:
        value = cls.__new__(cls)
        object.__setattr__(value, "__dict__", {name: fields[name] for name in names})
        object.__setattr__(
            value, "__pydantic_fields_set__", set(fields) if given is None else given
        )
        if not is_root:
            object.__setattr__(value, "__pydantic_extra__", {} if takes_extra else None)
            object.__setattr__(value, "__pydantic_private__", {} if has_private else None)
        return value

    def default(name: str) -> Any:
        field = cls.model_fields[name]
        return NO_DEFAULT if field.is_required() else field.get_default(call_default_factory=True)

    return Anatomy(names, take, make, default)


def _unfit_dataclass(cls: Any, fields: Mapping[str, Any]) -> str | None:
    """Explain why instances of this dataclass can't be made from their fields alone."""
    for name, field in cls.__dataclass_fields__.items():
        # No public API tells an InitVar from a ClassVar.
        if field._field_type.name == "_FIELD_INITVAR":  # noqa: SLF001
            return f"dataclass {cls.__qualname__} has an InitVar ({name}), which is not kept"
    try:
        object.__new__(cls)
    except TypeError:
        return f"dataclass {cls.__qualname__} is built on a type that keeps state of its own"
    for owner in cls.__mro__:
        for name, member in vars(owner).items():
            if isinstance(member, MemberDescriptorType) and name not in fields:
                return f"dataclass {cls.__qualname__} has a slot that is not a field ({name})"
    return None


def _slot(cls: type, name: str) -> bool:
    return any(isinstance(vars(owner).get(name), MemberDescriptorType) for owner in cls.__mro__)


def _taken(cls: type, parts: dict[str, Any]) -> dict[str, Any]:
    for name, part in parts.items():
        if part is NO_DEFAULT or part is dataclasses.MISSING:
            raise Refusal(f"field {name} of {cls.__qualname__} was never set")
    return parts


def _refuse_extra(cls: type, extra: Iterable[str], what: str = "an attribute") -> None:
    for name in extra:
        if not isinstance(getattr(cls, name, None), cached_property):
            raise Refusal(f"{name} is {what} of {cls.__qualname__} but no field: it would be lost")


def _default(value: Any, factory: Any, missing: object) -> Any:
    if factory is not missing:
        return factory()
    return NO_DEFAULT if value is missing else value


_ANATOMIES: Mapping[str, Callable[[Any], Anatomy]] = {
    "NamedTuple": _named_tuple,
    "Struct": _struct,
    "pydantic model": _pydantic,
    "dataclass": _dataclass,
}
