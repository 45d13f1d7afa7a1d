"""Arguments that are not recorded: a body gets them, its journal a mark in their place.

They come from the flow's own code each time the call is made, live as on replay, so nothing has to
be kept. What is compared, approved and claimed is what is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from outlive.engine.arguments import Bound
from outlive.engine.companions import template_fields
from outlive.engine.definitions import Definition
from outlive.errors import ValueRefused
from outlive.journal.redaction import Hider
from outlive.model.redaction import MARK


def recorded_args(call: Definition, bound: Bound, hider: Hider) -> tuple[bytes, bytes | None]:
    """The arguments as they are recorded; and, if those are others, as a body gets copies."""
    if not (call.redact or hider.names or hider.is_on):
        return call.encode_args(bound), None
    hidden = _hidden(call, hider)
    for name, value in _by_name(call, bound):
        if name in hidden:
            hider.learn(_texts(value))
    shown = call.encode_args(_mapped(call, bound, hidden, marks=True))
    recorded = hider.value(shown)
    if recorded is shown and not any(name in hidden for name, _ in _by_name(call, bound)):
        return shown, None
    return recorded, call.encode_args(_mapped(call, bound, hidden, marks=False))


def shown_args(call: Definition, bound: Bound, hider: Hider) -> Iterator[tuple[str, Any]]:
    """The arguments that count, for a person to see."""
    hidden = _hidden(call, hider)
    for name, value in bound.items():
        if name not in call.ignore:
            yield name, MARK if name in hidden else value


def own_copy(call: Definition, bound: Bound, open_args: bytes) -> Bound:
    """Arguments that the body may change without the flow noticing; what is hidden as it is."""
    copied = call.own_copy(bound, open_args)
    extra = call.extra
    if extra in copied and copied is not bound:
        copied[extra] = {**bound[extra], **copied[extra]}
    return copied


def without_marks(bound: Bound) -> Bound:
    """Arguments from the journal alone: those that were hidden are not there."""
    return {name: value for name, value in bound.items() if value != MARK}


def checked_key(call: Definition, bound: Bound, hider: Hider) -> str | None:
    """The key that the user gave, if any: it is recorded, so nothing in it may be redacted.

    Raises:
        ValueRefused: something is.
    """
    key = call.key_for(bound)
    template = None if call.effect is None else call.effect.key
    hidden = _hidden(call, hider)
    is_made_of_it = isinstance(template, str) and bool(hidden & set(template_fields(template)))
    if key is not None and (is_made_of_it or hider.text(key) != key):
        raise ValueRefused(
            f"the key of effect {call.name} holds what is redacted, and keys are stored; make it "
            "of something else"
        )
    return key


def _hidden(call: Definition, hider: Hider) -> frozenset[str]:
    return hider.names.union(call.redact)


def _by_name(call: Definition, bound: Bound) -> Iterable[tuple[str, Any]]:
    """The arguments, and those that ``**`` took."""
    extra = call.extra
    return [*bound.items(), *(bound[extra].items() if extra in bound else ())]


def _mapped(call: Definition, bound: Bound, hidden: frozenset[str], *, marks: bool) -> Bound:
    def mapped(given: Bound) -> Bound:
        shown = {name: MARK if name in hidden else value for name, value in given.items()}
        return shown if marks else {name: shown[name] for name in shown if name not in hidden}

    made = mapped(bound)
    extra = call.extra
    if extra in made and extra not in hidden:
        made[extra] = mapped(bound[extra])
    return made


def _texts(value: Any) -> Iterator[str]:
    """The texts in an argument, which are looked for elsewhere."""
    reveal = getattr(value, "get_secret_value", None)
    if callable(reveal):  # pydantic's SecretStr and SecretBytes
        value = reveal()
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "surrogateescape")
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield from _texts(each)
