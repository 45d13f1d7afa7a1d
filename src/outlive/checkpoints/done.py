"""The steps of a run that are done: which of them answers a call, and what the next is named.

A call is known by its name and its arguments, so code that begins in the middle of a loop meets
only what it did before. The run's own state is left out: it is another one at every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, Final

from outlive.checkpoints.codec import digest
from outlive.checkpoints.schemas import State
from outlive.errors import ValueRefused

#: Where a step's outcome, and what its call is known by, stand in its checkpoint's metadata.
RESULT: Final = "result"
CALL: Final = "call"
#: How deep in arguments the run's state is looked for.
_DEPTH_MAX: Final = 8


class Done:
    """The steps that count, and those of them that were called since the run was entered."""

    def __init__(self) -> None:
        #: By step: what was said of it.
        self.said: dict[str, dict[str, Any]] = {}
        self._called: set[str] = set()
        #: By call: its steps that were not called yet, the earliest last.
        self._waiting: dict[str, list[str]] = {}
        #: By name: the first number that may be free, or of a step whose call nobody noted.
        self._numbers: dict[str, int] = {}

    def load(self, said: Mapping[str, dict[str, Any]]) -> None:
        """Let these count, and no others; those that were called stay so."""
        self.said, self._waiting, self._numbers = dict(said), {}, {}
        self._called &= self.said.keys()
        for step_id in reversed(self.said):
            call = self._call(step_id)
            if call is not None and step_id not in self._called:
                self._waiting.setdefault(call, []).append(step_id)

    def take(self, name: str, call: str) -> str | None:
        """The earliest step that may have been this call, and answers none yet; None: it is new."""
        found = self._unnoted(name)
        waiting = self._waiting.get(call, [])
        while found is None and waiting:
            step_id = waiting.pop()
            found = step_id if self._call(step_id) == call else None
        if found is not None:
            self._called.add(found)
        return found

    def _unnoted(self, name: str) -> str | None:
        """A step of which an earlier release, or the user, noted no more than the name."""
        number = self._numbers.get(name, 1)
        while (step_id := _numbered(name, number)) in self.said:
            if step_id not in self._called and self._call(step_id) is None:
                break
            number += 1
        self._numbers[name] = number
        return step_id if step_id in self.said else None

    def _call(self, step_id: str) -> str | None:
        call = self.said[step_id].get(CALL)
        return call if isinstance(call, str) else None

    def free(self, name: str) -> str:
        """The id of a new step of that name."""
        numbers = count(self._numbers.get(name, 1))
        return next(each for n in numbers if (each := _numbered(name, n)) not in self.said)

    def add(self, step_id: str, said: dict[str, Any]) -> None:
        """Let a step count that was just saved."""
        self.said[step_id] = said
        if self._call(step_id) is not None:
            self._called.add(step_id)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}#{number}"


def call_of(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], state: State) -> str:
    """What a call is known by. Of an argument that can't be saved, only its class is."""
    named = [part for key in sorted(kwargs) for part in (key, _told(kwargs[key], state))]
    return digest([name, [_told(each, state) for each in args], named])


def _told(value: Any, state: State) -> Any:
    try:
        return digest(_without(value, state, 0))
    except ValueRefused:
        return [type(value).__qualname__]


def _without(value: Any, state: State, depth: int) -> Any:
    """The value with nothing where the state is."""
    kind = type(value)
    if value is state:
        return None
    if depth < _DEPTH_MAX and kind in (list, tuple):
        return kind(_without(part, state, depth + 1) for part in value)
    if depth < _DEPTH_MAX and kind is dict:
        return {key: _without(part, state, depth + 1) for key, part in value.items()}
    return value
