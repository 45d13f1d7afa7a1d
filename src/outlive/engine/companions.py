"""What stands beside an effect: its key, check and undo, looked at where they are declared.

They are called when something has gone wrong, or never: a mistake in them must not wait for that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from inspect import Parameter
from string import Formatter
from typing import Any

from outlive.engine.arguments import signature_of
from outlive.engine.definitions import Definition
from outlive.errors import DefinitionRefused

_STARS = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def check_companions(definition: Definition) -> None:
    """Refuse what could not be called, or would be called with what there is not.

    Raises:
        DefinitionRefused: it says which, and what there is.
    """
    rules, name = definition.effect, definition.name
    if rules is None or (rules.key, rules.check, rules.undo) == (None, None, None):
        return
    arguments = list(signature_of(definition.fn).parameters)
    if isinstance(rules.key, str):
        _check_template(name, rules.key, arguments)
    elif rules.key is not None:
        _check_key_function(name, rules.key, arguments)
    if rules.check is not None:
        _check_asked(f"{name}: its check", rules.check, [*arguments, "key"])
    if rules.undo is not None:
        _check_asked(f"{name}: its undo", rules.undo, [*arguments, "key", "outcome"])


def template_fields(template: str) -> Iterator[str]:
    """The arguments that a key is made from."""
    for _, field, spec, _ in Formatter().parse(template):
        if field is not None:
            yield field.partition(".")[0].partition("[")[0]
            yield from template_fields(spec or "")


def _check_template(name: str, template: str, arguments: list[str]) -> None:
    try:
        fields = list(template_fields(template))
    except ValueError as error:
        raise DefinitionRefused(f"{name}: key={template!r} is no template: {error}") from None
    for field in fields:
        if field not in arguments:
            raise DefinitionRefused(
                f"{name}: key={template!r} names {field!r}, which is no argument of it; "
                f"it has {_listed(arguments)}"
            )


def _check_key_function(name: str, key: Any, arguments: list[str]) -> None:
    if not callable(key):
        raise DefinitionRefused(f"{name}: key={key!r} is neither a template nor a function")
    try:
        signature = inspect.signature(key)
    except (TypeError, ValueError):
        return  # nothing is known of it; "order:{id}".format is such a one
    try:
        signature.bind(**dict.fromkeys(arguments))
    except TypeError as error:
        raise DefinitionRefused(
            f"{name}: its key is a function that can't be called with all of its arguments "
            f"by name, {_listed(arguments)}: {error}"
        ) from None


def _check_asked(what: str, fn: Callable[..., Any], offered: list[str]) -> None:
    if not callable(fn):
        raise DefinitionRefused(f"{what} is {fn!r}, which can't be called; give it a function")
    for parameter in signature_of(fn).parameters.values():
        if parameter.default is not Parameter.empty or parameter.kind in _STARS:
            continue
        if parameter.kind is Parameter.POSITIONAL_ONLY:
            raise DefinitionRefused(
                f"{what} has {parameter.name!r} by position only; all is given to it by name"
            )
        if parameter.name not in offered:
            raise DefinitionRefused(
                f"{what} wants {parameter.name!r}, which is not given to it; "
                f"it can have {_listed(offered)}"
            )


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
