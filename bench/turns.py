"""A contestant's turn: a process of its own in a folder of its own, and the JSON that it prints.

A turn that takes too long is ended with everything that it started, and told as such. A store to
go on from is made once, by a process that must die in it as by kill -9, and is copied for each
turn, so that everybody finds it in the page cache. On PostgreSQL a database takes the folder's
place.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cases import Case
from bench.contest import COUNTING, SETTLING_SECONDS
from bench.databases import Database, Databases
from bench.environments import ROOT, python_of
from bench.plan import CONTESTANTS
from bench.round_trips import RoundTrips

COMPILE_ALWAYS = "PYTHONDONTWRITEBYTECODE"
FLUSHES = ("fsync", "fdatasync")
#: A problem is told in a cell of a table.
PROBLEM_LETTERS_MAX = 300
#: Where else to read about it, at the end of what some libraries say.
LINK = re.compile(r" *\([^()]*https?://[^()]*\)")

Answer = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where stores are made, and how long anything may take."""

    folder: Path
    limit_seconds: int
    #: For those who run on PostgreSQL.
    databases: Databases | None = None

    def fresh(self) -> Path:
        """An empty folder for one contestant's turn."""
        scratch = self.folder / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        return scratch


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a process ended."""

    code: int
    out: str
    err: str

    def problem(self) -> str:
        """Its last words."""
        told = LINK.sub("", self.err).strip().splitlines()
        last = told[-1] if told else f"exit code {self.code}"
        return last.replace(str(ROOT), ".")[:PROBLEM_LETTERS_MAX]


def command_of(name: str, work: str, size: int, folder: str) -> list[str]:
    """What is run: without the interpreter, so that it can be printed."""
    contestant = CONTESTANTS[name]
    words = ["-m", f"bench.contestants.{contestant.module}", work, str(size), folder]
    return words + [contestant.kind] * bool(contestant.kind)


def settings() -> dict[str, str]:
    """The environment as it is, with Python's compiled modules kept: nobody is to measure that."""
    return {name: value for name, value in os.environ.items() if name != COMPILE_ALWAYS}


def run(command: list[str], limit_seconds: int, more: dict[str, str]) -> Ended | None:
    """Let it run to its end, or end it with all that it started: then there is no answer."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**settings(), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit_seconds)
    except BaseException as stopped:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(stopped, subprocess.TimeoutExpired):
            return None
        raise
    return Ended(code=process.returncode, out=out, err=err)


def answer_of(command: list[str], place: Place, more: dict[str, str]) -> Answer:
    """What the last line of a program's output says, or why there is none."""
    began = time.perf_counter()
    try:
        ended = run(command, place.limit_seconds, more)
    except FileNotFoundError as error:
        return {"error": f"{Path(error.filename).name} is not installed"}
    if ended is None:
        return {"error": f"not done within {place.limit_seconds} s"}
    if ended.code or not ended.out.strip():
        return {"error": ended.problem()}
    answer: Answer = json.loads(ended.out.splitlines()[-1])
    return {**answer, "turn_seconds": time.perf_counter() - began}


def databases_of(name: str, place: Place) -> Databases | None:
    """The server that this contestant runs on, if it runs on one that we started."""
    if CONTESTANTS[name].store != "postgres":
        return None
    assert place.databases is not None
    return place.databases


def prepare(name: str, case: Case, place: Place) -> tuple[Path, str]:
    """The store that a case goes on from, and what went wrong in making it.

    On PostgreSQL it is the database of the folder's name.
    """
    folder = place.folder / "prepared" / f"{name}-{case.prepared}-{case.size}"
    problem = folder.with_suffix(".problem")
    if not folder.exists():
        folder.mkdir(parents=True)
        problem.write_text(prepare_in(name, case, place, folder))
    return folder, problem.read_text()


def prepare_in(name: str, case: Case, place: Place, folder: Path) -> str:
    """Make it; its maker is killed in it, and nothing else will do."""
    words = command_of(name, case.prepared, case.size, str(folder))
    databases = databases_of(name, place)
    more = databases.make(folder.name).environment() if databases else {}
    ended = run([python_of(CONTESTANTS[name]), *words], place.limit_seconds, more)
    if ended is None:
        return f"{case.prepared}: not done within {place.limit_seconds} s"
    time.sleep(SETTLING_SECONDS)  # a server that it had is ending, too
    return "" if ended.code == -signal.SIGKILL else f"{case.prepared}: {ended.problem()}"


def wait_for_lease(name: str, folder: Path) -> None:
    """Until the run is no longer its dead driver's."""
    died_at = folder.with_suffix(".problem").stat().st_mtime
    lease = CONTESTANTS[name].lease_seconds
    if lease:
        time.sleep(max(0.0, died_at + lease + 1 - time.time()))


def sample(name: str, case: Case, place: Place) -> Answer:
    """One turn in a store of its own."""
    scratch, folder = place.fresh(), None
    if case.prepared:
        folder, problem = prepare(name, case, place)
        if problem:
            return {"error": problem}
        wait_for_lease(name, folder)
    words = command_of(name, case.work, case.size, str(scratch))
    command = [python_of(CONTESTANTS[name]), *words]
    databases = databases_of(name, place)
    if databases is not None:
        with databases.fresh(template=folder.name if folder else "") as database:
            return answer_on(databases, database, command, place)
    if folder is not None:
        shutil.copytree(folder, scratch, dirs_exist_ok=True)
    os.sync()
    return answer_of(command, place, {})


def answer_on(databases: Databases, database: Database, command: list[str], place: Place) -> Answer:
    """One turn on a database; what it weighs then is told by the server."""
    answer = answer_of(command, place, database.environment())
    if "error" not in answer:
        answer["bytes"] = databases.grown_bytes(database)
    return answer


def counted(name: str, work: str, size: int, place: Place) -> Answer:
    """One turn that is looked at from outside, and not timed."""
    databases = databases_of(name, place)
    command = [python_of(CONTESTANTS[name]), *command_of(name, work, size, str(place.fresh()))]
    if databases is not None:
        return counted_on(databases, command, place)
    return counted_by_strace(command, place)


def counted_by_strace(command: list[str], place: Place) -> Answer:
    """Flushes by strace, with SQLite's trace on."""
    traced = place.folder / "strace"
    # With a filter in the kernel, nothing but a flush stops the process.
    strace = ["strace", "-f", "--seccomp-bpf", "-c", "-e", "trace=fsync,fdatasync"]
    answer = answer_of([*strace, "-o", str(traced), *command], place, {COUNTING: "1"})
    if "error" not in answer:
        answer["flushes"] = flushes_in(traced.read_text())
    return answer


def counted_on(databases: Databases, command: list[str], place: Place) -> Answer:
    """Round trips on the wire; transactions and flushes by the server's own statistics."""
    with (
        RoundTrips(databases.port) as wire,
        databases.fresh(port=wire.port) as database,
    ):
        before = databases.statistics(database)
        answer = answer_on(databases, database, command, place)
        databases.wait_until_alone(database.name)
        after = databases.statistics(database)
        if "error" not in answer:
            answer |= {what: after[what] - before[what] for what in before}
            answer["round_trips"] = wire.count
        return answer


def flushes_in(table: str) -> int:
    """From what strace counted: share, seconds, microseconds per call, calls, errors?, name."""
    rows = [line.split() for line in table.splitlines()]
    return sum(int(row[3]) for row in rows if row and row[-1] in FLUSHES)
