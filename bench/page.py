"""The page that says how fast it is, made of the results and of nothing else.

python -m bench.page [RESULTS.json] [--page FILE]      the newest results unless told
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.environments import ROOT
from bench.figures import (
    Look,
    Results,
    count,
    cpu_per_operation,
    field,
    megabytes,
    rate,
    seconds,
)
from bench.goals import GOALS
from bench.plan import CONTESTANTS, COUNTED
from bench.plots import draw
from bench.run import RESULTS

PAGE = ROOT / "docs" / "explanation" / "how-fast.md"
#: More other work than this, and the page says so.
QUIET_LOAD = 1.0

Column = tuple[str, Look, Callable[[float], str]]
P50: Column = ("p50", field("p50"), seconds)
P99: Column = ("p99", field("p99"), seconds)
RATE: Column = ("per second", rate, count)
CPU: Column = ("processor time", cpu_per_operation, seconds)

#: (work, title, what is done, what a size is, columns)
Section = tuple[str, str, str, str, list[Column]]
SECTIONS: list[Section] = [
    (
        "sequential",
        "One run, one step after the other",
        "Trivial steps with 100-byte arguments and 200-byte outcomes, every other one distinct. "
        "The time is from the end of one body to the beginning of the next. “Last 100” are the "
        "steps with the longest past.",
        "steps",
        [P50, P99, ("last 100, p50", field("p50_last"), seconds), RATE, CPU],
    ),
    (
        "many",
        "Many runs at once in one process",
        "20 such steps in each run, all runs started at once, up to the last outcome.",
        "runs",
        [RATE, CPU, P50, P99],
    ),
    (
        "starts",
        "Runs of one step",
        "Each start is acknowledged when it is durable; 100 at once. The bare commit makes two.",
        "runs",
        [RATE, CPU],
    ),
    (
        "resume-one",
        "Resume: one branch",
        "A process dies with this many recorded steps. Another one opens the store (as DBOS "
        "launches): the time up to the body of the first new step, imports not counted, all "
        "checks on. LangGraph loads one snapshot of its state instead of replaying code, and "
        "goes on only when it is told to.",
        "steps",
        [
            ("from opening the store", field("p50"), seconds),
            ("in an app that is open", field("p50_asked"), seconds),
            ("steps repeated", field("repeated"), count),
        ],
    ),
    (
        "resume-branches",
        "Resume: a hundred branches",
        "The same number of steps, in 100 branches of one `gather`.",
        "steps",
        [
            ("from opening the store", field("p50"), seconds),
            ("in an app that is open", field("p50_asked"), seconds),
        ],
    ),
    (
        "resume-carried",
        "Resume after `carry`",
        "The same number of steps, then a new chapter.",
        "steps",
        [
            ("from opening the store", field("p50"), seconds),
            ("in an app that is open", field("p50_asked"), seconds),
        ],
    ),
    (
        "model",
        "Added to a model call",
        "Agents that call a pretend model of 200 ms ten times each; they begin evenly spread over "
        "one call. What lies between the end of one call and the beginning of the next.",
        "agents",
        [P50, P99, CPU],
    ),
    (
        "model-in-step",
        "Added to a model call, all agents in step",
        "The same when all begin at one instant, so that all calls end at one instant, too.",
        "agents",
        [P50, P99, CPU],
    ),
    (
        "resume-sleepers",
        "Sleeping runs",
        "A worker starts among runs that sleep for a year. Start-up is up to the first step of a "
        "run that was submitted then. Later 1,000 runs are due at one instant, and the time is "
        "taken until the last has ended.",
        "sleepers",
        [
            ("start-up", field("startup"), seconds),
            ("resident", field("resident"), megabytes),
            ("of which the interpreter and imports", field("resident_before"), megabytes),
            ("1,000 due: until all ended", field("due_seconds"), seconds),
        ],
    ),
    (
        "takeover",
        "Takeover after kill -9",
        "A process that drives a run is killed; another worker on the same machine runs the "
        "step that it was in.",
        "kills",
        [P50, ("most", field("p99"), seconds)],
    ),
    (
        "resume-interrupted",
        "Recovery of interrupted runs",
        "A process is killed in the midst of so many runs. A worker that is started then ends "
        "them all.",
        "runs",
        [
            ("until the first goes on", field("first"), seconds),
            ("until all have ended", field("p50"), seconds),
            CPU,
        ],
    ),
    (
        "signals",
        "Signals",
        "20 signals to each of so many runs, each posted durably, one after the other per run, "
        "until all runs have taken theirs and ended.",
        "runs",
        [RATE, CPU],
    ),
    (
        "answers",
        "A human's answer",
        "From the call of `answer` to the body of the next step; the run is still in memory.",
        "answers",
        [P50, P99],
    ),
    (
        "answers-evicted",
        "A human's answer to a run that has left memory",
        "The same after the run was evicted.",
        "answers",
        [P50, P99],
    ),
]

#: (work, what is drawn, its unit)
PLOTS: list[tuple[str, str, Look, Callable[[float], str]]] = [
    ("sequential", "seconds per step, p50", field("p50"), seconds),
    ("many", "processor time per step", cpu_per_operation, seconds),
    ("starts", "processor time per one-step run", cpu_per_operation, seconds),
    ("resume-one", "seconds to the first new step", field("p50"), seconds),
]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """As Markdown has it."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def section(results: Results, wanted: Section, plots: dict[str, str]) -> list[str]:
    """One work: words, a curve, a table."""
    work, title, words, size_name, columns = wanted
    rows = [
        row(results, (work, size, name), columns)
        for size in results.sizes(work)
        for name in results.contestants(work, size)
        if results.samples(work, size, name) or results.problem(work, size, name)
    ]
    if not rows:
        return []
    used = [
        number
        for number in range(len(rows[0]))
        if number < 2 or any(cells[number] for cells in rows)
    ]
    head = [size_name, "contestant", *(column[0] for column in columns), "command"]
    lines = [f"## {title}", "", words, ""]
    if work in plots:
        lines += [f"![{title}]({plots[work]})", ""]
    return [
        *lines,
        *table((head[n] for n in used), ([cells[n] for n in used] for cells in rows)),
        "",
    ]


