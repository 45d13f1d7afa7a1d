"""Four processes post to runs whose drivers are killed: every letter is read once, none is lost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from outlive.errors import RunCancelled
from outlive.journal.reader import read_events
from outlive.model.events import Answered, Claimed, SignalReceived
from outlive.testing.audit.auditor import JOURNAL_RULES
from tests.harness.programs import end_program, start_python
from tests.mail.crowd import POSTERS, QUESTIONS, is_cancelled, listening, name_of, open_crowded

Figure = Callable[[str, object], None]

WORKERS = 3
PATIENCE_SECONDS = 600.0


def begin(*words: object) -> subprocess.Popen[str]:
    """One process of the crowd."""
    return start_python("-m", "tests.mail.crowd", *words)


class Workers:
    """Processes that drive, and are killed."""

    def __init__(self, url: str, rng: Random) -> None:
        self._url, self._rng = url, rng
        self._processes = [begin("work", url) for _ in range(WORKERS)]
        self.killed = 0

    def kill_one(self) -> None:
        """Kill one of them with SIGKILL, and start another."""
        place = self._rng.randrange(WORKERS)
        end_program(self._processes[place])
        self._processes[place] = begin("work", self._url)
        self.killed += 1

    def end(self) -> None:
        """Kill all of them."""
        for process in self._processes:
            end_program(process)


@contextmanager
def working(url: str, rng: Random) -> Iterator[Workers]:
    """Workers as long as this is open."""
    workers = Workers(url, rng)
    try:
        yield workers
    finally:
        workers.end()


def storm(url: str, runs: int, words: int, rng: Random) -> tuple[Counter[str], int]:
    """Let everybody post while workers die; what they were answered, and how many died."""
    with working(url, rng) as workers:
        posters = [
            begin("post", url, runs, words, number, rng.randrange(1 << 30))
            for number in range(POSTERS)
        ]
        began = time.monotonic()
        while any(poster.poll() is None for poster in posters):
            assert time.monotonic() - began < PATIENCE_SECONDS, "somebody is still waiting"
            workers.kill_one()
            time.sleep(rng.uniform(0.3, 0.9))
        told: Counter[str] = Counter()
        for poster in posters:
            out, _ = poster.communicate()
            assert 0 == poster.returncode
            told.update(json.loads(out))
        return told, workers.killed


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Where the crowd meets."""
    return f"sqlite:///{tmp_path / 'o.db'}"


@pytest.mark.alone("processes")
async def test_every_letter_is_read_once_and_no_run_sleeps_with_mail(
    url: str, full: bool, figure: Figure
) -> None:
    """Signals, answers and cancels from four processes, to runs being killed and evicted."""
    runs, words = (100, 100) if full else (40, 32)
    seed = time.time_ns() % 1_000_000
    figure("mail storm: seed", seed)
    async with open_crowded(url) as app:
        for run in range(runs):
            await app.submit(listening, words, id=name_of(run))
    told, killed = await asyncio.to_thread(storm, url, runs, words, Random(seed))
    async with open_crowded(url) as app:
        taken = 0
        for run in range(runs):
            handle = await app.get(name_of(run), listening)
            taken += check_run(await app.read(name_of(run)), words)
            if is_cancelled(run):
                with pytest.raises(RunCancelled):
                    await handle.outcome(timeout="10s")
                continue
            outcome = await handle.outcome(timeout="10s")
            assert sorted(outcome["heard"]) == sorted(f"word {word}" for word in range(words))
            assert ["11"] * QUESTIONS == outcome["answers"]
    letters = sum(told[kind] for kind in ("posted", "answered", "cancelled"))
    figure(
        "mail storm: letters posted, refused as duplicates, runs, workers killed",
        (
            letters,
            told["already"] + told["too late"] + told["ended"],
            runs,
            killed,
        ),
    )
    whole = runs - sum(is_cancelled(run) for run in range(runs))
    assert told["posted"] >= whole * words
    assert told["already"] > whole, "nobody said anything twice"
    assert told["answered"] >= whole * QUESTIONS
    assert taken > runs, "nobody was ever taken over"


def check_run(reading: object, words: int) -> int:
    """Each letter once, nothing left unread; how often the run was claimed."""
    events = read_events(reading)  # type: ignore[arg-type]
    signals = [event.signal_id for event in events if isinstance(event, SignalReceived)]
    assert len(signals) == len(set(signals)) <= words
    answers = [event.question for event in events if isinstance(event, Answered)]
    assert len(answers) == len(set(answers)) <= QUESTIONS
    assert not [broken for rule in JOURNAL_RULES for broken in rule(events)]
    return sum(isinstance(event, Claimed) for event in events)
