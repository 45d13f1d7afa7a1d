"""Who runs against whom, on which work, at which sizes."""

from __future__ import annotations

from typing import Literal

from bench import postgres_plan
from bench.cases import Case, Chapter, Contestant, cases, once, resumed

Form = Literal["tiny", "quick", "full"]


CONTESTANTS = {
    each.name: each
    for each in (
        Contestant(
            name="floor",
            colour="#888888",
            title="bare commit",
            module="floor",
            durable="argument and outcome of the step before; no engine, nothing to resume with",
        ),
        Contestant(
            name="floor-l1",
            colour="#5b6470",
            title="L1: hand-written journal",
            module="floor_journal",
            kind="await",
            durable="outcome of the step before, and intent and arguments of this one, with "
            "checksum and chain; no replay, no retries, no lease",
        ),
        Contestant(
            name="floor-l2",
            colour="#a3adb8",
            title="L2: L1 and a Task per body",
            module="floor_journal",
            kind="task",
            durable="as L1",
        ),
        Contestant(
            name="step",
            colour="#0a7d4f",
            title="Outlive, `step`",
            module="ours",
            kind="step",
            durable="not awaited (a plain step is harmless to repeat); flushed on the next tick, "
            "and awaited before an effect, a wait or the end",
        ),
        Contestant(
            name="effect",
            colour="#0b57a4",
            title="Outlive, `effect`",
            module="ours",
            kind="effect",
            durable="outcome of the step before, and intent, arguments and key of this one",
        ),
        Contestant(
            name="dbos",
            colour="#c2410c",
            title="DBOS",
            environment="dbos",
            module="dbos",
            durable="outcome of the step before; no arguments, no intent",
        ),
        Contestant(
            name="langgraph",
            colour="#7e3fb2",
            title="LangGraph, graph",
            environment="langgraph",
            module="langgraph",
            kind="graph",
            durable="the state after the step before, and which node is next",
        ),
        Contestant(
            name="langgraph-task",
            colour="#b08900",
            title="LangGraph, `task`",
            environment="langgraph",
            module="langgraph",
            kind="task",
            durable="nothing for sure: the outcome of the step before is on its way to the saver, "
            "and is not awaited; no arguments, no intent",
        ),
        Contestant(
            name="waiting",
            colour="#0a7d4f",
            title="Outlive",
            module="ours_waiting",
            durable="everything that the run waits for, and whatever it did before",
        ),
        Contestant(
            name="dbos-waiting",
            colour="#c2410c",
            title="DBOS",
            environment="dbos",
            module="dbos_waiting",
            durable="that it waits, and until when; the run itself stays in memory",
        ),
        Contestant(
            name="recipe",
            colour="#888888",
            title="one UPDATE of the snapshot",
            module="loops",
            kind="recipe",
            durable="the whole snapshot after the transition before; no journal, no lease",
        ),
        Contestant(
            name="loop",
            colour="#0a7d4f",
            title="Outlive, `Loop`",
            module="loops",
            kind="ours",
            durable="the snapshot after the transition before, and whatever its handler recorded",
        ),
        Contestant(
            name="checkpoint-floor",
            colour="#888888",
            title="bare commit",
            module="checkpoints",
            kind="bare",
            durable="what is new in the state; nothing to resume with",
        ),
        Contestant(
            name="checkpoint",
            colour="#0b57a4",
            title="Outlive, `checkpoint`",
            module="checkpoints",
            kind="ours",
            durable="the state, and that it was saved; every earlier one stays",
        ),
        Contestant(
            name="checkpoint-recipe",
            colour="#c2410c",
            title="Durable Run's recipe",
            module="checkpoints",
            kind="recipe",
            durable="the state, whole, as JSON",
        ),
        *postgres_plan.CONTESTANTS,
    )
}

