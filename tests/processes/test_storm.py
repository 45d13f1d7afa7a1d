"""Workers are killed faster than they can get anything done, and everything gets done."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from multiprocessing.process import BaseProcess

import pytest

from outlive.app.app import App
from outlive.errors import StepNotInDoubt
from outlive.model.events import Claimed, EffectDone, EffectDoubted, RunQuarantined, recorded_key
from outlive.model.run import fold
from tests.conftest import Figure
from tests.harness.processes import pid_of, until
from tests.processes import cast, players
from tests.processes.cast import EFFECTS
from tests.processes.stage import Stage

pytestmark = pytest.mark.alone("processes")

WORKERS = 3
RUNS = 60
KILLS, KILLS_FULL = 20, 100
#: Of all strikes.
PAUSES = 0.25


def submit(stage: Stage) -> dict[str, str]:
    """Runs of each kind of effect, by id."""
    kinds = {f"s{n}": list(EFFECTS)[n % len(EFFECTS)] for n in range(RUNS)}

    async def main() -> None:
        async with stage.open_app() as app:
            for run_id, kind in kinds.items():
                await app.submit(cast.stormy, kind, id=run_id)

    asyncio.run(main())
    return kinds


def answer_doubts(stage: Stage) -> int:
    """A human with the receiver's book at hand settles what only a human can.

    A run that was hit five times in a row is quarantined, as if the fault were its own; the human
    knows better.
    """

    async def main() -> int:
        async with stage.open_app() as app:
            for each in (await app.find(status="quarantined", limit=1000)).items:
                if each.head.posted == each.head.consumed:
                    await app.nudge(each.head.run_id, "it is the weather")
            page = await app.find(status="in_doubt", limit=1000)
            return sum([await answer(stage, app, each.head.run_id) for each in page.items])

    return asyncio.run(main())


async def answer(stage: Stage, app: App, run_id: str) -> int:
    answered = 0
    for step, effect in fold(stage.events(run_id)).effects.items():
        key = recorded_key(run_id, effect.intent)
        receipt = stage.ledger(run_id).find(key)
        verdict = "not_happened" if receipt is None else "happened"
        try:
            await app.resolve(run_id, step, verdict, f'"{key}"'.encode())
            answered += 1
        except StepNotInDoubt:
            pass  # answered already and not yet read, or it is too early to tell
    return answered


class Storm:
    """Workers that are killed, or paused for longer than their lease, one after the other."""

    def __init__(self, stage: Stage, dice: random.Random, kills: int) -> None:
        self.kills = self.pauses = self.answers = 0
        self._stage, self._dice, self._kills_wanted = stage, dice, kills
        self._workers = [self._hire() for _ in range(WORKERS)]
        self._waking: list[threading.Timer] = []

    def _hire(self) -> BaseProcess:
        return self._stage.spawn(players.work, ["stormy"])

    def is_over(self) -> bool:
        """One strike more; a human answers what he is asked meanwhile."""
        self.answer()
        time.sleep(self._dice.uniform(0.1, 0.5))
        self._strike(self._dice.randrange(WORKERS))
        return self.kills >= self._kills_wanted

    def answer(self) -> int:
        self.answers += answer_doubts(self._stage)
        return self.answers

    def _strike(self, place: int) -> None:
        worker = self._workers[place]
        if self._dice.random() < PAUSES:
            self._pause(worker)
            return
        os.kill(pid_of(worker), signal.SIGKILL)
        worker.join()
        self._workers[place] = self._hire()
        self.kills += 1

    def _pause(self, worker: BaseProcess) -> None:
        """It wakes by a timer: it may hold the file's lock, and then we would wait for it."""
        os.kill(pid_of(worker), signal.SIGSTOP)
        seconds = self._dice.uniform(1.1, 1.8)
        waking = threading.Timer(seconds, wake, [worker])
        waking.start()
        self._waking.append(waking)
        self.pauses += 1

    def end(self) -> None:
        for waking in self._waking:
            waking.join()


def wake(worker: BaseProcess) -> None:
    if worker.is_alive():
        os.kill(pid_of(worker), signal.SIGCONT)


def test_a_storm_of_kills_loses_and_repeats_nothing(
    stage: Stage, figure: Figure, full: bool
) -> None:
    """All runs end; nothing that was acknowledged is lost, no effect happens twice."""
    seed = random.randrange(1 << 32)
    figure("storm: seed", seed)
    kinds = submit(stage)
    storm = Storm(stage, random.Random(seed), KILLS_FULL if full else KILLS)

    began = time.monotonic()
    until(storm.is_over, "the storm to end", seconds=600)
    storm.end()
    (stage.folder / "go").touch()
    until(lambda: storm.answer() >= 0 and all_completed(stage, kinds), "all runs to end")

    seconds = time.monotonic() - began
    assert [] == stage.audit(events_min=9)
    events = [event for run_id in kinds for event in stage.events(run_id)]
    done = sum(isinstance(event, EffectDone) for event in events)
    assert done == len(stage.receipts()) >= len(kinds)
    figure("storm: kills, pauses", (storm.kills, storm.pauses))
    figure("storm: runs, effects", (RUNS, done))
    figure("storm: claims", sum(isinstance(event, Claimed) for event in events))
    doubts = sum(isinstance(event, EffectDoubted) for event in events)
    figure("storm: doubts, of which a human settled", (doubts, storm.answers))
    hit = sum(isinstance(event, RunQuarantined) for event in events)
    figure("storm: runs that were hit five times in a row and resumed by hand", hit)
    figure("storm: seconds", round(seconds, 1))


def all_completed(stage: Stage, kinds: dict[str, str]) -> bool:
    return all("completed" == stage.status(run_id) for run_id in kinds)
