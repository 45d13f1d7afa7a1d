"""The page that says how fast it is, made of the results and of nothing else.

python -m bench.page [--results FOLDER] [--page FILE]      of each chapter the newest results
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path

from bench import overview, postgres_goals, postgres_sections, values_page
from bench.chapter import Chapter, written
from bench.environments import ROOT
from bench.figures import Results, count, field, rate, seconds
from bench.goals import GOALS
from bench.instructions import written as written_instructions
from bench.plan import PLANS
from bench.run import RESULTS, results_of
from bench.sections import SECTIONS
from bench.where import written as written_where

PAGE = ROOT / "docs" / "explanation" / "how-fast.md"

SQLITE = Chapter(
    name="sqlite",
    title="On one machine: SQLite",
    words="Everything in one process and one file.",
    words_of_contestants="Each in an environment of its own, at the versions that `bench/peers` "
    "pins, on SQLite. The settings were read back from the contestant's own connection while it "
    "ran.",
    words_of_counts="Counted in a round of its own that is not timed: flushes (`fsync`, "
    "`fdatasync`) by `strace -f -c`, statements by SQLite's own trace (`BENCH_COUNT=1`; BEGIN, "
    "COMMIT and what triggers run included). Bytes are those on disk once the write-ahead log is "
    "folded in, of turns that nobody traced. All from the difference of two sizes, so what a "
    "process does once is not in it. With many runs a run's start and end are spread over its 20 "
    "steps; 0 flushes means that more runs need no more of them. How many plain steps share a "
    "record depends on the disk, and the bytes with it.",
    headlines=(
        ("a step, one after the other", "sequential", 200, field("p50"), seconds),
        ("steps per second, 200 runs at once", "many", 200, rate, count),
        ("one-step runs per second", "starts", 1_000, rate, count),
        ("resume after 10,000 steps", "resume-one", 10_000, field("p50"), seconds),
        ("added to a model call, 100 agents", "model", 100, field("p50"), seconds),
    ),
    sections=SECTIONS,
    goals=GOALS,
    counted=(("flushes", "flushes", 3), ("statements", "statements", 3), ("bytes", "bytes", 0)),
)

POSTGRES = Chapter(
    name="postgres",
    title="On many machines: PostgreSQL",
    words="The same work with another URL. All contestants use one real PostgreSQL server on the "
    "same machine, each turn in a new database that starts with a checkpoint; Restate has its own "
    "server and log, on the same disk. Server and contestant share the machine's processors, so "
    "the server's processor time is listed separately.",
    words_of_contestants="Each in an environment of its own, at the versions that `bench/peers` "
    "pins, in its asynchronous form, with the pool that its documents recommend: DBOS its default "
    "of 20 connections, LangGraph 20, Absurd 8 workers with a connection each (a client has one), "
    "Outlive its default of 8. The server is started with `fsync`, `synchronous_commit` and "
    "`full_page_writes` on, 512 MB of shared buffers and room for 4 GB of log; the settings were "
    "read back from the contestant's own connection, Restate's from its server.",
    words_of_counts="Counted in a round of its own that is not timed: round trips by a wire "
    "between contestant and server that counts how often the one speaks after the other, "
    "transactions and flushes of the log by the server's statistics. All from the difference of "
    "two sizes, so what a process does once is not in it, but heartbeats are. With many runs a "
    "run's start, end and outcome are spread over its 20 steps.",
    headlines=(
        ("a step, one after the other", "sequential", 200, field("p50"), seconds),
        ("steps per second, 200 runs at once", "many", 200, rate, count),
        ("one-step runs per second", "starts", 1_000, rate, count),
        ("resume after 10,000 steps", "resume-one", 10_000, field("p50"), seconds),
    ),
    sections=postgres_sections.SECTIONS,
    goals=postgres_goals.GOALS,
    counted=(
        ("round trips", "round_trips", 3),
        ("transactions", "transactions", 3),
        ("flushes", "flushes", 3),
        ("bytes of log", "log_bytes", 0),
        ("bytes in tables and indexes", "bytes", 0),
    ),
)

CHAPTERS = (SQLITE, POSTGRES)

FAIRNESS = """\
## What is not fair to whom

- **To the peers:** each runs as its documents say, with its own defaults; none was tuned. DBOS
  opens SQLite with a rollback journal (several flushes per commit), meant for trying it out; its
  documents recommend PostgreSQL for production, as in the second chapter. LangGraph keeps a
  snapshot of all its state at every step, which allows time travel and a resume that does not
  depend on the length of the past, and costs bytes. Both have features that are not measured here.
- **To Outlive:** an `effect` makes intent, arguments and key durable before its body begins; no
  peer does. Its records carry a checksum and a chain. LangGraph's `task` does not wait for the disk
  between two steps.
