"""The runner: contestants take turns, round after round, and every sample is kept.

python -m bench.run quick|full|tiny [--only step,effect,…] [--work sequential,…] [--out FOLDER]

Within a round every case is run by all its contestants, one right after the other and each time
in another order, so that whatever else the machine does hits all of them. Before the rounds comes
one that counts (statements by SQLite's own trace, flushes by strace) and is not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.contest import COUNTING
from bench.environments import PLACE, ROOT, python_of
from bench.machine import commit, describe, load
from bench.plan import CONTESTANTS, COUNTED, LIMIT_SECONDS, PLANS, ROUNDS, Case, Form

RESULTS = ROOT / "bench" / "results"
COMPILE_ALWAYS = "PYTHONDONTWRITEBYTECODE"
FLUSHES = ("fsync", "fdatasync")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where stores are made, and how long anything may take."""

    folder: Path
    limit_seconds: int

    def fresh(self) -> Path:
        """An empty folder for one contestant's turn."""
        scratch = self.folder / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        return scratch


def command_of(name: str, work: str, size: int, folder: str) -> list[str]:
    """What is run: without the interpreter, so that it can be printed."""
    contestant = CONTESTANTS[name]
    words = ["-m", f"bench.contestants.{contestant.module}", work, str(size), folder]
    return words + [contestant.kind] * bool(contestant.kind)


def turn(name: str, work: str, size: int, place: Place, folder: Path) -> dict[str, Any]:
    """One contestant's answer, or why there is none."""
    command = [python_of(CONTESTANTS[name]), *command_of(name, work, size, str(folder))]
    return answer_of(command, place, {})


def answer_of(command: list[str], place: Place, more: dict[str, str]) -> dict[str, Any]:
    """What the last line of a program's output says."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**settings(), **more},
            capture_output=True,
            text=True,
            timeout=place.limit_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done within {place.limit_seconds} s"}
    if done.returncode or not done.stdout.strip():
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return {"error": last[0].replace(str(ROOT), ".")[:300]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def settings() -> dict[str, str]:
    """The environment as it is, with Python's compiled modules kept: nobody is to measure that."""
    return {name: value for name, value in os.environ.items() if name != COMPILE_ALWAYS}


def prepare(name: str, case: Case, place: Place) -> Path:
    """The store that a case goes on from: made once, by a process that dies in it."""
    folder = place.folder / "prepared" / f"{name}-{case.prepared}-{case.size}"
    if not folder.exists():
        folder.mkdir(parents=True)
        turn(name, case.prepared, case.size, place, folder)
    return folder


def sample(name: str, case: Case, place: Place) -> dict[str, Any]:
    """One turn in a store of its own."""
    scratch = place.fresh()
    if case.prepared:
        shutil.copytree(prepare(name, case, place), scratch, dirs_exist_ok=True)
    os.sync()
    return turn(name, case.work, case.size, place, scratch)


def run_rounds(plan: list[Case], rounds: int, place: Place) -> Iterator[dict[str, Any]]:
    """Every sample of every contestant in every case, told again after each of them."""
    rows: dict[tuple[str, int, str], dict[str, Any]] = {
        (case.work, case.size, name): {
            "work": case.work,
            "size": case.size,
            "contestant": name,
            "command": " ".join(["python", *command_of(name, case.work, case.size, "FOLDER")]),
            "samples": [],
        }
        for case in plan
        for name in case.contestants
    }
    for number in range(rounds):
        for case in plan:
            first = number % len(case.contestants)
            for name in case.contestants[first:] + case.contestants[:first]:
                told = sample(name, case, place)
                rows[case.work, case.size, name]["samples"].append(told)
                say(number, case, name, told)
            yield {"rounds": number + 1, "rows": list(rows.values())}


def say(number: int, case: Case, name: str, told: dict[str, Any]) -> None:
    """A line for whoever waits."""
    what = told.get("error") or f"{told['seconds']:.3f} s"
    if "p50" in told:
        what += f", p50 {told['p50'] * 1e3:.3f} ms"
    print(f"round {number + 1}  {case.work} {case.size}  {name}: {what}", flush=True)


