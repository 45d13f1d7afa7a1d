"""Which instants a cron expression names, above all where the clock changes."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from outlive.errors import DefinitionRefused
from outlive.model.cron import Cron, last_until, next_after, parse_cron
from tests.conftest import Figure

MINUTE = timedelta(minutes=1)

#: Zone, expression, local midnight from which on, and the instants (UTC) that follow.
CHANGES = {
    "Berlin, spring: 02:30 is left out, and happens at 03:30": (
        "Europe/Berlin", "30 2 * * *", "2026-03-28",
        ["03-28 01:30", "03-29 01:30", "03-30 00:30"],
    ),
    "Berlin, spring: four times are left out, and four happen": (
        "Europe/Berlin", "*/15 2 * * *", "2026-03-29",
        ["03-29 01:00", "03-29 01:15", "03-29 01:30", "03-29 01:45", "03-30 00:00"],
    ),
    "Berlin, spring: a time that is left out does not double the one that it falls on": (
        "Europe/Berlin", "0 2,3 * * *", "2026-03-29",
        ["03-29 01:00", "03-30 00:00", "03-30 01:00"],
    ),
    "Berlin, spring: every half hour goes on every half hour": (
        "Europe/Berlin", "*/30 * * * *", "2026-03-29",
        ["03-28 23:00", "03-28 23:30", "03-29 00:00", "03-29 00:30", "03-29 01:00", "03-29 01:30"],
    ),
    "Berlin, autumn: 02:30 comes twice, and happens once": (
        "Europe/Berlin", "30 2 * * *", "2026-10-24",
        ["10-24 00:30", "10-25 00:30", "10-26 01:30"],
    ),
    "Berlin, autumn: every half hour goes on every half hour": (
        "Europe/Berlin", "*/30 * * * *", "2026-10-25",
        ["10-24 22:00", "10-24 22:30", "10-24 23:00", "10-24 23:30", "10-25 00:00", "10-25 00:30",
         "10-25 01:00", "10-25 01:30", "10-25 02:00"],
    ),
    "New York, spring: 02:30 is left out": (
        "America/New_York", "30 2 * * *", "2026-03-07",
        ["03-07 07:30", "03-08 07:30", "03-09 06:30"],
    ),
    "New York, autumn: 01:30 comes twice": (
        "America/New_York", "30 1 * * *", "2026-10-31",
        ["10-31 05:30", "11-01 05:30", "11-02 06:30"],
    ),
    "Lord Howe, spring: half an hour is left out": (
        "Australia/Lord_Howe", "15 2 * * *", "2026-10-03",
        ["10-02 15:45", "10-03 15:45", "10-04 15:15"],
    ),
    "Lord Howe, autumn: half an hour comes twice": (
        "Australia/Lord_Howe", "45 1 * * *", "2026-04-04",
        ["04-03 14:45", "04-04 14:45", "04-05 15:15"],
    ),
    "Lord Howe, autumn: every quarter of an hour goes on": (
        "Australia/Lord_Howe", "*/15 * * * *", "2026-04-05",
        ["04-04 13:00", "04-04 13:15", "04-04 13:30", "04-04 13:45", "04-04 14:00", "04-04 14:15",
         "04-04 14:30", "04-04 14:45", "04-04 15:00", "04-04 15:15", "04-04 15:30", "04-04 15:45"],
    ),
    "UTC: nothing changes": (
        "UTC", "30 2 * * *", "2026-03-28", ["03-28 02:30", "03-29 02:30", "03-30 02:30"],
    ),
    "Samoa: a whole day is left out": (
        "Pacific/Apia", "0 12 * * *", "2011-12-29", ["12-29 22:00", "12-30 22:00", "12-31 22:00"],
    ),
}  # fmt: skip


def ms(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)


def following(cron: str, zone: str, begin: str, count: int) -> list[datetime]:
    expression, place = parse_cron(cron), ZoneInfo(zone)
    found = [ms(datetime.fromisoformat(begin).replace(tzinfo=place)) - 1]
    for _ in range(count):
        found.append(next_after(expression, place, found[-1]))
    return [datetime.fromtimestamp(each / 1000, UTC) for each in found[1:]]


@pytest.mark.parametrize("change", CHANGES)
def test_each_time_happens_once_where_the_clock_changes(change: str) -> None:
    """What is left out happens later, what comes twice happens once, and nothing doubles."""
    zone, cron, begin, wanted = CHANGES[change]

    found = following(cron, zone, begin, len(wanted))

    assert wanted == [each.strftime("%m-%d %H:%M") for each in found]


@pytest.mark.parametrize(
    ("cron", "wanted"),
    [
        ("0 0 13 * FRI", ["02-06", "02-13", "02-20", "02-27", "03-06", "03-13"]),
        ("0 0 13 * *", ["02-13", "03-13", "04-13"]),
        ("0 0 * * 7", ["02-01", "02-08", "02-15"]),
        ("0 0 * * sun", ["02-01", "02-08", "02-15"]),
        ("0 0 */10 * 1", ["05-11", "06-01"]),
        ("0 0 1-7 feb-MAR Mon", ["02-01", "02-02", "02-03"]),
        ("0 0 29 2 *", ["02-29"]),
        ("@monthly", ["02-01", "03-01"]),
        ("@weekly", ["02-01", "02-08"]),
        ("@yearly", ["01-01"]),
        ("@DAILY", ["02-01", "02-02"]),
    ],
)
def test_days_of_the_month_and_of_the_week(cron: str, wanted: list[str]) -> None:
    """Where both are named either will do; a star, also with a step, names nothing."""
    found = following(cron, "UTC", "2026-02-01", len(wanted))

    assert wanted == [each.strftime("%m-%d") for each in found]


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("60 * * * *", ["minute '60'", "0 to 59"]),
        ("* 24 * * *", ["hour '24'", "0 to 23"]),
        ("* * 0 * *", ["day of month '0'", "1 to 31"]),
        ("* * * FOO *", ["month 'FOO'", "JAN to DEC"]),
        ("* * * * 8", ["day of week '8'", "SUN to SAT"]),
        ("*/0 * * * *", ["minute", "step '0'"]),
        ("5/15 * * * *", ["minute", "write 5-59/15"]),
        ("* 20-4 * * *", ["hour '20-4'", "backwards"]),
        ("* * L * *", ["day of month 'L'"]),
        ("* * * * 5#3", ["day of week '5#3'"]),
        ("* * ? * *", ["day of month '?'"]),
        ("1,,2 * * * *", ["minute ''"]),
        ("٣ * * * *", ["minute '٣'"]),
        ("* * * *", ["five fields"]),
        ("", ["five fields"]),
        ("@reboot", ["@daily"]),
        ("0 0 30 2 *", ["never"]),
        ("0 0 31 4,6 *", ["never"]),
    ],
)
def test_a_bad_expression_is_refused_by_the_name_of_its_field(cron: str, words: list[str]) -> None:
    """Whoever wrote it is told which of the five fields is meant, and what may stand there."""
    with pytest.raises(DefinitionRefused) as refused:
        parse_cron(cron)

    assert [] == [word for word in [repr(cron), *words] if word not in str(refused.value)]


def test_a_day_that_comes_every_forty_years_is_found() -> None:
    """A Sunday the 29th of February, also where a year that could have had it has none."""
    cron, utc = parse_cron("0 0 29 2 */7"), ZoneInfo("UTC")
    ours, far = (
        round(datetime(year, 11, 16, tzinfo=UTC).timestamp()) * 1000 for year in (2026, 2089)
    )

    found = [look(cron, utc, at) for at in (ours, far) for look in (last_until, next_after)]

    dates = [datetime.fromtimestamp(each / 1000, UTC).date().isoformat() for each in found]
    assert ["2004-02-29", "2032-02-29", "2088-02-29", "2128-02-29"] == dates


# ---------------------------------------------------------------- an oracle that knows no shortcut

ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "America/Sao_Paulo",
    "Africa/Casablanca", "Asia/Kathmandu", "Pacific/Apia", "America/St_Johns", "Asia/Beirut",
)  # fmt: skip
BEGIN_YEAR, END_YEAR = 2008, 2030
WINDOW_DAYS = 4
PAIRS_MAX = 50


class Wall:
    """A clock on the wall of a zone, read once a minute for some days."""

    def __init__(self, zone: ZoneInfo, middle: datetime) -> None:
        self.begin = middle.replace(second=0, microsecond=0) - timedelta(days=WINDOW_DAYS)
        self.shown: dict[datetime, list[datetime]] = defaultdict(list)
        self.order: list[tuple[datetime, datetime]] = []
        for number in range(2 * WINDOW_DAYS * 24 * 60):
            instant = self.begin + number * MINUTE
            wall = instant.astimezone(zone).replace(tzinfo=None, fold=0)
            self.shown[wall].append(instant)
            self.order.append((wall, instant))

    def instants(self, cron: Cron) -> set[datetime]:
        """Every minute that the expression names, as the rules say."""
        found: set[datetime] = set()
        first, last = self.order[0][0], self.order[-1][0]
        wall = first
        while wall <= last:
            if self._names(cron, wall):
                at = self.shown.get(wall)
                found.update([self._late(wall)] if not at else at if cron.every_hour else at[:1])
            wall += MINUTE
        return found

    def _late(self, wall: datetime) -> datetime:
        """A minute that is left out: as long after the last one before it as it would be."""
        before = max(shown for shown in self.shown if shown < wall)
        return self.shown[before][-1] + (wall - before)

    @staticmethod
    def _names(cron: Cron, wall: datetime) -> bool:
        is_time = wall.minute in cron.minutes and wall.hour in cron.hours
        return is_time and cron.names_day(wall.date())


def some_cron(dice: random.Random) -> str:
    minute = dice.choice(["*", "*/15", "0", "30", "7,37", "15-45/10", str(dice.randrange(60))])
    hour = dice.choice(["*", "*/2", "1-3", "0", "2", "23", "0,2", str(dice.randrange(24))])
    day = dice.choice(["*", "*", "*/2", "1-15", str(dice.randint(1, 28))])
    weekday = dice.choice(["*", "*", "MON-FRI", "SUN", "6,0"])
    return f"{minute} {hour} {day} * {weekday}"


def change_near(zone: ZoneInfo, dice: random.Random) -> datetime:
    """An instant, close to a change of the clock where there is one that year."""
    year = dice.randint(BEGIN_YEAR, END_YEAR)
    days = [datetime(year, 1, 1, 12, tzinfo=UTC) + timedelta(days=n) for n in range(365)]
    offsets = [each.astimezone(zone).utcoffset() for each in days]
    changed = [day for day, one, two in zip(days, offsets, offsets[1:], strict=False) if one != two]
    middle = dice.choice(changed or days)
    return middle + timedelta(minutes=dice.randint(-1440, 1440))


def test_against_a_clock_that_is_read_every_minute(
    figure: Figure, full: bool, chance: random.Random
) -> None:
    """The next and the last instant are those that somebody would see who never looks away."""
    cases = 1000 if full else 30
    checked = 0
    for _ in range(cases):
        name, text = chance.choice(ZONES), some_cron(chance)
        zone, cron = ZoneInfo(name), parse_cron(text)
        middle = change_near(zone, chance)
        wanted = sorted(Wall(zone, middle).instants(cron))
        inner = [each for each in wanted if abs(each - middle) < timedelta(days=WINDOW_DAYS - 2)]
        pairs = list(pairwise(inner))
        for before, after in chance.sample(pairs, min(PAIRS_MAX, len(pairs))):
            where = (name, text, before, after)
            assert ms(after) == next_after(cron, zone, ms(before)), where
            assert ms(after) == next_after(cron, zone, ms(after) - 1), where
            assert ms(before) == last_until(cron, zone, ms(before)), where
            assert ms(before) == last_until(cron, zone, ms(after) - 1), where
            checked += 1
    figure("cron: instants near changes of the clock that agree with the oracle", checked)
    assert checked > cases
