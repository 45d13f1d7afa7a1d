"""What an answer must be, in words: a JSON schema for people."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from outlive.model.schema import follow, form_of

WANTED_CHARS = 200
Schema = Mapping[str, Any]
_SIMPLE = {
    "boolean": "yes or no",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "null": "null",
}
_EXAMPLES = {"boolean": "yes", "string": "TEXT", "integer": "NUMBER", "number": "NUMBER"}


def wanted(schema: Schema | None, root: Schema | None = None) -> str:
    """What an answer must be, in a few words."""
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
    """Those that may be left out stand in brackets."""
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
