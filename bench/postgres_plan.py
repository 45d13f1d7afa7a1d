"""The chapter on PostgreSQL: who runs on one server, and Restate, which brings its own."""

from __future__ import annotations

from bench.cases import Contestant, cases, once, resumed

#: Outlive's lease, by default, and the one that Absurd's workers are told to take.
OUR_LEASE_SECONDS = 15
ABSURD_LEASE_SECONDS = 10

CONTESTANTS = (
    Contestant(
        name="pg-floor",
        colour="#888888",
        title="bare commit",
        store="postgres",
        module="floor_postgres",
        durable="argument and outcome of the step before; no engine, nothing to resume with",
    ),
    Contestant(
        name="pg-step",
        colour="#0a7d4f",
        title="Outlive, `step`",
        store="postgres",
        lease_seconds=OUR_LEASE_SECONDS,
        module="ours",
        kind="step",
        durable="not awaited (a plain step is harmless to repeat); flushed on the next tick, "
        "and awaited before an effect, a wait or the end",
    ),
    Contestant(
        name="pg-effect",
        colour="#0b57a4",
        title="Outlive, `effect`",
        store="postgres",
        lease_seconds=OUR_LEASE_SECONDS,
        module="ours",
        kind="effect",
        durable="outcome of the step before, and intent, arguments and key of this one",
    ),
    Contestant(
        name="pg-dbos",
        colour="#c2410c",
        title="DBOS",
        environment="dbos",
        store="postgres",
        module="dbos",
        durable="outcome of the step before; no arguments, no intent",
    ),
    Contestant(
        name="pg-absurd",
        colour="#0e7490",
        title="Absurd",
        environment="absurd",
        store="postgres",
        lease_seconds=ABSURD_LEASE_SECONDS,
        module="absurd",
        durable="outcome of the step before; no arguments, no intent",
    ),
    Contestant(
        name="pg-langgraph",
        colour="#7e3fb2",
        title="LangGraph, graph",
        environment="langgraph",
        store="postgres",
        module="langgraph",
        kind="graph",
        durable="the state after the step before, and which node is next",
    ),
    Contestant(
        name="pg-langgraph-task",
        colour="#b08900",
        title="LangGraph, `task`",
        environment="langgraph",
        store="postgres",
        module="langgraph",
        kind="task",
        durable="nothing for sure: the outcome of the step before is on its way to the saver, "
        "and is not awaited; no arguments, no intent",
    ),
    Contestant(
        name="restate",
        colour="#be185d",
        title="Restate",
        environment="restate",
        store="own",
        module="restate",
        durable="outcome of the step before, in the server's own log; no arguments, no intent",
    ),
)

OURS = ("pg-step", "pg-effect")
BARE = ("pg-floor", *OURS)
ENGINES = (*OURS, "pg-dbos", "pg-absurd", "pg-langgraph", "restate")
BRIEF = ("pg-floor", *ENGINES)
ALL = (*BRIEF, "pg-langgraph-task")
#: What takes them no longer than us.
SWIFT = ("pg-absurd", "pg-langgraph", "restate")

TINY = [
    *cases("sequential", (5,), BARE),
    *cases("many", (2,), BARE),
    *cases("starts", (3,), BARE),
]

#: What ends within minutes: the sizes that goals look at, and peers once where they are slow.
QUICK = [
    *cases("sequential", (200,), ALL),
    *cases("many", (200,), BARE),
    *once(cases("many", (200,), ("pg-dbos", *SWIFT))),
    *cases("starts", (1_000,), BARE),
    *once(cases("starts", (1_000,), ("pg-dbos", *SWIFT))),
    *resumed("one", (1_000, 10_000), OURS),
    *once(resumed("one", (1_000,), ("pg-dbos", *SWIFT))),
]

#: Ours, and the floor, three times at every size; peers so at the sizes that goals look at.
REPEATED = [
    *cases("sequential", (200,), ALL),
    *cases("sequential", (1_000,), BARE),
    *once(cases("sequential", (1_000,), ("pg-dbos", *SWIFT))),
    *cases("many", (30,), BARE),
    *once(cases("many", (30,), ("pg-dbos", *SWIFT))),
    *cases("many", (200,), BRIEF),
    *cases("starts", (100,), BARE),
    *once(cases("starts", (100,), ("pg-dbos", *SWIFT))),
    *cases("starts", (1_000,), BRIEF),
    *resumed("one", (1_000,), OURS),
    *once(resumed("one", (1_000,), ("pg-dbos", *SWIFT))),
    *resumed("one", (10_000,), ENGINES),
]

#: The same, and once what is smaller or larger.
FULL = [
    *REPEATED,
    *once(
        [
            *cases("sequential", (50,), BRIEF),
            *cases("sequential", (10_000,), (*BARE, "pg-absurd", "restate")),
            *cases("many", (5,), BRIEF),
            *cases("many", (500,), BRIEF),
            *cases("starts", (10, 3_000), BRIEF),
            *resumed("one", (100,), ENGINES),
            *resumed("one", (100_000,), OURS),
        ]
    ),
]
