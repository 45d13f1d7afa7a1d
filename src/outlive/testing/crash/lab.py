"""The crash lab: kill an agent at every point, let it continue, and audit the result.

A *scene* is an async function that gets a ``Stage`` (an app on a real store, and a ledger as the
outside world), starts a run in it or continues it, and returns when the run is over. A *trial*
plays it in a process of its own that is killed with SIGKILL at a point, again at another point if
requested, then once more undisturbed, and passes everything to the auditor.

    with Lab(Play(target="my_agent:scene", policies={"refund": "once"}), folder) as lab:
        survey = lab.survey()
        report = lab.crash_at(survey.call_points())
        assert not report.violations
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from outlive.errors import OutliveError
from outlive.journal.codec.restore import read_whole
from outlive.journal.headers import header_of
from outlive.journal.lane import run_immediate
from outlive.journal.reader import read_events
from outlive.model.defaults import LEASE_SECONDS
from outlive.model.events import Event
from outlive.model.run import fold
from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.stores.types import Found, Query
from outlive.testing.audit.auditor import Policy, Receipt, audit, audit_growth
from outlive.testing.crash.child import ACKNOWLEDGED, DIARY, LEDGER, LOG, TRACE, open_trial_store
from outlive.testing.crash.points import (
    NETWORK_CLASS,
    WRITE_CLASS,
    ChildExit,
    Diary,
    Order,
    Point,
    Survey,
    as_it_is,
    describe,
    is_there,
    remove,
    url_of,
)
from outlive.testing.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that an audit reads."""

    journals: Mapping[str, Sequence[Event]]
    receipts: Sequence[Receipt]
    acknowledged: Mapping[str, int]
    #: Journals that could not be read, in words.
    damage: Sequence[str] = ()
    #: Heads and headers of all runs.
    found: Sequence[Found] = ()


def collect(folder: Path, url: str) -> Evidence:
    """Read what is in a folder and a store that no process uses any more."""
    journals: dict[str, Sequence[Event]] = {}
    damage: list[str] = []
    store = open_trial_store(url, Ports(), LEASE_SECONDS)
    try:
        found = list(_find(store))
        for each in found:
            damage += _read(store, each.head.run_id, journals)
    finally:
        run_immediate(store.close())
    return Evidence(
        journals=journals,
        receipts=Ledger(folder / LEDGER).receipts(),
        acknowledged=_acknowledged(folder / ACKNOWLEDGED),
        damage=damage,
        found=found,
    )


def snapshot(folder: Path, url: str) -> Mapping[str, Sequence[Event]]:
    """The journals as they are now."""
    with as_it_is(folder, url) as there:
        return collect(folder, there).journals


def _find(store: Store) -> Iterator[Found]:
    for prefix in (None, "key/"):
        after = None
        while True:
            page = run_immediate(store.find(Query(prefix=prefix), after, 1000))
            yield from page.items
            after = page.next
            if after is None:
                break


def _read(store: Store, run_id: str, journals: dict[str, Sequence[Event]]) -> Iterator[str]:
    reading = run_immediate(read_whole(store, run_id))
    if reading is None:
        yield f"run {run_id} is found and can't be read"
        return
    try:
        events = journals[run_id] = read_events(reading)
    except OutliveError as error:
        yield str(error)
        return
    made = header_of(fold(events), reading.header.chapter_link)
    if made != reading.header:
        yield f"run {run_id}: its header is {reading.header}, its journal says {made}"


def _acknowledged(path: Path) -> Mapping[str, int]:
    found: dict[str, int] = {}
    text = path.read_bytes() if path.exists() else b""
    for line in text.split(b"\n")[:-1]:
        run_id, seq = msgspec.json.decode(line, type=tuple[str, int])
        found[run_id] = max(seq, found.get(run_id, 0))
    return found


KILLED = -9
LOG_CHARS_MAX = 3000

