"""A run that kills whoever drives it is put aside; its neighbours do not suffer for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import pytest

from tests.conftest import Figure
from tests.harness.processes import until
from tests.processes import cast, players
from tests.processes.stage import Stage

pytestmark = pytest.mark.alone("processes")

HEALTHY = 20


class Nurse:
    """Starts a worker again whenever it died, as an init system does."""

    def __init__(self, stage: Stage, workers: int) -> None:
        self.deaths = 0
        self._stage = stage
        self._workers = [self._hire() for _ in range(workers)]

    def _hire(self) -> BaseProcess:
        return self._stage.spawn(players.work, ["poison", "busy"])

    def watch(self, condition: Callable[[], bool], what: str) -> None:
        """Keep them working until it is so."""
        until(lambda: self._look_after() or condition(), what)

    def _look_after(self) -> bool:
        for place, worker in enumerate(self._workers):
            if not worker.is_alive():
                self.deaths += 1
                self._workers[place] = self._hire()
        return False


def submit_all(stage: Stage) -> list[str]:
    async def main() -> list[str]:
        async with stage.open_app() as app:
            handles = [await app.submit(cast.busy, 5, id=f"h{n}") for n in range(HEALTHY // 2)]
            await app.submit(cast.poison, id="poison")
            for number in range(HEALTHY // 2, HEALTHY):
                handles.append(await app.submit(cast.busy, 5, id=f"h{number}"))
            return [handle.id for handle in handles]

    return asyncio.run(main())


def nudge(stage: Stage) -> None:
    async def main() -> None:
        async with stage.open_app() as app:
            await app.nudge("poison", "resumed by hand")

    asyncio.run(main())


@pytest.mark.parametrize("workers", [1, 2])
def test_poison_is_put_aside_alone(stage: Stage, figure: Figure, workers: int) -> None:
    """Five claims, and it is quarantined; every other run ends as if nothing had been."""
    healthy = submit_all(stage)
    nurse = Nurse(stage, workers)

    nurse.watch(lambda: "quarantined" == stage.status("poison"), "the quarantine")
    nurse.watch(lambda: all(is_over(stage, run_id) for run_id in healthy), "the healthy runs")

    assert ["completed"] * HEALTHY == [stage.status(run_id) for run_id in healthy]
    assert 6 == len(stage.claims("poison"))
    assert 5 == nurse.deaths
    assert [] == stage.audit()
    figure(f"poison: workers killed, {workers} at a time", nurse.deaths)


def is_over(stage: Stage, run_id: str) -> bool:
    return stage.status(run_id) in ("completed", "failed", "quarantined")


def test_poison_gets_new_chances_by_hand(stage: Stage) -> None:
    """Five more with a nudge; and when it is cured, `outlive resume` ends it."""
    submit_all(stage)
    nurse = Nurse(stage, 1)
    nurse.watch(lambda: "quarantined" == stage.status("poison"), "the quarantine")

    nudge(stage)
    nurse.watch(lambda: 12 == len(stage.claims("poison")), "the second quarantine")
    nurse.watch(lambda: "quarantined" == stage.status("poison"), "the second quarantine")
    assert 10 == nurse.deaths

    (stage.folder / "cure").touch()
    resumed = stage.command("resume", "poison", "tests.processes.cast")
    nurse.watch(lambda: "completed" == stage.status("poison"), "the cure")
    printed, said = resumed.communicate(timeout=30)
    assert (0, "cured") == (resumed.returncode, printed.strip()), said
    assert 10 == nurse.deaths
