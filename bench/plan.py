"""Who runs against whom, on which work, at which sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["tiny", "quick", "full"]


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A program, the environment it runs in, and what it promises."""

    name: str
    title: str
    #: A folder below .bench/, or none for the project's own environment.
    environment: str = ""
    module: str
    kind: str = ""
    #: What was durable before the next step began.
    durable: str


CONTESTANTS = {
    each.name: each
    for each in (
        Contestant(
            name="floor",
            title="bare commit",
            module="floor",
            durable="argument and outcome of the step before; no engine, nothing to resume with",
        ),
        Contestant(
            name="step",
            title="Outlive, `step`",
            module="ours",
            kind="step",
            durable="not awaited (a plain step is harmless to repeat); flushed on the next tick, "
            "and awaited before an effect, a wait or the end",
        ),
        Contestant(
            name="effect",
            title="Outlive, `effect`",
            module="ours",
            kind="effect",
            durable="outcome of the step before, and intent, arguments and key of this one",
        ),
        Contestant(
            name="dbos",
            title="DBOS",
            environment="dbos",
            module="dbos",
            durable="outcome of the step before; no arguments, no intent",
        ),
        Contestant(
            name="langgraph",
            title="LangGraph, `sync`",
            environment="langgraph",
            module="langgraph",
            durable="the state after the step before, and which node is next",
        ),
        Contestant(
            name="waiting",
            title="Outlive",
            module="ours_waiting",
            durable="everything that the run waits for",
        ),
    )
}

PEERS = ("dbos", "langgraph")
OURS = ("step", "effect")
ALL = ("floor", *OURS, *PEERS)
ENGINES = (*OURS, *PEERS)
WAITING = ("waiting",)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One work at one size, and who takes part."""

    work: str
    size: int
    contestants: tuple[str, ...]
    #: The name of the work that records what this one goes on from, made once and copied.
    prepared: str = ""


def resumed(past: str, size: int, contestants: tuple[str, ...]) -> Case:
    """A case that goes on from a store whose process died."""
    return Case(
        work=f"resume-{past}", size=size, contestants=contestants, prepared=f"prepare-{past}"
    )


def cases(work: str, sizes: tuple[int, ...], contestants: tuple[str, ...]) -> list[Case]:
    """The same work at several sizes."""
    return [Case(work=work, size=size, contestants=contestants) for size in sizes]


TINY = [
    *cases("sequential", (5,), ("floor", *OURS)),
    *cases("many", (2,), ("floor", *OURS)),
    *cases("starts", (3,), ("floor", *OURS)),
    resumed("one", 20, OURS),
    resumed("carried", 20, ("step",)),
]

QUICK = [
    *cases("sequential", (50, 200), ALL),
    *cases("sequential", (1_000, 10_000), OURS),
    *cases("many", (10, 50, 200), ALL),
    *cases("starts", (100, 1_000), ALL),
    *(resumed("one", size, ENGINES) for size in (100, 1_000, 10_000)),
    *(resumed("branches", size, OURS) for size in (1_000, 10_000)),
    *(resumed("carried", size, OURS) for size in (1_000, 10_000)),
    *cases("model", (100,), ENGINES),
    *cases("model-in-step", (100,), OURS),
    resumed("sleepers", 10_000, WAITING),
    *cases("takeover", (5,), WAITING),
    *(resumed("interrupted", size, WAITING) for size in (1_000,)),
    *cases("signals", (10, 100), WAITING),
    *cases("answers", (50,), WAITING),
    *cases("answers-evicted", (50,), WAITING),
]

FULL = [
    *cases("sequential", (50, 200, 1_000), ALL),
    *cases("sequential", (10_000, 100_000), OURS),
    *cases("many", (10, 50, 200, 500), ALL),
    *cases("starts", (100, 1_000, 3_000), ALL),
    *(resumed("one", size, ENGINES) for size in (100, 1_000, 10_000, 100_000)),
    *(resumed("branches", size, OURS) for size in (1_000, 10_000, 100_000)),
    *(resumed("carried", size, OURS) for size in (1_000, 10_000, 100_000)),
    *cases("model", (10, 100, 300), ENGINES),
    *cases("model-in-step", (10, 100, 300), OURS),
    *(resumed("sleepers", size, WAITING) for size in (1_000, 10_000, 100_000)),
    *cases("takeover", (20,), WAITING),
    *(resumed("interrupted", size, WAITING) for size in (100, 1_000, 10_000)),
    *cases("signals", (1, 10, 100, 1_000), WAITING),
    *cases("answers", (100,), WAITING),
    *cases("answers-evicted", (100,), WAITING),
]

PLANS: dict[Form, list[Case]] = {"tiny": TINY, "quick": QUICK, "full": FULL}
#: How often everything is run; what is told is the median, with the least and the most.
ROUNDS: dict[Form, int] = {"tiny": 1, "quick": 3, "full": 5}
#: A contestant that takes longer is told as not done.
LIMIT_SECONDS: dict[Form, int] = {"tiny": 60, "quick": 600, "full": 3600}

#: Sizes of the work whose difference is counted: what a process does once cancels out.
COUNTED = {"sequential": (500, 1_500), "many": (25, 75)}