Check = Callable[[Evidence], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """The scene that is played and killed, and the checks that must hold afterwards."""

    #: "module:function" of the scene.
    target: str
    policies: Mapping[str, Policy]
    #: A run with fewer events made no progress.
    events_min: int = 1
    #: Further checks beside the auditor's.
    checks: tuple[Check, ...] = ()
    #: Folders that are searched for modules, beside the usual ones.
    search_path: tuple[str, ...] = ()
    #: A ``postgresql://`` URL: each trial gets a schema of its own there. None: a file each.
    server: str | None = None
    lease_seconds: float = 1.0
    poll_seconds: float = 0.05
    #: 0: every wait leaves memory.
    idle_seconds: float = 0.0
    limit_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One play, with its kills."""

    points: tuple[Point, ...]
    #: The number of points that were reached.
    hits: int
    violations: Sequence[str]
    evidence: Evidence | None


@dataclass(slots=True, kw_only=True)
class CrashReport:
    """The results of many trials."""

    seconds: float = 0.0
    trials: list[Trial] = field(default_factory=list)

    @property
    def hits(self) -> int:
        """Trials in which the process died at each of its points."""
        return sum(trial.hits == len(trial.points) for trial in self.trials)

    @property
    def violations(self) -> list[str]:
        """Every broken promise, and where the process was killed."""
        return [
            f"killed {' and '.join(map(describe, trial.points))}: {words}"
            for trial in self.trials
            for words in trial.violations
        ]

    @property
    def duplicates(self) -> int:
        """Effects that happened more than once, over all trials."""
        return sum(
            count - 1
            for trial in self.trials
            if trial.evidence is not None
            for count in Counter(each.key for each in trial.evidence.receipts).values()
        )


class Lab:
    """Plays one scene repeatedly. A context manager: it has a process to end."""

    def __init__(self, play: Play, folder: Path, *, parallel: int = 6) -> None:
        self._play, self._folder = play, folder
        self._numbers = itertools.count(1)
        self._parallel = parallel
        self._nursery = _NurseryProcess(play)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._nursery.close()

    # verbs

    def survey(self, after: Sequence[Point] = (), *, trace: bool = False) -> Survey:
        """Count the points of an undisturbed pass, or of the recovery from these kills."""
        folder = self._new_folder()
        for point in after:
            self._pass(folder, point)
        status = self._pass(folder, None, trace=trace)
        if status != 0:
            raise RuntimeError(_log_of(folder))
        diary = msgspec.json.decode((folder / DIARY).read_bytes(), type=Diary)
        syscalls = _count_syscalls(folder / TRACE, diary.threads) if trace else {}
        remove(folder, self._url(folder))
        return Survey(calls=Counter(diary.calls), moments=len(diary.moments), syscalls=syscalls)

    def crash_at(self, points: Iterable[Point]) -> CrashReport:
        """Run one trial for each of these points."""
        return self.crash([(point,) for point in points])

    def crash(self, deaths: Iterable[Sequence[Point]]) -> CrashReport:
        """Run one trial for each of these sequences of kills."""
        report = CrashReport()
        begun_at = time.monotonic()
        with ThreadPoolExecutor(self._parallel) as pool:
            report.trials.extend(pool.map(self._trial, map(tuple, deaths)))
        report.seconds = time.monotonic() - begun_at
        return report

    # one trial

    def _trial(self, points: tuple[Point, ...]) -> Trial:
        folder = self._new_folder()
        url = self._url(folder)
        violations: list[str] = []
        before: list[Mapping[str, Sequence[Event]]] = []
        hits = 0
        for point in points:
            status = self._pass(folder, point)
            if status != KILLED:
                violations += _complaints(folder, status)
                break
            hits += 1
            if is_there(url):
                before.append(snapshot(folder, url))
        violations += _complaints(folder, self._pass(folder, None))
        evidence = collect(folder, url)
        violations += self._audit(evidence, before)
        if not violations:
            remove(folder, url)
        return Trial(points=points, hits=hits, violations=violations, evidence=evidence)

    def _audit(
        self, evidence: Evidence, before: Sequence[Mapping[str, Sequence[Event]]]
    ) -> Iterable[str]:
        play = self._play
        yield from evidence.damage
        yield from audit(
            evidence.journals,
            evidence.receipts,
            policies=play.policies,
            acknowledged=evidence.acknowledged,
            events_min=play.events_min,
        )
        for journals in before:
            for run_id, events in journals.items():
                yield from audit_growth(events, evidence.journals.get(run_id, ()))
        for check in play.checks:
            yield from check(evidence)

    def _pass(self, folder: Path, point: Point | None, *, trace: bool = False) -> int:
        """Play the scene once in this folder; return the end of the process."""
        play = self._play
        order = Order(
            number=next(self._numbers),
            folder=str(folder),
            store=self._url(folder),
            point=point,
            trace=self._traced if trace else (),
            lease_seconds=play.lease_seconds,
            poll_seconds=play.poll_seconds,
            idle_seconds=play.idle_seconds,
            limit_seconds=play.limit_seconds,
        )
        return self._nursery.send(order).result(play.limit_seconds * 2)

    @property
    def _traced(self) -> tuple[str, ...]:
        return WRITE_CLASS if self._play.server is None else NETWORK_CLASS

    def _url(self, folder: Path) -> str:
        return url_of(folder, self._play.server)

    def _new_folder(self) -> Path:
        folder = self._folder / f"trial-{next(self._numbers)}"
        folder.mkdir(parents=True)
        return folder


class _NurseryProcess:
    """The process that forks the children, seen from the lab."""

    def __init__(self, play: Play) -> None:
        path = os.pathsep.join([*play.search_path, *(each for each in sys.path if each)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "outlive.testing.crash.nursery", play.target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._waiting: dict[int, Future[int]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def send(self, order: Order) -> Future[int]:
        """Fork a child; the result is its end."""
        ended: Future[int] = Future()
        with self._lock:
            self._waiting[order.number] = ended
            pipe = _open(self._process.stdin)
            pipe.write(msgspec.json.encode(order) + b"\n")
            pipe.flush()
        return ended

    def _read(self) -> None:
        for line in _open(self._process.stdout):
            ended = msgspec.json.decode(line, type=ChildExit)
            self._waiting.pop(ended.number).set_result(ended.status)
        for waiting in list(self._waiting.values()):
            waiting.set_exception(RuntimeError("the nursery died"))

    def close(self) -> None:
        """Fork no further child; wait for the process to end."""
        _open(self._process.stdin).close()
        self._process.wait()
        self._reader.join()
        _open(self._process.stdout).close()


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "the nursery was started with pipes"
    return pipe


def _complaints(folder: Path, status: int) -> list[str]:
    """Check that a pass that was not killed succeeded."""
    return [] if status == 0 else [f"a pass ended with {status}: {_log_of(folder)} ({folder})"]


def _log_of(folder: Path) -> str:
    path = folder / LOG
    return path.read_text()[-LOG_CHARS_MAX:] if path.exists() else "it left no log"


def _count_syscalls(trace: Path, threads: Mapping[int, str]) -> dict[tuple[str, str], int]:
    """Count the calls of each thread, from a trace of lines like ``17 write(3, ...``."""
    found: Counter[tuple[str, str]] = Counter()
    for line in trace.read_text(errors="replace").splitlines():
        tid, _, call = line.partition(" ")
        name = call.strip().partition("(")[0]
        if name.isidentifier() and tid.isdigit() and int(tid) in threads:
            found[threads[int(tid)], name] += 1
    return dict(found)
