"""Values that come from people and other programs, as the types that a flow asks for."""

from __future__ import annotations

import sys
from datetime import datetime, time
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from outlive.engine.definitions import registry
from outlive.errors import DefinitionRefused, ValueRefused
from outlive.journal.codec.codec import Codec, codec_for
from outlive.model.schema import BY_PYDANTIC

#: Types that name no class.
_PLAIN = frozenset({str, int, float, bool, bytes, type(None), list, dict, tuple, set})
_plain_codec = codec_for([], registry)


def from_json(hint: Any, raw: bytes) -> Any:
    """A JSON text as a value of this type."""
    try:
        if hint is Any or _schema(hint) is not None:
            return msgspec.json.decode(raw, type=Any if hint is None else hint)
        return _pydantic(hint).validate_json(raw)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise ValueRefused(f"this JSON is no {hint!r}: {error}") from None


def schema_of(hint: Any) -> bytes:
    """The JSON schema of a type; empty for anything.

    Raises:
        DefinitionRefused: no JSON can be of this type.
    """
    if hint is Any:
        return b""
    try:
        return msgspec.json.encode(
            _schema(_formed(hint)) or {**_pydantic(hint).json_schema(), **BY_PYDANTIC}
        )
    except TypeError:
        raise DefinitionRefused(
            f"no answer can be {hint!r}: ask for a built-in type, a dataclass, a msgspec Struct "
            "or a pydantic model"
        ) from None


def _formed(hint: Any) -> Any:
    """Of an instant msgspec says only that it is a text, since it may be without a time zone."""
    if hint is not datetime and hint is not time:
        return hint
    form = "date-time" if hint is datetime else "time"
    return Annotated[hint, msgspec.Meta(extra_json_schema={"format": form})]


def _schema(hint: Any) -> dict[str, Any] | None:
    """What msgspec says of a type; None if it does not know it."""
    try:
        return msgspec.json.schema(hint)
    except TypeError:
        return None


def _pydantic(hint: Any) -> Any:
    """Pydantic's view of a type. It is never imported here: its models come with it."""
    pydantic = sys.modules.get("pydantic")
    try:
        return pydantic.TypeAdapter(hint)  # type: ignore[union-attr]  # without it: as below
    except Exception as error:
        raise TypeError(f"{hint!r} is of no known kind") from error


def name_of(hint: Any) -> str:
    """A type as people write it; the same wherever its module is run from."""
    if isinstance(hint, type) and not get_args(hint):
        return hint.__qualname__
    args = ", ".join(map(name_of, get_args(hint)))
    kind = get_origin(hint)
    if kind in (Union, UnionType):
        return args.replace(", ", " | ")
    if kind is Literal or kind is None or not args:
        return repr(hint).replace("typing.", "")
    return f"{name_of(kind)}[{args}]"


def encode_own(value: object) -> bytes:
    """A value sent to a run by a program that has its type."""
    return _codec(type(value)).encode(value)


def decode_as(hint: Any, raw: bytes, *, is_json: bool) -> Any:
    """What was sent, as the type that the flow waits for."""
    if is_json:
        return from_json(hint, raw)
    value = _codec(hint).decode(raw)
    if not _is_of(value, hint):
        raise ValueRefused(f"{type(value).__name__} was sent, the flow waits for {name_of(hint)}")
    return value


def _codec(hint: Any) -> Codec:
    return _plain_codec if type(hint) is type and hint in _PLAIN else codec_for([hint], registry)


def _is_of(value: object, hint: Any) -> bool:
    """Whether a value is of a type, looking at the outside only."""
    kind = get_origin(hint) or hint
    if kind is Annotated:
        return _is_of(value, get_args(hint)[0])
    if kind in (Union, UnionType):
        return any(_is_of(value, each) for each in get_args(hint))
    if kind is Literal:
        return value in get_args(hint)
    if kind is None:
        return value is None
    if kind is float:
        return isinstance(value, (float, int))
    try:
        return kind is Any or isinstance(value, kind)
    except TypeError:
        return True  # what can't be asked can't be refused