def row(results: Results, key: tuple[str, int, str], columns: list[Column]) -> list[str]:
    """One contestant at one size."""
    work, size, name = key
    cells = [f"{size:,}", CONTESTANTS[name].title]
    problem = "" if results.samples(*key) else results.problem(*key)
    for _, look, form in columns:
        found = results.figure(work, size, name, look)
        cells.append(found.told(form) if found else problem)
        problem = ""
    return [*cells, f"`{results.command(*key).removeprefix('python -m bench.contestants.')}`"]


def contestants(results: Results) -> list[str]:
    """Who took part, with what settings, promising what."""
    rows = []
    for name, each in CONTESTANTS.items():
        found = results.first(name, "version")
        if name == "waiting" or found is None:
            continue
        settings: dict[str, Any] = results.first(name, "settings") or {}
        said = ", ".join(f"{key}={value}" for key, value in settings.items())
        rows.append([each.title, found, f"`{said}`", each.durable])
    head = ["contestant", "version", "settings, read back", "durable before the next step began"]
    return ["## Who took part", "", *table(head, rows), ""]


def counts(results: Results) -> list[str]:
    """Flushes, statements, bytes."""
    rows = []
    for work, (small, large) in COUNTED.items():
        for name, each in CONTESTANTS.items():
            found = [results.counted(work, name, what) for what in ("flushes", "statements")]
            size = results.counted(work, name, "bytes")
            if size is None:
                continue
            what = "one run" if work == "sequential" else "many runs"
            told = [f"{value:.3f}" if value is not None else "–" for value in found]
            command = f"`{each.module} {work} {small}` and `{large}`"
            rows.append([what, each.title, *told, f"{size:,.0f}", command])
    if not rows:
        return []
    words = (
        "Counted in a round of its own that is not timed: flushes by `strace`, statements by "
        "SQLite's own trace (BEGIN, COMMIT and what triggers run included), bytes on disk once "
        "the write-ahead log is folded in. From the difference of two sizes, so what a process "
        "does once is not in it. With many runs a run's start and end are spread over its 20 "
        "steps; 0 flushes means that more runs need no more of them. How many plain steps share "
        "a record depends on the disk, and the bytes with it."
    )
    head = ["work", "contestant", "flushes", "statements", "bytes", "commands"]
    return ["## Flushes, statements and bytes per step", "", words, "", *table(head, rows), ""]


