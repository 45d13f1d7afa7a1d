"""The page that says how fast it is, made of the results and of nothing else.

python -m bench.page [RESULTS.json] [--page FILE]      the newest results unless told
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.environments import ROOT
from bench.figures import Look, Results, count, field, rate, seconds
from bench.goals import GOALS
from bench.plan import CONTESTANTS, COUNTED
from bench.plots import Curve, Point, draw
from bench.run import RESULTS
from bench.sections import SECTIONS, Column, Form, Section

PAGE = ROOT / "docs" / "explanation" / "how-fast.md"
#: More other work than this, and the page says so.
QUIET_LOAD = 1.0
#: Rounds that differ by more than this say more of the machine than of a contestant.
WIDE_SPREAD = 2.0

#: (what it is, work, size, what of a sample, how it is written)
HEADLINES: list[tuple[str, str, int, Look, Form]] = [
    ("a step, one after the other", "sequential", 200, field("p50"), seconds),
    ("steps per second, 200 runs at once", "many", 200, rate, count),
    ("one-step runs per second", "starts", 1_000, rate, count),
    ("resume after 10,000 steps", "resume-one", 10_000, field("p50"), seconds),
    ("added to a model call, 100 agents", "model", 100, field("p50"), seconds),
]

FAIRNESS = """\
## What is not fair to whom

- **To the peers:** each runs as its documents tell, on its own defaults, and none was tuned. DBOS
  opens SQLite with a rollback journal (several flushes per commit), meant for trying it out; its
  documents recommend PostgreSQL for production, which is not measured here. LangGraph keeps a
  snapshot of all its state at every step, which buys time travel and a resume that does not depend
  on the length of the past, and costs bytes. Both do things that are not measured here at all.
- **To Outlive:** an `effect` makes intent, arguments and key durable before its body begins; no
  peer does. Its records carry a checksum and a chain. LangGraph's `task` does not wait for the disk
  between two steps.
- **In Outlive's favour:** a plain `step` does not wait for the disk either, by design: compare it
  with LangGraph's `task`, and `effect` with everybody else. With many runs at once, runs share
  flushes; the bare commit does not, so Outlive can be faster than it there.
- **To everybody:** all steps are trivial. A real step takes milliseconds to minutes; look at “added
  to a model call” for what an engine adds then. Everything runs on one machine, in one process, on
  one disk, and the page cache is warm.
"""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """As Markdown has it."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def section(results: Results, wanted: Section, plots: dict[str, str]) -> list[str]:
    """One work: words, a curve, a table."""
    work = wanted.work
    rows = [
        row(results, (work, size, name), wanted.columns)
        for size in results.sizes(work)
        for name in results.contestants(work, size)
        if results.samples(work, size, name) or results.problem(work, size, name)
    ]
    if not rows:
        return []
    head = [wanted.sizes, "contestant", *(column[0] for column in wanted.columns), "command"]
    used = [n for n in range(len(head)) if n < 2 or any(cells[n] for cells in rows)]
    lines = [f"## {wanted.title}", "", wanted.words, ""]
    if work in plots:
        lines += [f"![{wanted.title}: {wanted.plot[0] if wanted.plot else ''}]({plots[work]})", ""]
    return [
        *lines,
        *table((head[n] for n in used), ([cells[n] for n in used] for cells in rows)),
        "",
    ]


def row(results: Results, key: tuple[str, int, str], columns: Iterable[Column]) -> list[str]:
    """One contestant at one size."""
    work, size, name = key
    cells = [f"{size:,}", CONTESTANTS[name].title]
    problem = "" if results.samples(*key) else results.problem(*key)
    for _, look, form in columns:
        found = results.figure(work, size, name, look)
        cells.append(found.told(form) if found else problem.replace("|", "/"))
        problem = ""
    return [*cells, f"`{results.command(*key).removeprefix('python -m bench.contestants.')}`"]


