"""Values that come from people and other programs, as the types that a flow asks for."""

from __future__ import annotations

from typing import Any

import msgspec

from outlive.engine.definitions import registry
from outlive.errors import ValueRefused
from outlive.journal.codec import codec_for


def from_json(hint: Any, raw: bytes) -> Any:
    """A JSON text as a value of this type."""
    validate = getattr(hint, "model_validate_json", None)
    try:
        if validate is not None:
            return validate(raw)
        return msgspec.json.decode(raw, type=Any if hint is None else hint)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise ValueRefused(f"this JSON is no {hint!r}: {error}") from None


def schema_of(hint: Any) -> bytes:
    """The JSON schema of a type; empty where there is none."""
    if hint is Any:
        return b""
    describe = getattr(hint, "model_json_schema", None)
    try:
        return msgspec.json.encode(describe() if describe else msgspec.json.schema(hint))
    except TypeError:
        return b""


def encode_own(value: object) -> bytes:
    """A value sent to a run by a program that has its type."""
    return codec_for([type(value)], registry).encode(value)


def decode_as(hint: Any, raw: bytes, *, is_json: bool) -> Any:
    """What was sent, as the type that the flow waits for."""
    return from_json(hint, raw) if is_json else codec_for([hint], registry).decode(raw)
