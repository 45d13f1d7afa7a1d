"""A flow's arguments from JSON: by position or by name, as the types that its hints say."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

import msgspec

from outlive.cli.modules import AnyFlow
from outlive.errors import UsageError
from outlive.journal.hints import parameter_hints

_EXAMPLE = """--input '["Ada", 3]' or --input '{"name": "Ada"}'"""
#: Names that the verb which starts a run has taken.
_RESERVED = {"id"}


def parse_json(text: str, what: str, example: str) -> Any:
    """What this JSON says; ``what`` names it in the error."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise UsageError(
            f"{what} is not JSON: {str(error) or 'too deep'}; write {example}"
        ) from None


def parse_input(flow: AnyFlow, text: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments for a call of the flow.

    Raises:
        UsageError: it is no JSON, or the flow does not take it.
    """
    given = [] if text is None else parse_json(text, "--input", _EXAMPLE)
    if not isinstance(given, (list, dict)):
        raise UsageError(f"--input is a list or an object: {_EXAMPLE}")
    args, kwargs = (given, {}) if isinstance(given, list) else ([], given)
    signature = inspect.signature(flow.fn)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"flow {flow.name}{signature}: {error}; {_EXAMPLE}") from None
    hints = parameter_hints(flow.fn)
    for name, value in bound.arguments.items():
        if name in hints:
            convert = _CONVERT.get(signature.parameters[name].kind, _convert)
            bound.arguments[name] = convert(name, value, hints[name])
    bound.apply_defaults()
    if taken := _RESERVED.intersection(bound.kwargs):
        raise UsageError(
            f"flow {flow.name} has a keyword-only parameter {min(taken)!r}, which the command line "
            "can't give; let it be given by position"
        )
    return bound.args, bound.kwargs


def _convert(name: str, value: Any, hint: Any) -> Any:
    try:
        return msgspec.convert(value, hint, dec_hook=_by_its_own_rules)
    except msgspec.ValidationError as error:
        raise UsageError(f"--input: argument {name!r}: {error}") from None
    except TypeError:
        return value  # a hint that says nothing about JSON


def _by_its_own_rules(cls: Any, value: Any) -> Any:
    """An object of a class that msgspec does not know: a pydantic model."""
    validate = getattr(cls, "model_validate", None)
    if validate is None:
        raise ValueError(f"JSON can't say a {cls.__qualname__}")
    return validate(value)


def _convert_each(name: str, values: tuple[Any, ...], hint: Any) -> tuple[Any, ...]:
    return tuple(_convert(name, value, hint) for value in values)


def _convert_named(name: str, values: Mapping[str, Any], hint: Any) -> dict[str, Any]:
    return {key: _convert(key, value, hint) for key, value in values.items()}


_CONVERT: Mapping[Any, Callable[[str, Any, Any], Any]] = {
    Parameter.VAR_POSITIONAL: _convert_each,
    Parameter.VAR_KEYWORD: _convert_named,
}