def goals(results: Results) -> list[str]:
    """Which are reached."""
    rows = []
    for goal in GOALS:
        bound, value, verdict = goal.verdict(results)
        rows.append([goal.text, bound, value, verdict])
    words = (
        "Ratios are taken within each round. Reached means in every round; where rounds disagree "
        "nothing is claimed."
    )
    return ["## Goals", "", words, "", *table(["goal", "bound", "measured", ""], rows), ""]


def opening(results: Results) -> list[str]:
    """What was measured, when, on what."""
    told = results.told
    command = "make bench-full" if told["form"] == "full" else "make bench"
    busy = max(float(told["machine"][f"load {when}"].split()[0]) for when in ("before", "after"))
    lines = [
        "# How fast it is",
        "",
        f"This page is written by `{command}`; no figure on it was typed by hand. Measured on "
        f"{told['on']} at {told['commit']}, {told['rounds']} rounds in {told['minutes']:.0f} "
        "minutes, the contestants taking turns. A figure is the **median** of the rounds (the "
        "least to the most). Beside each stands its command: put `python -m bench.contestants.` "
        "before it, a folder for `FOLDER`, and use the interpreter of the contestant's "
        "environment (`.bench/dbos/bin/python`, `.bench/langgraph/bin/python`).",
        "",
    ]
    if busy > QUIET_LOAD:
        lines += [
            f"**The machine was busy with other work** (load up to {busy:.1f} on "
            f"{told['machine']['cores']} cores, the contestants' own included). Whoever waits for "
            "the disk then waits for a processor as well: compare within a table, and measure on "
            "a quiet machine before you rely on a figure.",
            "",
        ]
    if told.get("note"):
        lines += [told["note"], ""]
    lines += table(["", ""], ([name, value] for name, value in told["machine"].items()))
    return [*lines, ""]


def draw_plots(results: Results, folder: Path, stem: str) -> dict[str, str]:
    """Curves over the sizes, wherever there are at least two of them."""
    drawn = {}
    for work, title, look, form in PLOTS:
        curves = {}
        for name in ("floor", "step", "effect", "dbos", "langgraph"):
            points = [
                (float(size), found)
                for size in results.sizes(work)
                if (found := results.middle(work, size, name, look)) is not None
            ]
            if len(points) > 1:
                curves[CONTESTANTS[name].title.replace("`", "")] = points
        if curves:
            drawn[work] = f"{stem}-{work}.svg"
            across = next(each[3] for each in SECTIONS if each[0] == work)
            (folder / drawn[work]).write_text(draw(title, across, form, curves))
    return drawn


def write(results: Results, page: Path) -> None:
    """All of it."""
    plots = draw_plots(results, page.parent, page.stem)
    lines = [*opening(results), *goals(results), *contestants(results)]
    for wanted in SECTIONS:
        lines += section(results, wanted, plots)
    lines += counts(results)
    page.write_text("\n".join(lines).rstrip() + "\n")


def newest() -> Path:
    """The results that were written last."""
    return max(RESULTS.glob("*.json"), key=lambda path: path.stat().st_mtime)


def main(words: list[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.page")
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args(words)
    write(Results(asked.results or newest()), asked.page)


if __name__ == "__main__":
    main()