PEER_ENVIRONMENTS = ("dbos", "langgraph", "absurd", "restate")
#: Whose server may not be had for every machine: the rest is measured without.
OPTIONAL_ENVIRONMENTS = ("restate",)
PEERS = ("dbos", "langgraph", "langgraph-task")
OURS = ("step", "effect")
#: Programs written by hand for this one work.
FLOORS = ("floor", "floor-l1", "floor-l2")
OWN = (*FLOORS, *OURS)
ALL = (*OWN, *PEERS)
#: Without LangGraph's second form, which is told where it differs.
GRAPH_PEERS = ("dbos", "langgraph")
BRIEF = (*OWN, *GRAPH_PEERS)
WAITING = ("waiting",)
WAITERS = ("waiting", "dbos-waiting")
LOOPS = ("recipe", "loop")
CHECKPOINTS = ("checkpoint-floor", "checkpoint", "checkpoint-recipe")


TINY = [
    *cases("sequential", (5,), OWN),
    *cases("many", (2,), OWN),
    *cases("starts", (3,), OWN),
    *resumed("one", (20,), OURS),
    *resumed("carried", (20,), ("step",)),
    *resumed("interrupted", (3,), WAITING),
    *cases("signals", (2,), WAITING),
    *cases("answers", (2,), WAITING),
    *cases("loop", (5,), LOOPS),
    *cases("checkpoint", (5,), CHECKPOINTS),
]

#: What ends within minutes: the sizes that goals look at, and peers once where they are slow.
QUICK = [
    *cases("sequential", (200,), ALL),
    *once(cases("sequential", (10_000,), OWN)),
    *cases("many", (30,), OWN),
    *cases("many", (200,), OWN),
    *once(cases("many", (200,), GRAPH_PEERS)),
    *cases("starts", (1_000,), OWN),
    *once(cases("starts", (1_000,), GRAPH_PEERS)),
    *resumed("one", (1_000, 10_000), OURS),
    *once(resumed("one", (1_000,), PEERS)),
    *resumed("branches", (10_000,), ("step",)),
    *resumed("carried", (10_000,), ("step",)),
    *cases("model", (100,), OURS),
    *once(cases("model", (100,), GRAPH_PEERS)),
    *cases("model-in-step", (100,), OURS),
    *once(resumed("sleepers", (10_000,), WAITING)),
    *once(cases("takeover", (5,), WAITING)),
    *resumed("interrupted", (1_000,), WAITING),
    *cases("signals", (100,), WAITING),
    *cases("answers", (50,), WAITING),
    *once(cases("answers-evicted", (50,), (*WAITING, "langgraph"))),
    *cases("loop", (2_000,), LOOPS),
    *cases("checkpoint", (50,), CHECKPOINTS),
    *once(cases("checkpoint", (400,), CHECKPOINTS)),
]

#: Ours, and the floor, three times at every size; peers so at the sizes that goals look at.
REPEATED = [
    *cases("sequential", (50,), OWN),
    *once(cases("sequential", (50,), PEERS)),
    *cases("sequential", (200,), ALL),
    *cases("sequential", (1_000,), OWN),
    *once(cases("sequential", (1_000,), PEERS)),
    *cases("sequential", (10_000,), OWN),
    *cases("many", (5, 30), OWN),
    *once(cases("many", (5, 30), GRAPH_PEERS)),
    *cases("many", (200,), BRIEF),
    *cases("starts", (10, 100), OWN),
    *once(cases("starts", (10, 100), GRAPH_PEERS)),
    *cases("starts", (1_000,), BRIEF),
    *resumed("one", (100, 1_000), OURS),
    *once(resumed("one", (100, 1_000), PEERS)),
    *resumed("one", (10_000,), (*OURS, *GRAPH_PEERS)),
    *resumed("one", (100_000,), ("step",)),
    *resumed("branches", (1_000, 10_000), OURS),
    *resumed("branches", (100_000,), ("step",)),
    *resumed("carried", (1_000, 10_000), OURS),
    *resumed("carried", (100_000,), ("step",)),
    *once(cases("model", (10, 30), (*OURS, *GRAPH_PEERS))),
    *cases("model", (100,), (*OURS, *GRAPH_PEERS)),
    *once(cases("model-in-step", (10, 30), OURS)),
    *cases("model-in-step", (100,), OURS),
    *once(resumed("sleepers", (100,), ("dbos-waiting",))),
    *once(resumed("sleepers", (1_000,), WAITERS)),
    *once(resumed("sleepers", (10_000,), WAITING)),
    *resumed("sleepers", (100_000,), WAITING),
    *cases("takeover", (5,), WAITING),
    *once(resumed("interrupted", (100, 1_000), WAITERS)),
    *resumed("interrupted", (10_000,), WAITING),
    *once(cases("signals", (1, 10), WAITERS)),
    *cases("signals", (100,), WAITING),
    *once(cases("signals", (300,), WAITING)),
    *once(cases("answers", (5,), WAITERS)),
    *cases("answers", (50,), WAITING),
    *cases("answers-evicted", (50,), (*WAITING, "langgraph")),
    *cases("loop", (200, 2_000), LOOPS),
    *cases("checkpoint", (50, 400), CHECKPOINTS),
]

