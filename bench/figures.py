"""Results as figures: medians over the rounds, with the least and the most, in readable units."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

Answer = dict[str, Any]
#: What of a sample is looked at.
Look = Callable[[Answer], float]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A median, and how far the rounds lie apart."""

    middle: float
    least: float
    most: float
    rounds: int

    def told(self, form: Callable[[float], str]) -> str:
        """As a cell of a table."""
        if self.rounds == 1:
            return f"{form(self.middle)} (once)"
        if form(self.least) == form(self.most):
            return f"**{form(self.middle)}**"
        return f"**{form(self.middle)}** ({form(self.least)} to {form(self.most)})"


def field(name: str) -> Look:
    """A figure that the contestant told."""
    return lambda sample: float(sample[name])


def rate(sample: Answer) -> float:
    """Operations per second."""
    return float(sample["operations"] / sample["seconds"])


def cpu_per_operation(sample: Answer) -> float:
    """Processor seconds per operation, all threads."""
    return float(sample["cpu"] / sample["operations"])


def server_cpu_per_operation(sample: Answer) -> float:
    """Processor seconds of the server per operation, all of its processes."""
    return float(sample["server_cpu"] / sample["operations"])


def bytes_per_operation(sample: Answer) -> float:
    """What lies on disk per operation, what a file has once included."""
    return float(sample["bytes"] / sample["operations"])


class Results:
    """One run of the runner, to be asked."""

    def __init__(self, path: Path) -> None:
        self.told: Answer = json.loads(path.read_text())
        self._rows = {
            (row["work"], row["size"], row["contestant"]): row for row in self.told["rows"]
        }

    def samples(self, work: str, size: int, contestant: str) -> list[Answer]:
        """What went well."""
        row = self._rows.get((work, size, contestant))
        return [each for each in row["samples"] if "error" not in each] if row else []

    def problem(self, work: str, size: int, contestant: str) -> str:
        """Why there is no figure."""
        row = self._rows.get((work, size, contestant))
        found = [each["error"] for each in row["samples"] if "error" in each] if row else []
        return found[0] if found else ""

    def figure(self, work: str, size: int, contestant: str, look: Look) -> Figure | None:
        """The median of what was looked at."""
        try:
            values = [look(each) for each in self.samples(work, size, contestant)]
        except KeyError:
            return None
        if not values:
            return None
        middle, rounds = median(values), len(values)
        return Figure(middle=middle, least=min(values), most=max(values), rounds=rounds)

    def by_round(self, work: str, size: int, contestant: str, look: Look) -> dict[int, float]:
        """What was looked at, in each round that went well."""
        row = self._rows.get((work, size, contestant))
        found = {}
        for number, each in enumerate(row["samples"] if row else []):
            try:
                found[number] = look(each)
            except KeyError:
                continue
        return found

    def command(self, work: str, size: int, contestant: str) -> str:
        """What was run."""
        return str(self._rows[work, size, contestant]["command"])

    def sizes(self, work: str) -> list[int]:
        """At which sizes a work was done."""
        return sorted({size for each, size, _ in self._rows if each == work})

    def contestants(self, work: str, size: int) -> list[str]:
        """Who did it."""
        return [name for each, at, name in self._rows if (each, at) == (work, size)]

    def counts(self, work: str, contestant: str) -> Answer:
        """Flushes, statements and bytes per step, and from which sizes; or why not; or nothing."""
        for row in self.told["counts"]:
            if (row["work"], row["contestant"]) == (work, contestant):
                found: Answer = row
                return found
        return {}

    def counted(self, work: str, contestant: str, what: str) -> float | None:
        """One of them."""
        found = self.counts(work, contestant)
        return float(found[what]) if what in found else None

    def wide(self, times: float) -> tuple[int, int]:
        """In how many rows the slowest round took that many times the fastest, and of how many."""
        spans = [
            [each["seconds"] for each in row["samples"] if "seconds" in each]
            for row in self._rows.values()
        ]
        spans = [span for span in spans if len(span) > 1]
        return sum(max(span) > times * min(span) for span in spans), len(spans)

    def first(self, contestant: str, name: str) -> Any:
        """Whatever a contestant told of itself, wherever it did first."""
        for (_, _, each), row in self._rows.items():
            for sample in row["samples"]:
                if each == contestant and name in sample:
                    return sample[name]
        return None


def seconds(value: float) -> str:
    """A time."""
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    if value < 1:
        return f"{value * 1e3:.3g} ms" if value < 0.1 else f"{value * 1e3:.0f} ms"
    return f"{value:.3g} s"


def count(value: float) -> str:
    """A number of things."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def megabytes(value: float) -> str:
    """An amount of memory."""
    return f"{value / 1e6:.1f} MB"
