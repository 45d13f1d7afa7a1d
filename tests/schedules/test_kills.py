"""Killed at the moment of firing, on every store: each instant once, none lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from outlive.app.app import App
from outlive.model.events import Claimed, Event
from outlive.model.schedules import SCHEDULE_PREFIX
from outlive.testing.audit.auditor import audit
from outlive.testing.crash.lab import Lab, Play
from tests.conftest import Figure
from tests.processes.stage import Stage
from tests.schedules import toll
from tests.schedules.laws import check_schedule, takeovers_while_firing
from tests.schedules.ringers import work

pytestmark = [pytest.mark.alone("sweep"), pytest.mark.timeout(3600)]

ROOT = str(Path(__file__).parents[2])
POINTS, PARALLEL = 24, 8
WORKERS = 3
SECONDS, SECONDS_FULL = 10.0, 120.0
#: On a slow machine it goes on until so many instants were fired, but no longer than this.
FIRED_MIN, SECONDS_MAX = 4, 240.0
#: Commits of a schedule or of what it fired until a worker is killed.
COMMITS_MAX = 12


def test_killed_at_every_store_call_of_a_firing(
    trials: Path, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Killed before and after any call of the store, it fires each instant once."""
    play = Play(
        target="tests.schedules.toll:scene",
        policies=toll.POLICIES,
        events_min=3,
        checks=(toll.check,),
        search_path=(ROOT,),
    )
    with Lab(play, trials, parallel=PARALLEL) as lab:
        points = list(lab.survey().call_points())
        report = lab.crash_at(points if full else chance.sample(points, POINTS))

    figure("schedules: crash points, store calls", f"{report.hits} hit of {len(report.trials)}")
    figure("schedules: crash points, seconds", round(report.seconds))
    assert not report.violations, "\n".join(report.violations[:5])
    assert report.hits > len(report.trials) // 3


@pytest.fixture(params=["sqlite", "postgresql"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Processes that share a file, or a schema of a server."""
    made = Stage(tmp_path)
    if request.param == "postgresql":
        made.move_to(request.getfixturevalue("url"))
    yield made
    made.close()


class Crew:
    """Workers that die at a commit of the schedule's, and those who replace them."""

    def __init__(self, stage: Stage, dice: random.Random) -> None:
        self.kills = 0
        self._stage, self._dice = stage, dice
        self._workers: list[BaseProcess] = [self._hire() for _ in range(WORKERS)]

    def _hire(self, *, lives: bool = False) -> BaseProcess:
        doom = 0 if lives else self._dice.randint(1, COMMITS_MAX)
        return self._stage.spawn(work, doom, self._dice.choice(["before", "after"]))

    def replace(self) -> None:
        """Whoever died is replaced."""
        for place, worker in enumerate(self._workers):
            if not worker.is_alive():
                worker.join()
                self.kills += worker.exitcode == -9
                self._workers[place] = self._hire()

    def relieve(self) -> None:
        """One who lives on comes, too."""
        self._workers.append(self._hire(lives=True))


def drivers_of(events: Sequence[Event]) -> set[str]:
    """The workers that claimed it."""
    return {event.worker for event in events if isinstance(event, Claimed)}


async def has_rung(app: App, stage: Stage, began: float) -> bool:
    """Often enough, and by more than one worker; or it can't be waited for any longer."""
    rung = await app.find(flow=toll.toll.name, status="completed", limit=FIRED_MIN)
    events = await asyncio.to_thread(stage.events, SCHEDULE_PREFIX + toll.NAME)
    is_enough = len(rung.items) >= FIRED_MIN and len(drivers_of(events)) > 1
    return is_enough or time.monotonic() > began + SECONDS_MAX


def test_workers_that_die_at_the_moment_of_firing(
    stage: Stage, figure: Figure, full: bool, chance: random.Random
) -> None:
    """Several race for each instant and are killed at it; the plan is changed meanwhile."""
    book = str(stage.folder / "bell.ledger")

    async def main() -> int:
        async with stage.open_app() as app:
            await toll.define(app, book, 0)
            crew = Crew(stage, chance)
            began = time.monotonic()
            end_at = began + (SECONDS_FULL if full else SECONDS)
            while time.monotonic() < end_at or not await has_rung(app, stage, began):
                crew.replace()
                late = time.monotonic() > end_at - SECONDS / 2
                await toll.define(app, book, 2 if late else 0)
                await asyncio.sleep(0.1)
                for each in (await app.find(status="quarantined")).items:
                    await app.nudge(each.head.run_id, "it is the weather")
            await app.unschedule(toll.NAME)
            crew.relieve()
            while await toll.is_busy(app):
                await asyncio.sleep(0.1)
            return crew.kills

    kills = asyncio.run(main())

    journals = {run_id: stage.events(run_id) for run_id in stage.run_ids()}
    events = journals[SCHEDULE_PREFIX + toll.NAME]
    assert [] == check_schedule(toll.NAME, journals)
    assert [] == audit(journals, stage.receipts(), policies=toll.POLICIES, events_min=3)
    runs = [run_id for run_id in journals if run_id.startswith(f"{toll.NAME}@")]
    assert sorted(runs) == sorted(receipt.run_id for receipt in stage.receipts())
    store = "postgresql" if "postgres" in stage.url else "sqlite"
    figure(f"schedules, {store}: instants fired, workers killed", (len(runs), kills))
    figure(
        f"schedules, {store}: firings that another worker finished", takeovers_while_firing(events)
    )
    assert len(drivers_of(events)) > 1
    assert len(runs) >= 2