def count(names: list[str], place: Place) -> list[dict[str, Any]]:
    """Flushes, statements and bytes per step, from the difference of two sizes."""
    rows = []
    for work, sizes in COUNTED.items():
        for name in names:
            small, large = (counted(name, work, size, place) for size in sizes)
            told: dict[str, Any] = {"work": work, "sizes": sizes, "contestant": name}
            problem = small.get("error") or large.get("error")
            if problem:
                told["error"] = problem
            else:
                steps = large["operations"] - small["operations"]
                for what in ("flushes", "statements", "bytes"):
                    told[what] = (large[what] - small[what]) / steps
            print(f"counted  {work}  {name}: {told}", flush=True)
            rows.append(told)
    return rows


def counted(name: str, work: str, size: int, place: Place) -> dict[str, Any]:
    """One turn under strace, with SQLite's trace on."""
    scratch, traced = place.fresh(), place.folder / "strace"
    python = python_of(CONTESTANTS[name])
    strace = ["strace", "-f", "-c", "-e", "trace=fsync,fdatasync", "-o", str(traced)]
    command = [*strace, python, *command_of(name, work, size, str(scratch))]
    answer = answer_of(command, place, {COUNTING: "1"})
    if "error" not in answer:
        # share, seconds, microseconds per call, calls, perhaps errors, name
        table = [line.split() for line in traced.read_text().splitlines()]
        answer["flushes"] = sum(int(row[3]) for row in table if row and row[-1] in FLUSHES)
    return answer


def chosen(form: Form, only: str, works: str) -> list[Case]:
    """The plan, or the part of it that was asked for."""
    names = only.split(",") if only else list(CONTESTANTS)
    plan = []
    for case in PLANS[form]:
        taking_part = tuple(name for name in case.contestants if name in names)
        if taking_part and (not works or case.work in works.split(",")):
            part = Case(
                work=case.work, size=case.size, contestants=taking_part, prepared=case.prepared
            )
            plan.append(part)
    return plan


def conditions(stores: Path) -> dict[str, Any]:
    """When, what and where."""
    return {
        "began": time.time(),
        "on": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(),
        "machine": {**describe(stores), "load before": load()},
    }


def save(results: dict[str, Any], path: Path) -> None:
    """Write down what there is so far."""
    results["minutes"] = (time.time() - results["began"]) / 60
    results["machine"]["load after"] = load()
    path.write_text(json.dumps(results, indent=1) + "\n")


def main(words: list[str] | None = None) -> Path:
    """Run, and write everything down."""
    parser = argparse.ArgumentParser(prog="python -m bench.run")
    parser.add_argument("form", choices=list(PLANS))
    parser.add_argument("--only", default="", help="contestants, by comma")
    parser.add_argument("--work", default="", help="works, by comma")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--no-counts", action="store_true", help="only what is timed")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--stores", type=Path, default=PLACE, help="on the disk to be measured")
    asked = parser.parse_args(words)
    form: Form = asked.form
    place = Place(folder=asked.stores / f"{form}-{os.getpid()}", limit_seconds=LIMIT_SECONDS[form])
    place.folder.mkdir(parents=True)
    plan = chosen(form, asked.only, asked.work)
    rounds = asked.rounds or ROUNDS[form]
    asked.out.mkdir(parents=True, exist_ok=True)
    path: Path = asked.out / f"{form}.json"
    results: dict[str, Any] = {"form": form, "counts": [], **conditions(asked.stores)}
    try:
        names = sorted({name for case in plan for name in case.contestants} - {"waiting"})
        if form != "tiny" and not asked.no_counts:
            results["counts"] = count(names, place)
        # Again and again: whoever stops us keeps what was measured.
        for told in run_rounds(plan, rounds, place):
            results |= told
            save(results, path)
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)
    print(f"written to {path.name}", flush=True)
    return path


if __name__ == "__main__":
    main()
