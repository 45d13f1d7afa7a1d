"""Two states side by side: what is in one and not in the other, path by path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from outlive.journal.codec_bounds import key_step


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


#: What stands where one of the two states has nothing.
ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Change:
    """One place at which two states differ."""

    #: As in error texts: ``$.results[3]``.
    path: str
    #: What was there; ``ABSENT``: nothing.
    before: Any
    #: What is there; ``ABSENT``: nothing.
    after: Any


def changes(before: Any, after: Any, path: str = "$") -> Iterator[Change]:
    """Where two states differ, in the order of the first."""
    if type(before) is dict and type(after) is dict:
        for key in [*before, *(key for key in after if key not in before)]:
            step = path + key_step(key)
            yield from changes(before.get(key, ABSENT), after.get(key, ABSENT), step)
    elif type(before) is list and type(after) is list:
        for place in range(max(len(before), len(after))):
            yield from changes(_at(before, place), _at(after, place), f"{path}[{place}]")
    elif type(before) is not type(after) or before != after:
        yield Change(path, before, after)


def _at(values: list[Any], place: int) -> Any:
    return values[place] if place < len(values) else ABSENT