def contestants(results: Results) -> list[str]:
    """Who took part, with what settings, promising what."""
    rows = []
    for name, each in CONTESTANTS.items():
        found = results.first(name, "version")
        if found is None:
            continue
        settings: dict[str, Any] = results.first(name, "settings") or {}
        said = ", ".join(f"{key}={value}" for key, value in settings.items())
        title = f"{each.title} (where runs wait)" if name.endswith("waiting") else each.title
        rows.append([title, found, f"`{said}`", each.durable])
    words = (
        "Each in an environment of its own, at the versions that `bench/peers` pins, on SQLite. "
        "The settings were read back from the contestant's own connection while it ran."
    )
    head = ["contestant", "version", "settings, read back", "durable before the next step began"]
    return ["## Who took part", "", words, "", *table(head, rows), ""]


def counts(results: Results) -> list[str]:
    """Flushes, statements, bytes."""
    rows = []
    for work in COUNTED:
        for name, each in CONTESTANTS.items():
            found = results.counts(work, name)
            if not found:
                continue
            small, large = found["sizes"]
            what = "one run" if work == "sequential" else "many runs"
            told = [
                f"{found['flushes']:.3f}",
                f"{found['statements']:.3f}",
                f"{found['bytes']:,.0f}",
            ]
            words = f"{each.module} {work} {small} FOLDER {each.kind}".rstrip()
            rows.append([what, each.title, *told, f"`{words}`, and `{large}`"])
    if not rows:
        return []
    words = (
        "Counted in a round of its own that is not timed: flushes (`fsync`, `fdatasync`) by "
        "`strace -f -c`, statements by SQLite's own trace (`BENCH_COUNT=1`; BEGIN, COMMIT and what "
        "triggers run included). Bytes are those on disk once the write-ahead log is folded in, of "
        "turns that nobody traced. All from the difference of two sizes, so what a process does "
        "once is not in it. With many runs a "
        "run's start and end are spread over its 20 steps; 0 flushes means that more runs need no "
        "more of them. How many plain steps share a record depends on the disk, and the bytes "
        "with it."
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
        "What was aimed at, and whether these results reach it. Ratios are taken within each "
        "round, where contestants ran right after one another. Reached means in every round; "
        "where rounds disagree nothing is claimed."
    )
    return ["## Goals", "", words, "", *table(["goal", "bound", "measured", ""], rows), ""]


def opening(results: Results) -> list[str]:
    """What was measured, when, on what."""
    told = results.told
    lines = [
        "# How fast it is",
        "",
        "A durable engine writes down what a run does, so that it can go on after its process "
        "died. This page says what that costs: per step, per run, in bytes, when a run is "
        "resumed, while runs sleep, and on top of a model call; beside two other engines, and "
        "beside the *bare commit*, which writes the same bytes to the same disk and does nothing "
        "else.",
        "",
        f"It is written by `{command_of(results)}`, and no figure on it was typed by hand. "
        f"Measured on {told['on']} at {told['commit']} in {told['minutes']:.0f} minutes, the "
        f"contestants taking turns. Rounds: {told['rounds']}. A figure is the **median** of the "
        "rounds (the least to the most); “once” stands where a case was run in one round alone.",
        "",
        *noise(results),
    ]
    if told.get("note"):
        lines += [told["note"], ""]
    lines += table(["machine", ""], ([name, value] for name, value in told["machine"].items()))
    return [*lines, ""]


def summary(results: Results) -> list[str]:
    """The headline figures, side by side."""
    rows = []
    for name, each in CONTESTANTS.items():
        found = [results.figure(work, size, name, look) for _, work, size, look, _ in HEADLINES]
        bytes_per_step = results.counted("sequential", name, "bytes")
        if any(found):
            told = [
                form(figure.middle) if figure else "–"
                for figure, (*_, form) in zip(found, HEADLINES, strict=True)
            ]
            size = "–" if bytes_per_step is None else f"{bytes_per_step:,.0f}"
            rows.append([each.title, *told, size])
    head = ["medians", *(words for words, *_ in HEADLINES), "bytes per step"]
    return ["## In short", "", *table(head, rows), ""] if rows else []


