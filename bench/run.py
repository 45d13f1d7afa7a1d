"""The runner: contestants take turns, round after round, and every sample is kept.

python -m bench.run quick|full|tiny [--only postgres,…] [--work sequential,…] [--out FOLDER]

Within a round every case is run by all its contestants, one right after the other and each time
in another order, so that whatever else the machine does hits all of them. Before the rounds comes
one that counts (statements, flushes, round trips; of peers in the full form alone) and is not
timed. On a machine on which all of it would take too long, what is slow is not repeated, and the
quick form ends within its minutes whatever is left. Each chapter, SQLite and PostgreSQL, has rounds
and a file of results of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.cases import Case, Chapter
from bench.databases import Databases
from bench.environments import PLACE, ROOT, python_of
from bench.machine import commit, describe, load
from bench.plan import (
    BUDGET_MINUTES,
    CHAPTERS,
    CONTESTANTS,
    COUNTED,
    COUNTED_OF_PEERS,
    LIMIT_SECONDS,
    OPTIONAL_ENVIRONMENTS,
    PLANS,
    ROUNDS,
    SLOW_SECONDS,
    UNCOUNTED,
    Form,
    chapter_of,
)
from bench.progress import Key, Progress, known_seconds
from bench.turns import Answer, Place, command_of, counted, prepare, sample

RESULTS = ROOT / "bench" / "results"
#: In the place of a figure.
NO_TIME = "not measured: no time was left"
#: What is expected of ours and of a peer: of a turn that was never measured, of a count, and of the
#: preparation of one step; and what comes around each turn.
USUAL_SECONDS, COUNT_SECONDS, PREPARE_SECONDS = (1.5, 4.0), (5.0, 16.0), (0.0006, 0.006)
AROUND_SECONDS = 0.3
#: What a turn that is counted may tell per step ...
COUNTABLE = ("flushes", "statements", "round_trips", "transactions", "log_bytes")
#: ... and as a whole: batches that were committed, and round trips made for them.
TOTALS = ("commits", "commit_trips")


class Rounds:
    """Every sample of every contestant in every case."""

    def __init__(
        self, plan: list[Case], rounds: int, budget_minutes: float, progress: Progress
    ) -> None:
        self._plan, self._rounds, self._progress = plan, rounds, progress
        self._budget_seconds, self._began = budget_minutes * 60, time.monotonic()
        self._rows = {
            (case.work, case.size, name): row_of(case, name)
            for case in plan
            for name in case.contestants
        }

    def run(self, place: Place) -> Iterator[Answer]:
        """All of them, told again after each case."""
        self._prepare(place)
        for number in range(self._rounds):
            for position, case in enumerate(self._plan):
                done = (number + position / len(self._plan)) / self._rounds
                first = number % len(case.contestants)
                for name in case.contestants[first:] + case.contestants[:first]:
                    self._turn(number, case, name, done, place)
                yield {"rounds": number + 1, "rows": list(self._rows.values())}

    def _turn(self, number: int, case: Case, name: str, done: float, place: Place) -> None:
        """One contestant's, unless it is not its turn or there is no time for it."""
        samples = self._rows[case.work, case.size, name]["samples"]
        key = key_of(case, name, number)
        has_room = self._progress.has_room_for(key)
        if samples and (case.once or not has_room or self._is_too_slow(samples[-1], done)):
            self._progress.drop(key)
            return
        if has_room:
            began = time.monotonic()
            told = sample(name, case, self._limited(place))
            self._progress.done(key, time.monotonic() - began)
        else:
            told = {"error": NO_TIME}
            self._progress.drop(key)
        samples.append(told)
        where = f"{self._progress.line()}  round {number + 1}/{self._rounds}"
        say(f"{where}  {case.work} {case.size}  {name}", told)

    def _limited(self, place: Place) -> Place:
        """No turn goes on for longer than there is time."""
        room = self._progress.room_seconds()
        if room is None:
            return place
        return replace(place, limit_seconds=min(place.limit_seconds, max(1, int(room))))

    def _prepare(self, place: Place) -> None:
        """What is gone on from where leases are: they run out while other things are measured."""
        for case in self._plan:
            for name in case.contestants:
                if case.prepared and CONTESTANTS[name].lease_seconds:
                    print(f"preparing  {case.work} {case.size}  {name}", flush=True)
                    prepare(name, case, self._limited(place))

    def _is_too_slow(self, last: Answer, done: float) -> bool:
        """To be repeated, while everything takes longer than it should."""
        is_behind = time.monotonic() - self._began > self._budget_seconds * done
        return is_behind and ("error" in last or last["turn_seconds"] > SLOW_SECONDS)


