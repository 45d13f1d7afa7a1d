"""Does a JSON value fit a JSON schema? Enough of it to refuse a wrong answer at the door."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
Schema = Mapping[str, Any]


def misfit(value: Any, schema: Schema, root: Schema | None = None, path: str = "$") -> str | None:
    """Why the value does not fit, with the path to it; None if it does."""
    root = schema if root is None else root
    if "$ref" in schema:
        return misfit(value, follow(schema["$ref"], root), root, path)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            found = [misfit(value, option, root, path) for option in schema[key]]
            return None if None in found else found[0]
    if "const" in schema and value != schema["const"]:
        return f"{path}: it is {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{path}: one of {', '.join(map(repr, schema['enum']))}"
    return _wrong_type(value, schema, path) or _wrong_inside(value, schema, root, path)


def follow(reference: str, root: Schema) -> Schema:
    """The part of a schema that a reference leads to."""
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    target: Schema = found
    return target


def _wrong_type(value: Any, schema: Schema, path: str) -> str | None:
    wanted = schema.get("type")
    if wanted is None:
        return None
    names = [wanted] if isinstance(wanted, str) else wanted
    for name in names:
        is_bool = isinstance(value, bool)
        if isinstance(value, _TYPES[name]) and (not is_bool or name == "boolean"):
            return None
    return f"{path}: {' or '.join(names)} is wanted, not {type(value).__name__}"


def _wrong_inside(value: Any, schema: Schema, root: Schema, path: str) -> str | None:
    if isinstance(value, dict):
        return _wrong_object(value, schema, root, path)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, Mapping):
        for position, each in enumerate(value):
            why = misfit(each, items, root, f"{path}[{position}]")
            if why:
                return why
    return None


def _wrong_object(value: dict[str, Any], schema: Schema, root: Schema, path: str) -> str | None:
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        return f"{path}: {', '.join(missing)} is missing"
    properties = schema.get("properties", {})
    for name, each in value.items():
        if name in properties:
            why = misfit(each, properties[name], root, f"{path}.{name}")
            if why:
                return why
        elif schema.get("additionalProperties", True) is False:
            return f"{path}.{name}: there is no such field"
    return None