def command_of(results: Results) -> str:
    """What wrote the page."""
    return "make bench-full" if results.told["form"] == "full" else "make bench"


def noise(results: Results) -> list[str]:
    """How far the figures can be relied on."""
    machine = results.told["machine"]
    busy = max(float(machine[f"load {when}"].split()[0]) for when in ("before", "after"))
    wide, all_of_them = results.wide(WIDE_SPREAD)
    lines = []
    if all_of_them:
        lines += [
            f"In {wide} of {all_of_them} rows the slowest round took more than "
            f"{WIDE_SPREAD:.0f} times as long as the fastest: there the range says more than the "
            "median.",
            "",
        ]
    if busy > QUIET_LOAD:
        lines += [
            f"**The machine was busy with other work** (load up to {busy:.1f} on "
            f"{machine['cores']} cores, the contestants' own included). Whoever waits for the "
            "disk then waits for a processor as well: compare within a table, and measure on a "
            "quiet machine before you rely on a figure.",
            "",
        ]
    return lines


def repeating(results: Results) -> list[str]:
    """How to get these figures oneself."""
    form = results.told["form"]
    return [
        "## How to repeat it",
        "",
        f"`{command_of(results)}` does everything: it installs the peers below `.bench/`, runs, "
        "and writes this page. A part of it:",
        "",
        "```text",  # too long a work for the test that runs the examples of all pages
        "$ python -m bench.environments",
        f"$ python -m bench.run {form} --work sequential,many --only floor,effect,dbos --out mine",
        f"$ python -m bench.page mine/{form}.json --page mine/page.md",
        "```",
        "",
        "A single figure: put `python -m bench.contestants.` before the command that stands beside "
        "it, an empty folder for `FOLDER`, and use the interpreter of the contestant's environment "
        "(`.bench/dbos/bin/python`, `.bench/langgraph/bin/python`, else the project's own). It "
        "prints JSON. A work `resume-…` goes on from what the same command with `prepare-…` "
        "leaves behind in the folder when it dies.",
        "",
    ]


def draw_plots(results: Results, folder: Path, stem: str) -> dict[str, str]:
    """Curves over the sizes, wherever there are at least two of them."""
    drawn = {}
    for wanted in SECTIONS:
        if wanted.plot is None:
            continue
        title, look, form = wanted.plot
        every = (curve_of(results, wanted.work, name, look) for name in CONTESTANTS)
        curves = [curve for curve in every if len(curve.points) > 1]
        if curves:
            drawn[wanted.work] = f"{stem}-{wanted.work}.svg"
            (folder / drawn[wanted.work]).write_text(draw(title, wanted.sizes, form, curves))
    return drawn


def curve_of(results: Results, work: str, name: str, look: Look) -> Curve:
    """A contestant's figures at each size that it did."""
    found = {size: results.figure(work, size, name, look) for size in results.sizes(work)}
    points = [
        Point(size=size, middle=figure.middle, least=figure.least, most=figure.most)
        for size, figure in found.items()
        if figure is not None
    ]
    contestant = CONTESTANTS[name]
    title = contestant.title.replace("`", "")
    return Curve(name=title, colour=contestant.colour, points=points)


def write(results: Results, page: Path) -> None:
    """All of it."""
    page.parent.mkdir(parents=True, exist_ok=True)
    plots = draw_plots(results, page.parent, page.stem)
    lines = [*opening(results), *summary(results), *contestants(results), *goals(results)]
    for wanted in SECTIONS:
        lines += section(results, wanted, plots)
    lines += [*counts(results), FAIRNESS, *repeating(results)]
    page.write_text("\n".join(lines).rstrip() + "\n")


def newest() -> Path:
    """The results that were written last.

    Raises:
        SystemExit: there are none.
    """
    found = sorted(RESULTS.glob("*.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise SystemExit("no results yet: run python -m bench.run quick first")
    return found[-1]


def main(words: list[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.page")
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args(words)
    write(Results(asked.results or newest()), asked.page)


if __name__ == "__main__":
    main()
