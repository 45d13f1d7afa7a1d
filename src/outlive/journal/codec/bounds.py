"""The limits of a value, and the path in a refusal."""

from __future__ import annotations

from outlive.errors import ValueRefused

#: A value's encoded size.
VALUE_BYTES_MAX = 64 * 1024 * 1024
#: Nesting depth; it also ends every cycle.
DEPTH_MAX = 64
#: Parts of one value, counted as often as they are reached. It ends walks over values that share
#: their parts, and so are far larger encoded than in memory.
PARTS_MAX = 8_000_000
#: A list, dict or object counts as this many parts.
CONTAINER_PARTS = 16
#: The number of digits that Python itself converts to text and back.
INT_DIGITS_MAX = 4300

_KEY_CHARS_SHOWN = 40
_STEPS_SHOWN = 8


class Refusal(Exception):
    """A refusal on its way up: each container adds its part of the path."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self._steps: list[str] = []

    def under(self, step: str) -> None:
        self._steps.append(step)

    def as_error(self) -> ValueRefused:
        steps = self._steps[::-1]
        if len(steps) > 2 * _STEPS_SHOWN:
            steps[_STEPS_SHOWN:-_STEPS_SHOWN] = ["…"]
        return ValueRefused(self.reason, "$" + "".join(steps))


def key_step(key: object) -> str:
    """A dict's key as part of a path; never calls the key's own code."""
    kind = type(key)
    if kind is str:
        text = str(key)
        if len(text) <= _KEY_CHARS_SHOWN and text.isidentifier() and text.isascii():
            return f".{text}"
        return f"[{text[:_KEY_CHARS_SHOWN]!a}]"
    if kind is bool or (isinstance(key, int) and kind is int and key.bit_length() <= 64):
        return f"[{key}]"
    return f"[{kind.__name__} key]"