#: The same, and once what is larger, for ours and for peers.
FULL = [
    *REPEATED,
    *once(
        [
            *cases("sequential", (10_000,), GRAPH_PEERS),
            *cases("sequential", (100_000,), ("floor", *OURS)),
            *cases("many", (200,), ("langgraph-task",)),
            *cases("many", (500,), BRIEF),
            *cases("starts", (1_000,), ("langgraph-task",)),
            *cases("starts", (3_000,), BRIEF),
            *resumed("one", (100_000,), ("effect",)),
            *resumed("branches", (100_000,), ("effect",)),
            *resumed("carried", (100_000,), ("effect",)),
            *cases("model", (300,), (*OURS, *GRAPH_PEERS)),
            *cases("model-in-step", (30, 100), GRAPH_PEERS),
            *cases("model-in-step", (300,), OURS),
            *cases("takeover", (20,), WAITING),
            *cases("signals", (100,), ("dbos-waiting",)),
            *cases("signals", (1_000,), WAITING),
            *cases("answers", (20,), WAITERS),
            *cases("answers-evicted", (200,), WAITING),
            *cases("loop", (20_000,), LOOPS),
            *cases("checkpoint", (1_000,), CHECKPOINTS),
        ]
    ),
]

PLANS: dict[Form, list[Case]] = {
    "tiny": [*TINY, *postgres_plan.TINY],
    "quick": [*QUICK, *postgres_plan.QUICK],
    "full": [*FULL, *postgres_plan.FULL],
}
CHAPTERS: tuple[Chapter, ...] = ("sqlite", "postgres")
#: How often everything is run; what is told is the median, with the least and the most.
ROUNDS: dict[Form, int] = {"tiny": 1, "quick": 3, "full": 3}
#: Minutes of each chapter. The quick form begins nothing that would end later; the full form does
#: not repeat what is slow.
BUDGET_MINUTES: dict[tuple[Form, Chapter], float] = {
    ("tiny", "sqlite"): 1,
    ("tiny", "postgres"): 1,
    ("quick", "sqlite"): 7.2,
    ("quick", "postgres"): 5.3,
    ("full", "sqlite"): 26,
    ("full", "postgres"): 16,
}
#: Of everything that the quick form does.
QUICK_MINUTES_MAX = 14.5
SLOW_SECONDS = 8
#: A contestant that takes longer is told as not done.
LIMIT_SECONDS: dict[Form, int] = {"tiny": 60, "quick": 120, "full": 900}

#: Sizes of the work whose difference is counted: what a process does once cancels out.
COUNTED = {"sequential": (500, 1_500), "many": (25, 75)}
#: The same for peers, who take longer.
COUNTED_OF_PEERS = {"sequential": (100, 300), "many": (5, 15)}
#: They are not counted: what they do is not a number of steps, or nobody can look into it.
UNCOUNTED = ("waiting", "dbos-waiting", "restate", *CHECKPOINTS, *LOOPS)


def chapter_of(case: Case) -> Chapter:
    """Where it is told; contestants of two chapters never meet in one case."""
    return CONTESTANTS[case.contestants[0]].chapter
