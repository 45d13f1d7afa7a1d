"""From recorded bytes back to values: a closed world that imports nothing and looks nothing up.

Each tag has one reader. A class is found only among those allowed; fields are given to it only
if it has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from outlive.journal.codec_allowed import Allowed
from outlive.journal.codec_bounds import Refusal
from outlive.journal.codec_scalars import READERS
from outlive.journal.codec_shapes import NO_DEFAULT, EnumShape, Shape, fingerprint
from outlive.journal.codec_walk import ENUM, FROZENSET, ITEMS, OBJECT, SET, TUPLE
from outlive.journal.parts import LEAF, Leaf


class Reader:
    """Reads the values of one codec."""

    def __init__(self, allowed: Allowed, leaves: Mapping[bytes, Leaf] | None = None) -> None:
        self._allowed = allowed
        self._leaves = leaves or {}
        self.read = msgspec.msgpack.Decoder(ext_hook=self._tagged).decode
        self._tags: Mapping[int, Callable[[memoryview], Any]] = {
            **READERS,
            TUPLE: self._tuple,
            SET: self._set,
            FROZENSET: lambda payload: frozenset(self._set(payload)),
            ITEMS: self._items,
            OBJECT: self._object,
            ENUM: self._enum,
            LEAF: self._leaf,
        }

    def _tagged(self, tag: int, payload: memoryview) -> Any:
        reader = self._tags.get(tag)
        if reader is not None:
            return reader(payload)
        raise Refusal(f"tag {tag} is unknown to this release")

    def _leaf(self, payload: memoryview) -> Leaf:
        """Never changed by anybody, so it need not be a copy."""
        leaf = self._leaves.get(bytes(payload))
        if leaf is None:
            raise Refusal(f"a part of it, {payload.hex()}, is not at hand")
        return leaf

    def _list(self, payload: memoryview) -> list[Any]:
        parts = self.read(payload)
        if type(parts) is not list:
            raise Refusal(f"a {type(parts).__name__} where a list of parts must be")
        return parts

    def _tuple(self, payload: memoryview) -> tuple[Any, ...]:
        return tuple(self._list(payload))

    def _set(self, payload: memoryview) -> set[Any]:
        parts = self._list(payload)
        found: set[Any] = _hashed(set, parts)
        if len(found) != len(parts):
            raise Refusal("a set with an element that occurs twice")
        return found

    def _items(self, payload: memoryview) -> dict[Any, Any]:
        flat = self._list(payload)
        found: dict[Any, Any] = _hashed(dict, zip(flat[::2], flat[1::2], strict=True))
        if 2 * len(found) != len(flat):
            raise Refusal("a dict with a key that occurs twice")
        return found

    def _enum(self, payload: memoryview) -> Any:
        name, member = self._list(payload)
        shape = self._shape(name)
        if not isinstance(shape, EnumShape):
            raise Refusal(f"recorded a member of Enum {name}, which is no Enum now")
        return shape.make(member)

    def _object(self, payload: memoryview) -> Any:
        name, print_, fields, *rest = self._list(payload)
        shape = self._shape(name)
        if isinstance(shape, EnumShape):
            raise Refusal(f"recorded an object of class {name}, which is an Enum now")
        if type(fields) is not dict:
            raise Refusal(f"recorded {name} without fields")
        given = _given(fields, rest) if rest else None
        if print_ != shape.fingerprint or fields.keys() != shape.name_set:
            fields = _evolved(shape, fields, print_)
        try:
            return shape.make(fields, given)
        except Exception as exc:
            raise Refusal(f"{shape.name} refused its fields: {type(exc).__name__}: {exc}") from exc

    def _shape(self, name: object) -> Shape | EnumShape:
        shape = self._allowed.by_name(name) if type(name) is str else None
        if shape is None:
            raise Refusal(
                f"recorded class {name!s:.200}; allowed here: {self._allowed.names()}. "
                "Annotate with the class, or outlive.register(cls, name=...) under that name"
            )
        return shape


def _given(fields: dict[str, Any], rest: list[Any]) -> set[str]:
    given = set(rest[0])
    if len(rest) > 1 or not given <= fields.keys():
        raise Refusal("fields that were given but are not there")
    return given


def _evolved(shape: Shape, fields: dict[str, Any], recorded: object) -> dict[str, Any]:
    """The fields of a class that changed since: new ones take their defaults."""
    if recorded != fingerprint(fields) or recorded == shape.fingerprint:
        raise Refusal(f"recorded {shape.name} with fields that are not those of its fingerprint")
    missing = [name for name in shape.names if name not in fields]
    unknown = [name for name in fields if name not in shape.names]
    filled = {name: shape.default(name) for name in missing}
    required = [name for name in missing if filled[name] is NO_DEFAULT]
    if unknown or required:
        raise Refusal(
            f"recorded {shape.name}({', '.join(fields)}), the class is now {shape.render()}: "
            + "; ".join(
                [f"{name} is unknown" for name in unknown]
                + [f"{name} has no default" for name in required]
            )
        )
    return {name: fields[name] if name in fields else filled[name] for name in shape.names}


def _hashed(make: Callable[[Any], Any], parts: Any) -> Any:
    try:
        return make(parts)
    except Exception as exc:  # a recorded object's own __hash__ or __eq__ may raise anything
        raise Refusal(f"can't be hashed: {type(exc).__name__}: {exc}") from exc
