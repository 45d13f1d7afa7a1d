"""What was to be reached on PostgreSQL."""

from __future__ import annotations

from bench.figures import Results, field
from bench.goals import Goal, Measure, Rounds, counted, p50, per_second, ratio_of, times, value_of


def against(
    peer: str, times_at_least: float, text: str, measure: Measure, bare: Measure | None = None
) -> Goal:
    """A peer is to be surpassed so many times."""
    return Goal(
        text=f"{text} {peer}",
        measure=measure,
        bare=bare,
        limit=times_at_least,
        at_least=True,
        form=times,
    )


def in_sequence(title: str, peer: str, times_at_least: float) -> Goal:
    """So many times as quick as a peer with one effect after the other."""
    ours, bare = (slower(peer, "sequential", 200, each) for each in ("pg-effect", "pg-floor"))
    return against(title, times_at_least, SEQUENTIAL, ours, bare)


def slower(peer: str, work: str, size: int, ours: str) -> Measure:
    """How many times as long a peer takes as ours, p50."""
    return ratio_of(p50(work, size, peer), p50(work, size, ours))


def faster(peer: str, work: str, size: int, ours: str) -> Measure:
    """How many times as much ours does in a second as a peer."""
    return ratio_of(per_second(work, size, ours), per_second(work, size, peer))


def trips_per_batch(work: str) -> Measure:
    """Round trips made for batches, by the batches that were committed."""

    def measure(results: Results) -> Rounds:
        trips = results.counted(work, "pg-effect", "commit_trips")
        batches = results.counted(work, "pg-effect", "commits")
        return {0: trips / batches} if trips and batches else {}

    return measure


def exactly(value: float) -> str:
    """A number that is nearly whole."""
    return f"{value:.3f}"


SEQUENTIAL = "sequential effect, p50, against"
MANY = "200 runs x 20 effects, steps per second against"
STARTS = "1,000 one-step runs, runs per second against"
RESUME = "resume of 10,000 steps on one branch, from connecting, against"

ASKED = field("p50_asked")

GOALS = [
    Goal(
        text=f"{SEQUENTIAL} the bare commit",
        measure=ratio_of(p50("sequential", 200, "pg-effect"), p50("sequential", 200, "pg-floor")),
        limit=2,
        possible_from=1.0,
        form=times,
    ),
    in_sequence("DBOS", "pg-dbos", 8),
    in_sequence("Absurd", "pg-absurd", 3),
    in_sequence("Restate", "restate", 4),
    against("DBOS", 80, MANY, faster("pg-dbos", "many", 200, "pg-effect")),
    against("Absurd", 25, MANY, faster("pg-absurd", "many", 200, "pg-effect")),
    against("Restate", 6, MANY, faster("restate", "many", 200, "pg-effect")),
    against("DBOS", 60, STARTS, faster("pg-dbos", "starts", 1000, "pg-step")),
    against("Restate", 9, STARTS, faster("restate", "starts", 1000, "pg-step")),
    against("DBOS", 100, RESUME, slower("pg-dbos", "resume-one", 10_000, "pg-step")),
    Goal(
        text="the same in an app that is open, against Absurd from its claim on",
        measure=ratio_of(
            value_of("resume-one", 10_000, "pg-step", ASKED),
            value_of("resume-one", 10_000, "pg-absurd", ASKED),
        ),
        limit=4,
        form=times,
    ),
    Goal(
        text="round trips per effect, one run, counted on the wire with heartbeats",
        measure=counted("sequential", "pg-effect", "round_trips"),
        limit=1.05,
        form=exactly,
    ),
    Goal(
        text="round trips per batch, one run, by the pool's own count",
        measure=trips_per_batch("sequential"),
        limit=1,
        form=exactly,
    ),
    Goal(
        text="round trips per batch, many runs at once, by the pool's own count",
        measure=trips_per_batch("many"),
        limit=1,
        form=exactly,
    ),
]
