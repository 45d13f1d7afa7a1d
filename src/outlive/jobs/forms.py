"""Forms of MIP-003: which input a schema asks for, and what is wrong with a given one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any, Final

_TEXTS: Final = ("text", "textarea", "email", "password", "tel", "url", "search", "hidden")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_URL = re.compile(r"https?://\S+")
_TEL = re.compile(r"\+?[0-9][0-9 ()./-]{2,}")
_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")
_WEEK = re.compile(r"\d{4}-W(0[1-9]|[1-4]\d|5[0-3])")


def fields_of(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The fields of a schema, with those of its groups."""
    groups = schema.get("input_groups")
    if groups:
        return [field for group in groups for field in group.get("input_data") or ()]
    return list(schema.get("input_data") or ())


def problems(input_data: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is wrong with an input, by field; empty: nothing.

    Fields that the schema does not know are let through, as the masumi package does.
    """
    found: dict[str, list[str]] = {}
    for field in fields_of(schema):
        name = str(field.get("id"))
        wrong = _problems_of(input_data.get(name), field)
        if wrong:
            found[name] = wrong
    return found


def _problems_of(value: Any, field: Mapping[str, Any]) -> list[str]:
    kind = {"string": "text"}.get(str(field.get("type")), str(field.get("type")))
    rules = [(rule.get("validation"), rule.get("value")) for rule in field.get("validations") or ()]
    if kind == "none":
        return []
    if _is_empty(value):
        is_optional = any(name == "optional" for name, _ in rules)
        return [] if is_optional else ["is required"]
    wrong = _wrong_type(value, kind)
    if wrong:
        return [wrong]
    checks: dict[str, Callable[[Any, str, str], str]] = {
        "min": _too_small,
        "max": _too_large,
        "format": _wrong_format,
    }
    found = [
        checks[name](value, str(limit), kind)
        for name, limit in rules
        if name in checks and limit is not None
    ]
    return [text for text in found if text]


def _is_empty(value: Any) -> bool:
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def _wrong_type(value: Any, kind: str) -> str:
    if kind in ("boolean", "checkbox"):
        return "" if isinstance(value, bool) else "must be true or false"
    if kind in ("number", "range"):
        return "" if _number(value) is not None else "must be a number"
    if kind == "option":
        return "" if isinstance(value, str | list) else "must be a text or a list"
    if not isinstance(value, str):
        return "must be a text"
    check = _FORMS.get(kind)
    return "" if check is None or check(value) else f"must be a valid {kind}"


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            parse(value)
        except ValueError:
            return False
        return True

    return check


_FORMS: Final[dict[str, Callable[[str], bool]]] = {
    "email": lambda value: _EMAIL.fullmatch(value) is not None,
    "url": lambda value: _URL.fullmatch(value) is not None,
    "date": _parses(date.fromisoformat),
    "datetime-local": _parses(datetime.fromisoformat),
    "time": _parses(time.fromisoformat),
    "month": lambda value: _MONTH.fullmatch(value) is not None,
    "week": lambda value: _WEEK.fullmatch(value) is not None,
}
_DATES: Final = ("date", "datetime-local", "time", "month", "week")


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _size(value: Any, kind: str) -> float | None:
    """What a limit is compared with: a length, a value, or how many were chosen."""
    if kind in _TEXTS:
        return len(value)
    if kind in ("option", "radio", "checkbox"):
        return len(value) if isinstance(value, list) else 1
    return _number(value)


def _too_small(value: Any, limit: str, kind: str) -> str:
    if kind in _DATES:
        return "" if value >= limit else f"must not be before {limit}"
    size, least = _size(value, kind), _number(limit)
    return f"must be at least {limit}" if size is not None and least and size < least else ""


def _too_large(value: Any, limit: str, kind: str) -> str:
    if kind in _DATES:
        return "" if value <= limit else f"must not be after {limit}"
    size, most = _size(value, kind), _number(limit)
    is_large = size is not None and most is not None and size > most
    return f"must be at most {limit}" if is_large else ""


def _wrong_format(value: Any, name: str, kind: str) -> str:
    if name == "integer":
        number = _number(value)
        is_right = number is not None and number.is_integer()
    elif name == "tel-pattern":
        is_right = isinstance(value, str) and _TEL.fullmatch(value) is not None
    else:
        check = _FORMS.get(name)
        is_right = check is None or (isinstance(value, str) and check(value))
    return "" if is_right else f"must be a valid {name}"
