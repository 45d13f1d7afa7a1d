"""What was to be reached, and whether the results reach it.

A ratio is taken within each round, where contestants ran right after one another. The median of
the rounds decides; where rounds disagree, it is said how many of them reach the goal. A comparison
that even the bare commit would lose says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from bench.figures import Look, Results, count, cpu_per_operation, field, megabytes, rate, seconds

#: Round -> value.
Rounds = dict[int, float]
Measure = Callable[[Results], Rounds]


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A bound on something measured."""

    text: str
    measure: Measure
    limit: float
    at_least: bool = False
    #: Nothing can be below this; a round that says so measured something else.
    possible_from: float = 0.0
    #: What the bare commit has in ours' place.
    bare: Measure | None = None
    form: Callable[[float], str] = count

    def verdict(self, results: Results) -> tuple[str, str, str]:
        """(the bound, what was measured, whether it holds)."""
        bound = f"{'≥' if self.at_least else '≤'} {self.form(self.limit)}"
        values = list(self.measure(results).values())
        if not values:
            return bound, "–", "not measured in this form"
        told = self.form(median(values))
        if len(values) > 1:
            told += f" ({self.form(min(values))} to {self.form(max(values))})"
        return bound, told, self._judge(values) + self._excuse(results, median(values))

    def _holds(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def _judge(self, values: list[float]) -> str:
        if median(values) < self.possible_from:
            least = self.form(self.possible_from)
            return f"**undecided**: below {least} is impossible, the machine was too busy"
        verdict = "reached" if self._holds(median(values)) else "**not reached**"
        holding = sum(map(self._holds, values))
        is_split = 0 < holding < len(values)
        return f"{verdict} ({holding} of {len(values)} rounds)" if is_split else verdict

    def _excuse(self, results: Results, value: float) -> str:
        """What nobody could reach on this disk is not ours to reach."""
        values = [] if self.bare is None else list(self.bare(results).values())
        if self._holds(value) or not values or self._holds(median(values)):
            return ""
        return f"; nor by the bare commit itself: {self.form(median(values))}"


def times(value: float) -> str:
    """A ratio."""
    return f"{value:.3g}x" if value < 100 else f"{value:.0f}x"


def value_of(work: str, size: int, contestant: str, look: Look) -> Measure:
    """A figure as it is."""
    return lambda results: results.by_round(work, size, contestant, look)


def ratio_of(over: Measure, under: Measure) -> Measure:
    """How many times as much the first is, round by round."""

    def measure(results: Results) -> Rounds:
        above, below = over(results), under(results)
        return {n: above[n] / below[n] for n in above.keys() & below.keys() if below[n]}

    return measure


def p50(work: str, size: int, contestant: str) -> Measure:
    """The median per operation."""
    return value_of(work, size, contestant, field("p50"))


def per_second(work: str, size: int, contestant: str) -> Measure:
    """The rate of operations."""
    return value_of(work, size, contestant, rate)


def growth(contestant: str) -> Measure:
    """A fresh step after the longest past that was measured, against one after the shortest."""

    def measure(results: Results) -> Rounds:
        sizes = [
            size
            for size in results.sizes("sequential")
            if size >= 200 and results.samples("sequential", size, contestant)
        ]
        if len(sizes) < 2:
            return {}
        last = field("p50_last")
        late = value_of("sequential", sizes[-1], contestant, last)
        early = value_of("sequential", sizes[0], contestant, last)
        return ratio_of(late, early)(results)

    return measure


def largest(work: str, contestant: str, look: Look) -> Measure:
    """At the largest size that was measured."""

    def measure(results: Results) -> Rounds:
        sizes = results.sizes(work)
        return value_of(work, sizes[-1], contestant, look)(results) if sizes else {}

    return measure


def counted(work: str, contestant: str, what: str) -> Measure:
    """Something that was counted, once."""

    def measure(results: Results) -> Rounds:
        found = results.counted(work, contestant, what)
        return {} if found is None else {0: found}

    return measure


GOALS = [
    Goal(
        text="sequential effect, p50, against the bare commit",
        measure=ratio_of(p50("sequential", 200, "effect"), p50("sequential", 200, "floor")),
        limit=2.5,
        possible_from=1.0,
        form=times,
    ),
    Goal(
        text="sequential effect, p50, DBOS against it",
        measure=ratio_of(p50("sequential", 200, "dbos"), p50("sequential", 200, "effect")),
        bare=ratio_of(p50("sequential", 200, "dbos"), p50("sequential", 200, "floor")),
        limit=8,
        at_least=True,
        form=times,
    ),
    Goal(
        text="sequential plain step, p50, DBOS against it",
        measure=ratio_of(p50("sequential", 200, "dbos"), p50("sequential", 200, "step")),
        limit=40,
        at_least=True,
        form=times,
    ),
    Goal(
        text="sequential plain step, p50",
        measure=p50("sequential", 200, "step"),
        limit=80e-6,
        form=seconds,
    ),
    Goal(
        text="200 runs x 20 effects, steps per second against DBOS",
        measure=ratio_of(per_second("many", 200, "effect"), per_second("many", 200, "dbos")),
        limit=80,
        at_least=True,
        form=times,
    ),
    Goal(
        text="200 runs x 20 effects, steps per second against LangGraph",
        measure=ratio_of(per_second("many", 200, "effect"), per_second("many", 200, "langgraph")),
        limit=40,
        at_least=True,
        form=times,
    ),
    Goal(
        text="200 runs x 20 effects, processor time per step",
        measure=value_of("many", 200, "effect", cpu_per_operation),
        limit=60e-6,
        form=seconds,
    ),
    Goal(
        text="200 runs x 20 effects, processor time against L1 (Python 3.12 and later)",
        measure=ratio_of(
            value_of("many", 200, "effect", cpu_per_operation),
            value_of("many", 200, "floor-l1", cpu_per_operation),
        ),
        limit=3.5,
        form=times,
    ),
    Goal(
        text="200 runs x 20 effects, processor time against L2 (Python 3.11)",
        measure=ratio_of(
            value_of("many", 200, "effect", cpu_per_operation),
            value_of("many", 200, "floor-l2", cpu_per_operation),
        ),
        limit=2.5,
        form=times,
    ),
    Goal(
        text="1,000 one-step runs, runs per second against DBOS",
        measure=ratio_of(per_second("starts", 1000, "step"), per_second("starts", 1000, "dbos")),
        limit=60,
        at_least=True,
        form=times,
    ),
    Goal(
        text="resume of 10,000 steps on one branch, from opening the store",
        measure=p50("resume-one", 10_000, "step"),
        limit=0.1,
        form=seconds,
    ),
    Goal(
        text="resume of 10,000 effects on one branch, from opening the store",
        measure=p50("resume-one", 10_000, "effect"),
        limit=0.1,
        form=seconds,
    ),
    Goal(
        text="resume of 10,000 steps on 100 branches, from opening the store",
        measure=p50("resume-branches", 10_000, "step"),
        limit=0.2,
        form=seconds,
    ),
    Goal(
        text="resume of 10,000 steps on one branch, DBOS against it",
        measure=ratio_of(p50("resume-one", 10_000, "dbos"), p50("resume-one", 10_000, "step")),
        limit=80,
        at_least=True,
        form=times,
    ),
    Goal(
        text="resume after `carry`, longest past, from opening the store",
        measure=largest("resume-carried", "step", field("p50")),
        limit=5e-3,
        form=seconds,
    ),
    Goal(
        text="resume after `carry`, longest past, in an app that is open",
        measure=largest("resume-carried", "step", field("p50_asked")),
        limit=5e-3,
        form=seconds,
    ),
    Goal(
        text="a fresh plain step after the longest past, against one after 200",
        measure=growth("step"),
        limit=1.25,
        form=times,
    ),
    Goal(
        text="bytes on disk per effect: arguments, intent, outcome, checksum, chain",
        measure=counted("sequential", "effect", "bytes"),
        limit=450,
    ),
    Goal(
        text="bytes on disk per plain step",
        measure=counted("sequential", "step", "bytes"),
        limit=450,
    ),
    Goal(
        text="100,000 sleeping runs, resident memory of a worker",
        measure=value_of("resume-sleepers", 100_000, "waiting", field("resident")),
        limit=60e6,
        form=megabytes,
    ),
    Goal(
        text="1,000 due at one instant among 100,000 sleepers, until all have ended",
        measure=value_of("resume-sleepers", 100_000, "waiting", field("due_seconds")),
        limit=5,
        form=seconds,
    ),
    Goal(
        text="1,000 due at one instant among 10,000 sleepers, until all have ended",
        measure=value_of("resume-sleepers", 10_000, "waiting", field("due_seconds")),
        limit=5,
        form=seconds,
    ),
    Goal(
        text="added to a model call, 100 agents, p50",
        measure=p50("model", 100, "step"),
        limit=1e-3,
        form=seconds,
    ),
    Goal(
        text="added to a model call, 100 agents, p99",
        measure=value_of("model", 100, "step", field("p99")),
        limit=5e-3,
        form=seconds,
    ),
    Goal(
        text="the same with all agents in step, p50",
        measure=p50("model-in-step", 100, "step"),
        limit=1e-3,
        form=seconds,
    ),
    Goal(
        text="the same with all agents in step, p99",
        measure=value_of("model-in-step", 100, "step", field("p99")),
        limit=5e-3,
        form=seconds,
    ),
    Goal(
        text="takeover after kill -9 on the same machine, p50",
        measure=largest("takeover", "waiting", field("p50")),
        limit=1,
        form=seconds,
    ),
    Goal(
        text="a checkpoint of a loop, p50, against one UPDATE of the snapshot",
        measure=ratio_of(p50("loop", 2_000, "loop"), p50("loop", 2_000, "recipe")),
        limit=2,
        form=times,
    ),
    Goal(
        text="a checkpoint of 50 steps, p50, against a bare commit of its new bytes",
        measure=ratio_of(
            p50("checkpoint", 50, "checkpoint"), p50("checkpoint", 50, "checkpoint-floor")
        ),
        limit=2,
        form=times,
    ),
]
