"""A small JSON schema validator: enough to refuse a wrong answer at once."""

from __future__ import annotations

import operator
import shlex
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
#: By the format of a text: what it must be readable as, and in words.
_FORMS: dict[str, tuple[type, str]] = {
    "date": (date, "a date like 2026-01-31"),
    "date-time": (datetime, "an instant like 2026-01-31T09:30:00Z"),
    "time": (time, "a time like 09:30:00"),
    "duration": (timedelta, "a duration like PT1H30M"),
    "uuid": (UUID, "a UUID"),
    "decimal": (Decimal, "a decimal number"),
    "base64": (bytes, "bytes in base64"),
}
_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("at least", operator.ge),
    "exclusiveMinimum": ("more than", operator.gt),
    "maximum": ("at most", operator.le),
    "exclusiveMaximum": ("less than", operator.lt),
}
_SIZES: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minLength": ("at least {} characters", operator.ge),
    "maxLength": ("at most {} characters", operator.le),
    "minItems": ("at least {} items", operator.ge),
    "maxItems": ("at most {} items", operator.le),
}
#: In a schema that pydantic made: it reads more forms of dates and the like than others do.
BY_PYDANTIC = {"$comment": "by pydantic"}
Schema = Mapping[str, Any]


def misfit(value: Any, schema: Schema, root: Schema | None = None, path: str = "$") -> str | None:
    """Explain why the value does not fit, with its path; None: it fits."""
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
    return (
        _wrong_type(value, schema, path)
        or _wrong_form(value, schema, root, path)
        or _wrong_size(value, schema, path)
        or _wrong_inside(value, schema, root, path)
    )


def form_of(schema: Schema) -> str | None:
    """The rule for a text, in words; None: any text fits."""
    form = _FORMS.get(_form(schema))
    return None if form is None else form[1]


def _form(schema: Schema) -> str:
    return str(schema.get("contentEncoding") or schema.get("format"))


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


def _wrong_form(value: Any, schema: Schema, root: Schema, path: str) -> str | None:
    form = _FORMS.get(_form(schema))
    if form is None or not isinstance(value, str) or BY_PYDANTIC.items() <= root.items():
        return None
    kind, words = form
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return f"{path}: {words} is wanted"
    return None


def _wrong_size(value: Any, schema: Schema, path: str) -> str | None:
    is_number = isinstance(value, (int, float))
    if not is_number and not isinstance(value, (str, list)):
        return None
    for name, (words, fits) in (_BOUNDS if is_number else _SIZES).items():
        limit = schema.get(name)
        if limit is not None and not fits(value if is_number else len(value), limit):
            told = f"{words} {limit} is" if is_number else f"{words.format(limit)} are"
            return f"{path}: {told} wanted"
    return None


def _wrong_inside(value: Any, schema: Schema, root: Schema, path: str) -> str | None:
    if isinstance(value, dict):
        return _wrong_object(value, schema, root, path)
    if not isinstance(value, list):
        return None
    first, rest = schema.get("prefixItems", ()), schema.get("items")
    for position, each in enumerate(value):
        item = first[position] if position < len(first) else rest
        why = misfit(each, item, root, f"{path}[{position}]") if isinstance(item, Mapping) else None
        if why:
            return why
    return None


def _wrong_object(value: dict[str, Any], schema: Schema, root: Schema, path: str) -> str | None:
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        return f"{path}: {', '.join(missing)} is missing"
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, each in value.items():
        field = properties.get(name, others)
        if field is False:
            return f"{path}.{name}: there is no such field"
        why = misfit(each, field, root, f"{path}.{name}") if isinstance(field, Mapping) else None
        if why:
            return why
    return None


WANTED_CHARS = 200
_SIMPLE = {
    "boolean": "yes or no",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "null": "null",
}
_EXAMPLES = {"boolean": "yes", "string": "TEXT", "integer": "NUMBER", "number": "NUMBER"}


def wanted(schema: Schema | None, root: Schema | None = None) -> str:
    """A short description of the expected answer."""
    if schema is None:
        return "anything"
    root = schema if root is None else root
    if "anyOf" in schema:
        return ", or ".join(dict.fromkeys(wanted(each, root) for each in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if "$ref" in schema:
        return wanted(follow(schema["$ref"], root), root)
    if "properties" in schema:
        return f"an object {{{_fields(schema)}}}"
    simple = form_of(schema) or _SIMPLE.get(str(schema.get("type")))
    text = simple or f"JSON of the schema {msgspec.json.encode(schema).decode()}"
    return text if len(text) <= WANTED_CHARS else f"{text[:WANTED_CHARS]}…"


def _fields(schema: Schema) -> str:
    """Fields in words; optional ones in brackets."""
    needed = schema.get("required", ())
    return ", ".join(name if name in needed else f"[{name}]" for name in schema["properties"])


def example(schema: Schema | None) -> str:
    """An answer as somebody would type it."""
    if schema is None:
        return "JSON"
    if "anyOf" in schema:
        return example(schema["anyOf"][0])
    if "enum" in schema:
        return shlex.quote(str(schema["enum"][0]))
    return _EXAMPLES.get(str(schema.get("type")), "JSON")