def key_of(case: Case, name: str, number: int) -> Key:
    """One turn of one round."""
    return case.work, case.size, name, number


def expect(progress: Progress, plan: list[Case], rounds: int, counted_names: list[str]) -> None:
    """Tell what a chapter is made of."""
    for name in counted_names:
        seconds = COUNT_SECONDS[bool(CONTESTANTS[name].environment)]
        progress.add((("count", work, name) for work in COUNTED), seconds)
    for case in plan:
        for name in case.contestants:
            is_peer = bool(CONTESTANTS[name].environment)
            prepared = case.size * PREPARE_SECONDS[is_peer] if case.prepared else 0.0
            first, *later = (key_of(case, name, number) for number in range(rounds))
            progress.add([first], USUAL_SECONDS[is_peer], prepared + AROUND_SECONDS)
            progress.add([] if case.once else later, USUAL_SECONDS[is_peer], AROUND_SECONDS)


def row_of(case: Case, name: str) -> Answer:
    """Where the samples of one contestant in one case are kept."""
    return {
        "work": case.work,
        "size": case.size,
        "contestant": name,
        "command": shown(name, case),
        "samples": [],
    }


def shown(name: str, case: Case) -> str:
    """The command that repeats it."""
    if CONTESTANTS[name].chapter == "sqlite":
        return " ".join(["python", *command_of(name, case.work, case.size, "FOLDER")])
    return f"python -m bench.one {name} {case.work} {case.size}"


def say(what: str, told: Answer) -> None:
    """A line for whoever waits."""
    how = told.get("error") or f"{told['seconds']:.3f} s"
    if "p50" in told:
        how += f", p50 {told['p50'] * 1e3:.3f} ms"
    print(f"{what}: {how}", flush=True)


def count(names: list[str], place: Place, progress: Progress) -> list[Answer]:
    """What can be counted per step, from the difference of two sizes."""
    rows = []
    for work in COUNTED:
        for name in names:
            is_peer, began = bool(CONTESTANTS[name].environment), time.monotonic()
            sizes = (COUNTED_OF_PEERS if is_peer else COUNTED)[work]
            told = counts_of(name, work, sizes, place)
            progress.done(("count", work, name), time.monotonic() - began)
            print(f"{progress.line()}  counted  {work}  {name}: {told}", flush=True)
            rows.append({"work": work, "contestant": name, "sizes": sizes, **told})
    return rows


def counts_of(name: str, work: str, sizes: tuple[int, int], place: Place) -> Answer:
    """What one more step costs.

    Bytes are not taken from the turns that are traced: whoever lets steps share a record makes
    larger ones where a flush takes longer.
    """
    traced = [counted(name, work, size, place) for size in sizes]
    cases = [Case(work=work, size=size, contestants=(name,)) for size in sizes]
    plain = [sample(name, case, place) for case in cases]
    problems = [each["error"] for each in (*traced, *plain) if "error" in each]
    if problems:
        return {"error": problems[0]}
    found = {what: per_step(traced, what) for what in COUNTABLE if what in traced[0]}
    totals = {what: traced[1][what] for what in TOTALS if what in traced[1]}
    return {**found, **totals, "bytes": per_step(plain, "bytes")}


def per_step(pair: list[Answer], what: str) -> float:
    """What the larger of two turns has more than the smaller, by the steps that it has more."""
    small, large = pair
    found: float = (large[what] - small[what]) / (large["operations"] - small["operations"])
    return found


def chosen(form: Form, only: str, works: str) -> list[Case]:
    """The plan, or the part of it that was asked for.

    Raises:
        SystemExit: nobody and nothing has such a name.
    """
    names = named(only.split(",")) if only else list(CONTESTANTS)
    wanted = works.split(",") if works else [case.work for case in PLANS[form]]
    unknown = {*names} - {*CONTESTANTS} | {*wanted} - {case.work for case in PLANS[form]}
    if unknown:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}")
    parts = [case.among(names) for case in PLANS[form] if case.work in wanted]
    return [part for part in parts if part.contestants]


def named(words: Sequence[str]) -> list[str]:
    """Contestants, by their own names or by those of chapters."""
    return [
        name
        for word in words
        for name in (
            [each for each in CONTESTANTS if CONTESTANTS[each].chapter == word]
            if word in CHAPTERS
            else [word]
        )
    ]


