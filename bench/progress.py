"""How far a measurement is, how long it will take, and whether there is time for one more turn.

What a turn is expected to take is what it took the last time that its results were written down;
how much slower or faster this machine is today is learned from the turns that are done.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

#: (chapter or work, size, contestant), or whatever else tells a piece of work from others.
Key = tuple[object, ...]
#: Where nobody measured it before.
USUAL_SECONDS = 3.0
#: Seconds of expected work before what was expected is corrected by what was measured.
LEARNING_SECONDS = 20.0


def known_seconds(folder: Path) -> dict[Key, float]:
    """What each turn took when it was last written down in this folder."""
    found: dict[Key, float] = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime):
        told = json.loads(path.read_text())
        for row in told.get("rows", ()) if isinstance(told, dict) else ():
            took = [each["turn_seconds"] for each in row["samples"] if "turn_seconds" in each]
            if took:
                found[row["work"], row["size"], row["contestant"]] = sum(took) / len(took)
    return found


class Progress:
    """What is still to be done, and by when."""

    def __init__(
        self,
        minutes_max: float | None = None,
        known: Mapping[Key, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``minutes_max``: nothing is begun that would take longer than this in all."""
        self._clock, self._known = clock, known or {}
        self._began = clock()
        self._ends = None if minutes_max is None else self._began + minutes_max * 60
        self._open: dict[Key, float] = {}
        self._chapter_ends: float | None = None
        self._expected = self._took = 0.0

    def add(self, keys: Iterable[Key], seconds: float = USUAL_SECONDS, more: float = 0.0) -> None:
        """Expect these pieces of work, each as long as is known, or ``seconds``, and ``more``."""
        for key in keys:
            self._open[key] = self._known.get(key[:3], seconds) + more

    def begin_chapter(self, minutes_max: float | None) -> None:
        """A part with a limit of its own."""
        ends = None if minutes_max is None else self._clock() + minutes_max * 60
        both = [each for each in (ends, self._ends) if each is not None]
        self._chapter_ends = min(both, default=None)

    def done(self, key: Key, seconds: float) -> None:
        """It took so long."""
        self._expected += self._open.pop(key, 0.0)
        self._took += seconds

    def drop(self, key: Key) -> None:
        """It is not done after all."""
        self._open.pop(key, None)

    @property
    def _pace(self) -> float:
        return (self._took + LEARNING_SECONDS) / (self._expected + LEARNING_SECONDS)

    def seconds_left(self) -> float:
        """Until everything is done."""
        expected = sum(self._open.values()) * self._pace
        return expected if self._ends is None else min(expected, self._ends - self._clock())

    def room_seconds(self) -> float | None:
        """Until the limit of the chapter; None: it has none."""
        return None if self._chapter_ends is None else self._chapter_ends - self._clock()

    def has_room_for(self, key: Key) -> bool:
        """Whether it would be done before the limit."""
        room = self.room_seconds()
        return room is None or self._open.get(key, USUAL_SECONDS) * self._pace <= room

    def line(self) -> str:
        """How far it is, for who waits."""
        passed, left = self._clock() - self._began, max(0.0, self.seconds_left())
        return f"{passed / (passed + left or 1):4.0%}, {told(left)} left"


def told(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