- **In Outlive's favour:** a plain `step` does not wait for the disk either, by design: compare it
  with LangGraph's `task`, and `effect` with everybody else. With many runs at once, runs share
  flushes; the bare commit does not, so Outlive can be faster than it there.
- **To everybody:** all steps are trivial. A real step takes milliseconds to minutes; “added to a
  model call” shows what an engine adds then. Everything runs on one machine, in one process, on
  one disk, and the page cache is warm. A database across a network answers later by its round
  trip: multiply by the round trips that were counted.
- **To Restate:** its server is made for a cluster of its own, and here shares two processors with
  the service and the client. Its figures include an HTTP call per run.
- **To Absurd:** its idle workers poll every quarter of a second; where that would have mattered,
  tasks were spawned before the workers started.
"""


def opening(found: overview.Found, folder: Path, stem: str) -> list[str]:
    """The point of the page, on one screen."""
    forms = [str(measured.told["form"]) for _, measured in found]
    return [
        "# How fast it is",
        "",
        *overview.written(found, folder, stem),
        "The *bare commit* writes the same bytes to the same disk and does nothing else; *L1* is "
        "written by hand for this one work and keeps the promises of an `effect`. An "
        "`effect` is durable before it starts and before the next one; a `step` is not waited "
        "for. All steps are trivial, so this is the time of the engine alone. "
        "[What is not fair to whom](#what-is-not-fair-to-whom).",
        "",
        f"`{command_of(forms)}` writes this page; no figure was typed by hand. A figure is the "
        "**median** of the rounds, with minimum and maximum in parentheses; “once” marks a case "
        "that was run in one round only. Below: "
        + ", ".join(f"[{chapter.title}](#{anchor(chapter.title)})" for chapter, _ in found)
        + ", each with goals, details per work and counts.",
        "",
    ]


def anchor(title: str) -> str:
    """What a heading is called in links."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def command_of(forms: Sequence[str]) -> str:
    """What wrote the page."""
    return "make bench-full" if "full" in forms else "make bench"


def repeating(form: str) -> list[str]:
    """How to measure the same."""
    return [
        "## How to repeat it",
        "",
        f"`{command_of([form])}` does everything: it installs the peers below `.bench/`, runs, "
        "and writes this page. A part of it:",
        "",
        "```text",  # too long a work for the test that runs the examples of all pages
        f"$ {command_of([form])} ONLY=postgres",
        f"$ python -m bench.run {form} --work sequential,many --only floor,effect,dbos --out mine",
        "$ python -m bench.page --results mine --page mine/page.md",
        "```",
        "",
        "A single figure on SQLite: put `python -m bench.contestants.` before the command that "
        "stands beside it, an empty folder for `FOLDER`, and use the interpreter of the "
        "contestant's environment (`.bench/dbos/bin/python`, `.bench/langgraph/bin/python`, else "
        "the project's own). It prints JSON. A work `resume-…` continues what the same command "
        "with `prepare-…` leaves in the folder when it dies. On PostgreSQL: put "
        "`python -m` before the command; it starts a server, prepares what is needed, and calls "
        "the contestant in its environment.",
        "",
    ]


def where(results: Path) -> list[str]:
    """What the time is spent on, if somebody has looked."""
    path = results / "where.json"
    return written_where(json.loads(path.read_text())) if path.exists() else []


def instructions(results: Path) -> list[str]:
    """What the processor executes, if somebody has counted."""
    path = results / "instructions.json"
    return written_instructions(json.loads(path.read_text())) if path.exists() else []


def write(found: Sequence[tuple[Chapter, Results]], page: Path, results: Path) -> None:
    """All chapters that there are results of."""
    page.parent.mkdir(parents=True, exist_ok=True)
    forms = [str(measured.told["form"]) for _, measured in found]
    lines = opening(found, page.parent, page.stem)
    for chapter, measured in found:
        stem = page.stem if chapter.name == "sqlite" else f"{page.stem}-{chapter.name}"
        lines += written(chapter, measured, page.parent, stem)
    values = values_page.newest(results)
    if values is not None:
        lines += values_page.written(values, page.parent, page.stem)
    lines += [*instructions(results), *where(results), FAIRNESS, *repeating(forms[0])]
    page.write_text("\n".join(lines).rstrip() + "\n")


def newest(folder: Path) -> list[tuple[Chapter, Results]]:
    """Of each chapter the results that were written last.

    Raises:
        SystemExit: there are none of any.
    """
    found = []
    for chapter in CHAPTERS:
        names = [results_of(form, chapter.name) for form in PLANS]
        there = [folder / name for name in names if (folder / name).exists()]
        if there:
            found.append((chapter, Results(max(there, key=lambda path: path.stat().st_mtime))))
    if not found:
        raise SystemExit("no results yet: run python -m bench.run quick first")
    return found


def main(words: list[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.page")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args(words)
    write(newest(asked.results), asked.page, asked.results)


if __name__ == "__main__":
    main()
