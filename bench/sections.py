"""What the page tells of each work: its words, its columns, and the curve that is drawn of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.figures import (
    Look,
    bytes_per_operation,
    count,
    cpu_per_operation,
    field,
    megabytes,
    rate,
    seconds,
)

Form = Callable[[float], str]
#: (its head, what of a sample it shows, how that is written)
Column = tuple[str, Look, Form]
#: (what is drawn, what of a sample, how that is written)
Plot = tuple[str, Look, Form]

P50: Column = ("p50", field("p50"), seconds)
P99: Column = ("p99", field("p99"), seconds)
RATE: Column = ("per second", rate, count)
CPU: Column = ("processor time", cpu_per_operation, seconds)
BYTES: Column = ("bytes on disk", bytes_per_operation, count)
OPENED: Column = ("from opening the store", field("p50"), seconds)
ASKED: Column = ("in an app that is open", field("p50_asked"), seconds)
ADDED: Plot = ("seconds added to each call, p50", field("p50"), seconds)


@dataclass(frozen=True, kw_only=True)
class Section:
    """One work."""

    work: str
    title: str
    words: str
    #: What a size is a number of.
    sizes: str
    columns: tuple[Column, ...]
    plot: Plot | None = None


SECTIONS = [
    Section(
        work="sequential",
        title="One run, one step after the other",
        words="Trivial steps: an argument of 100 bytes, an outcome of 200, every other one "
        "distinct. The time is from the end of one body to the beginning of the next: all that "
        "the engine does, and nothing that the step does. “Last 100” are the steps with the "
        "longest past. Processor time is per step, all threads together; so are the bytes on "
        "disk, with what an empty store has.",
        sizes="steps",
        columns=(P50, P99, ("last 100, p50", field("p50_last"), seconds), RATE, CPU, BYTES),
        plot=("seconds per step, p50", field("p50"), seconds),
    ),
    Section(
        work="many",
        title="Many runs at once in one process",
        words="20 such steps in each run, all runs started at once, up to the last outcome. The "
        "bare commit does one step after the other. p50 is how long a run waits between two of "
        "its steps.",
        sizes="runs",
        columns=(RATE, CPU, P50, P99, BYTES),
        plot=("processor time per step", cpu_per_operation, seconds),
    ),
    Section(
        work="starts",
        title="Runs of one step",
        words="Each start is acknowledged when it is durable; up to 100 are under way at once. "
        "The bare commit makes two commits for each, one after the other.",
        sizes="runs",
        columns=(RATE, CPU, BYTES),
        plot=("processor time per one-step run", cpu_per_operation, seconds),
    ),
    Section(
        work="resume-one",
        title="Resume: one branch",
        words="A process dies with this many recorded steps. Another one opens the store (as DBOS "
        "launches): the time up to the body of the first new step, imports not counted, all "
        "checks on, the file in the page cache. LangGraph's graph loads one snapshot of its state "
        "instead of replaying code, and both its forms go on only when they are told to.",
        sizes="steps",
        columns=(OPENED, ASKED, ("steps repeated", field("repeated"), count)),
        plot=("seconds to the first new step", field("p50"), seconds),
    ),
    Section(
        work="resume-branches",
        title="Resume: a hundred branches",
        words="The same number of steps, in 100 branches of one `gather`.",
        sizes="steps",
        columns=(OPENED, ASKED),
        plot=("seconds to the first new step", field("p50"), seconds),
    ),
    Section(
        work="resume-carried",
        title="Resume after `carry`",
        words="The same number of steps, then a new chapter.",
        sizes="steps",
        columns=(OPENED, ASKED),
        plot=("seconds to the first new step", field("p50"), seconds),
    ),
    Section(
        work="model",
        title="Added to a model call",
        words="Agents that call a pretend model of 200 ms ten times each; they begin evenly "
        "spread over one call. What lies between the end of one call and the beginning of the "
        "next.",
        sizes="agents",
        columns=(P50, P99, CPU),
        plot=ADDED,
    ),
    Section(
        work="model-in-step",
        title="Added to a model call, all agents in step",
        words="The same when all begin at one instant, so that all calls end at one instant, too. "
        "Everybody's next step is computed in one process, so the last of them waits for all "
        "others.",
        sizes="agents",
        columns=(P50, P99, CPU),
        plot=ADDED,
    ),
    Section(
        work="resume-sleepers",
        title="Sleeping runs",
        words="A worker starts among runs that sleep for a year. Start-up is up to the first step "
        "of a run that is asked for then; resident memory is read a second later. Then 1,000 more "
        "runs are submitted that are due at one instant, and the time is taken from that instant "
        "until the last has ended. DBOS keeps what sleeps in memory, and was not asked for the "
        "latter.",
        sizes="sleepers",
        columns=(
            ("start-up", field("startup"), seconds),
            ("resident", field("resident"), megabytes),
            ("of which interpreter and imports", field("resident_before"), megabytes),
            ("1,000 due: until all ended", field("due_seconds"), seconds),
        ),
        plot=("resident memory", field("resident"), megabytes),
    ),
    Section(
        work="takeover",
        title="Takeover after kill -9",
        words="A process that drives a run is killed; another worker on the same machine runs the "
        "step that it was in. No peer on SQLite has a worker that takes over from another.",
        sizes="kills",
        columns=(P50, ("most", field("p99"), seconds)),
    ),
    Section(
        work="resume-interrupted",
        title="Recovery of interrupted runs",
        words="A process is killed in the midst of so many runs. A worker that is started then "
        "(DBOS: the same process again) ends them all. Processor time is per run.",
        sizes="runs",
        columns=(
            ("until the first goes on", field("first"), seconds),
            ("until all have ended", field("p50"), seconds),
            CPU,
        ),
        plot=("seconds until all have ended", field("p50"), seconds),
    ),
    Section(
        work="signals",
        title="Signals",
        words="20 signals to each of so many runs, each posted durably, one after the other per "
        "run, until all runs have taken theirs and ended.",
        sizes="runs",
        columns=(RATE, CPU),
        plot=("signals per second", rate, count),
    ),
    Section(
        work="answers",
        title="A human's answer",
        words="From the call of `answer` to the body of the next step; the run is still in memory.",
        sizes="answers",
        columns=(P50, P99),
    ),
    Section(
        work="answers-evicted",
        title="A human's answer to a run that has left memory",
        words="The same after the run was evicted. With LangGraph the answer is given by the call "
        "that goes on with the graph.",
        sizes="answers",
        columns=(P50, P99),
    ),
    Section(
        work="loop",
        title="An explicit loop",
        words="A machine whose state is ten kilobytes, of which each transition changes one line; "
        "a checkpoint after each. Beside it the usual recipe: the snapshot as JSON in one row, "
        "one UPDATE and one commit per transition. The time is from the end of one handler to the "
        "beginning of the next. Bytes on disk are those of all checkpoints: the recipe overwrites "
        "its own.",
        sizes="transitions",
        columns=(P50, P99, ("last 100, p50", field("p50_last"), seconds), CPU, BYTES),
        plot=("seconds per transition, p50", field("p50"), seconds),
    ),
    Section(
        work="checkpoint",
        title="Checkpoints of a loop of one's own",
        words="A state that grows by a kilobyte of random text per step and is saved after each, "
        "with the calls of [Durable Run](../howto/coming-from-durable-run.md). The recipe is the "
        "table that Durable Run documents, with the whole state in every row; the bare commit "
        "writes what is new and nothing else. Bytes are per step.",
        sizes="steps",
        columns=(P50, P99, ("last 100, p50", field("p50_last"), seconds), CPU, BYTES),
        plot=("seconds per checkpoint, p50", field("p50"), seconds),
    ),
]