def check_environments(names: list[str]) -> None:
    """Everybody can be started who must be.

    Raises:
        SystemExit: somebody's environment is missing.
    """
    missing = [
        name
        for name in names
        if CONTESTANTS[name].environment not in OPTIONAL_ENVIRONMENTS
        and not Path(python_of(CONTESTANTS[name])).exists()
    ]
    if missing:
        raise SystemExit(
            f"no environment for {', '.join(missing)}: run python -m bench.environments first"
        )


def conditions(stores: Path) -> dict[str, Any]:
    """When, what and where."""
    return {
        "began": time.time(),
        "on": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(),
        "machine": {**describe(stores), "load before": load()},
    }


def save(results: dict[str, Any], path: Path) -> None:
    """Write down what there is so far; whoever reads it finds one whole or the other."""
    results["minutes"] = (time.time() - results["began"]) / 60
    results["machine"]["load after"] = load()
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(results, indent=1) + "\n")
    fresh.replace(path)


def remove_leftovers(stores: Path) -> None:
    """Folders of runners that were killed."""
    for form in PLANS:
        for folder in stores.glob(f"{form}-*"):
            pid = folder.name.removeprefix(f"{form}-")
            if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(folder, ignore_errors=True)


def arguments(words: list[str] | None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.run")
    parser.add_argument("form", choices=list(PLANS))
    parser.add_argument("--only", default="", help="contestants or chapters, by comma")
    parser.add_argument("--work", default="", help="works, by comma")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--no-counts", action="store_true", help="only what is timed")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--stores", type=Path, default=PLACE, help="on the disk to be measured")
    return parser.parse_args(words)


def results_of(form: Form, chapter: Chapter) -> str:
    """The name of a chapter's file."""
    return f"{form}.json" if chapter == "sqlite" else f"{form}-{chapter}.json"


def counted_in(plan: list[Case], asked: argparse.Namespace) -> list[str]:
    """Whose turns are counted; those of peers take long."""
    if asked.form == "tiny" or asked.no_counts:
        return []
    names = sorted({name for case in plan for name in case.contestants} - {*UNCOUNTED})
    return [name for name in names if asked.form == "full" or not CONTESTANTS[name].environment]


def run_chapter(
    plan: list[Case], asked: argparse.Namespace, place: Place, progress: Progress
) -> Path:
    """Run a chapter's cases, and write everything down."""
    form, chapter = asked.form, chapter_of(plan[0])
    budget = BUDGET_MINUTES[form, chapter]
    progress.begin_chapter(budget if form == "quick" else None)
    path: Path = asked.out / results_of(form, chapter)
    results: dict[str, Any] = {"form": form, "counts": [], **conditions(asked.stores)}
    if place.databases is not None:
        results["machine"]["PostgreSQL"] = place.databases.version()
    results["counts"] = count(counted_in(plan, asked), place, progress)
    # Again and again: whoever stops us keeps what was measured.
    rounds = Rounds(plan, asked.rounds or ROUNDS[form], budget, progress)
    for told in rounds.run(place):
        results |= told
        save(results, path)
    minutes = (time.time() - results["began"]) / 60
    print(f"written to {path.name} after {minutes:.1f} minutes", flush=True)
    return path


def main(words: list[str] | None = None, progress: Progress | None = None) -> list[Path]:
    """Run what was asked for, chapter by chapter."""
    asked = arguments(words)
    form: Form = asked.form
    plan = chosen(form, asked.only, asked.work)
    check_environments(sorted({name for case in plan for name in case.contestants}))
    remove_leftovers(asked.stores)
    place = Place(folder=asked.stores / f"{form}-{os.getpid()}", limit_seconds=LIMIT_SECONDS[form])
    place.folder.mkdir(parents=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    progress = progress or Progress(known=known_seconds(RESULTS))
    parts = [[case for case in plan if chapter_of(case) == chapter] for chapter in CHAPTERS]
    parts = [part for part in parts if part]
    for part in parts:
        expect(progress, part, asked.rounds or ROUNDS[form], counted_in(part, asked))
    try:
        return [run_part(part, asked, place, progress) for part in parts]
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)


def run_part(plan: list[Case], asked: argparse.Namespace, place: Place, progress: Progress) -> Path:
    """A chapter, with the server that it needs."""
    with ExitStack() as stack:
        if chapter_of(plan[0]) == "postgres":
            place = replace(place, databases=stack.enter_context(Databases()))
        return run_chapter(plan, asked, place, progress)


if __name__ == "__main__":
    # Asked to stop: as by Ctrl-C, so that whatever was started ends, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
