"""A year of a schedule in a moment: kills at any store call, late wake-ups, clocks that jump."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from outlive.app.app import App
from outlive.model.events import ChildIntended, RunCompleted
from outlive.model.schedules import render_instant
from tests.conftest import Figure
from tests.schedules.clockwork import Clockwork, tick

pytestmark = pytest.mark.timeout(3600)

ZONE = "Europe/Berlin"
#: Around each change of the clock; with full counts half a year each.
SEASONS = {
    "spring": ((date(2026, 3, 26), 7), (date(2026, 1, 11), 173)),
    "autumn": ((date(2026, 10, 22), 7), (date(2026, 7, 3), 182)),
}
KILLED, JUMPING = 0.5, 0.3
CALLS_MAX = 60
JUMP_HOURS_MAX = 3
LATE_SECONDS_MAX = 250


def instants(begin: date, days: int) -> list[datetime]:
    """02:30 of each day, by the rules of Python for times that are left out or come twice."""
    zone = ZoneInfo(ZONE)
    found = []
    for number in range(days):
        day = begin + timedelta(number)
        wall = datetime(day.year, day.month, day.day, 2, 30, tzinfo=zone, fold=0)
        found.append(wall.astimezone(UTC))
    return found


class Nature:
    """Kills processes and moves clocks."""

    def __init__(self, clockwork: Clockwork, dice: random.Random) -> None:
        self.kills = self.jumps = 0
        self._clockwork, self.dice = clockwork, dice

    def doom(self, app: App) -> None:
        """This process dies at one of its next store calls."""
        door, left = self._clockwork.doors[app], [self.dice.randint(1, CALLS_MAX)]

        def count(verb: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                self.kills += 1
                door.slam()

        door.on_call = count

    async def live_until(self, instant: float) -> None:
        """Let time go by; whoever dies is replaced."""
        clockwork = self._clockwork
        await clockwork.jump(instant)
        while any(clockwork.doors[app].error for app in clockwork.working):
            await self.replace_dead()
            await clockwork.settle()

    async def replace_dead(self) -> None:
        clockwork = self._clockwork
        for app in [app for app in clockwork.working if clockwork.doors[app].error]:
            await clockwork.crash(app)
            fresh = await clockwork.hire()
            if self.dice.random() < KILLED:
                self.doom(fresh)

    def strike(self, *, before: float) -> None:
        """Some workers are doomed; the wall clock goes wrong by hours, but not past an instant."""
        for app in self._clockwork.working:
            if self.dice.random() < KILLED:
                self.doom(app)
        hours = self.dice.uniform(-JUMP_HOURS_MAX, JUMP_HOURS_MAX)
        wrong = self._clockwork.clock.now_ms() + hours * 3_600_000
        if self.dice.random() < JUMPING and wrong < before:
            self._clockwork.set_wall(wrong)
            self.jumps += 1

    def counts(self, fired: int) -> tuple[int, int, int]:
        return fired, self.kills, self.jumps


@pytest.mark.parametrize("season", SEASONS)
async def test_each_instant_is_fired_once(
    clockwork: Clockwork, season: str, figure: Figure, full: bool, chance: random.Random
) -> None:
    """02:30 in Berlin, also in the nights when it is left out or comes twice."""
    nature, some = Nature(clockwork, chance), instants(*SEASONS[season][full])

    await live_through(clockwork, nature, some)

    wanted = [f"s@{render_instant(round(ms(each)))}" for each in some]
    assert wanted == await clockwork.fired()
    intended = Counter(e.child_id for e in await clockwork.events("schedule/s", ChildIntended))
    assert Counter(wanted) == intended
    for run_id in wanted:
        assert 1 == len(await clockwork.events(run_id, RunCompleted))
    figure(f"schedules, {season}: instants, kills, jumps", nature.counts(len(wanted)))
    assert nature.kills >= 2


async def live_through(clockwork: Clockwork, nature: Nature, some: list[datetime]) -> None:
    """From the day before on; each instant is awaited by workers who may die of it."""
    await clockwork.jump(ms(some[0]) - 12 * 3_600_000)
    reader = clockwork.open()
    await reader.schedule("s", tick, cron="30 2 * * *", tz=ZONE, missed="once")
    for _ in range(2):
        await clockwork.hire()
    await clockwork.settle()
    for instant in some:
        nature.strike(before=ms(instant))
        await nature.live_until(ms(instant) + nature.dice.randint(0, LATE_SECONDS_MAX) * 1000)


def ms(instant: datetime) -> float:
    return instant.timestamp() * 1000
