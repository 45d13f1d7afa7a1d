"""What the page tells of each work on PostgreSQL."""

from __future__ import annotations

from bench.figures import count, cpu_per_operation, field, seconds, server_cpu_per_operation
from bench.sections import BYTES, CPU, P50, P99, RATE, Column, Section

SERVER: Column = ("processor time of the server", server_cpu_per_operation, seconds)

SECTIONS = [
    Section(
        work="sequential",
        title="One run, one step after the other, on PostgreSQL",
        words="The same steps as on SQLite. The bare commit is an INSERT of one row with argument "
        "and outcome, prepared, its own transaction, one round trip.",
        sizes="steps",
        columns=(P50, P99, RATE, CPU, SERVER, BYTES),
        plot=("seconds per step, p50", field("p50"), seconds),
    ),
    Section(
        work="many",
        title="Many runs at once in one process, on PostgreSQL",
        words="20 such steps in each run, all runs started at once, up to the last outcome. The "
        "bare commit does one step after the other.",
        sizes="runs",
        columns=(RATE, CPU, SERVER, P50, P99, BYTES),
        plot=("processor time per step", cpu_per_operation, seconds),
    ),
    Section(
        work="starts",
        title="Runs of one step, on PostgreSQL",
        words="Each start is acknowledged when it is durable; up to 100 are under way at once. "
        "Absurd has all of them spawned before its workers begin, which suits it best. The bare "
        "commit makes two commits for each, one after the other.",
        sizes="runs",
        columns=(RATE, CPU, SERVER, BYTES),
        plot=("processor time per one-step run", cpu_per_operation, seconds),
    ),
    Section(
        work="resume-one",
        title="Resume, on PostgreSQL",
        words="A process dies with this many recorded steps. Another one connects: the time up to "
        "the body of the first new step, imports not counted, the data in the server's memory. "
        "With Outlive and Absurd the lease of the dead has run out before; Absurd looks for work "
        "every quarter of a second, so the second column, from the call that claimed the task, "
        "says more of it. Restate's clock begins when its server calls the service again, however "
        "long that waited; LangGraph loads one snapshot, and goes on only when it is told to.",
        sizes="steps",
        columns=(
            ("from connecting", field("p50"), seconds),
            ("from asking, connected", field("p50_asked"), seconds),
            ("steps repeated", field("repeated"), count),
        ),
        plot=("seconds to the first new step", field("p50"), seconds),
    ),
]
