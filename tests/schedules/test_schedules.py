"""What a schedule does: each instant once, in its zone, by the plan that held then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outlive.engine.schedules import SCHEDULE
from outlive.errors import (
    DefinitionRefused,
    RunIdTaken,
    ScheduleNotFound,
    UsageError,
)
from outlive.model.queues import Queue, Rate
from outlive.model.schedules import Plan
from tests.schedules.clockwork import Clockwork, failing, long, tick, tock

#: Arguments of a schedule's run, as they were recorded once.
PLAN_OF_BEFORE = (
    b"\x81\xa4plan\xc7w \x93\xa4Plan\xc4\x042\x15\x82\xa9\x8c\xa4flow\xa1f\xa7version\xa11\xa4args"
    b"\xc4\x01x\xa4cron\xc0\xa8every_ms\xc0\xa2tz\xa3UTC\xa6missed\xa4skip\xa7overlap"
    b"\xa5allow\xa5queue\xc0\xabdeadline_ms\xc0\xa4tags\x80\xa4pins\x80"
)


async def test_it_starts_a_run_at_each_instant(clockwork: Clockwork) -> None:
    """Each is named by its instant, knows it, and is tagged with the schedule."""
    app = await clockwork.hire()

    told = await app.schedule("s", tick, "hi", cron="0 3 * * *", tz="Europe/Berlin")
    await clockwork.jump("2026-01-10 02:00")
    await clockwork.jump("2026-01-11 02:00:07")

    assert datetime(2026, 1, 10, 2, tzinfo=UTC) == told.next_at
    ids = ["s@2026-01-10T02:00:00Z", "s@2026-01-11T02:00:00Z"]
    assert ids == await clockwork.fired()
    assert ["hi 01-10 02:00:00", "hi 01-11 02:00:00"] == await clockwork.outcomes()
    (there,) = await app.schedules()
    assert datetime(2026, 1, 12, 2, tzinfo=UTC) == there.next_at
    assert [(each, "completed") for each in ids] == [(run.id, run.status) for run in there.recent]


async def test_its_runs_are_nobodys_children(clockwork: Clockwork) -> None:
    """A schedule lives on, its runs come and go: each is a family of its own."""
    app = await clockwork.hire()
    await app.schedule("s", tick, every="1h")

    await clockwork.jump("2026-01-10 01:00")

    (run_id,) = await clockwork.fired()
    reading = await clockwork.read(run_id)
    assert reading is not None
    assert (run_id, None) == (reading.header.family, reading.header.parent)


async def test_intervals_are_counted_from_the_definition(clockwork: Clockwork) -> None:
    """The first comes one interval later; another plan with the same interval moves none."""
    app = await clockwork.hire()
    await clockwork.jump("2026-01-10 00:07")
    await app.schedule("s", tick, every="15m")
    await clockwork.jump("2026-01-10 00:23")
    await app.schedule("s", tick, "again", every="15m")
    await clockwork.jump("2026-01-10 00:37")
    await app.schedule("s", tick, "slower", every="1h")
    await clockwork.jump("2026-01-10 01:37")

    assert [
        "tick 01-10 00:22:00",
        "again 01-10 00:37:00",
        "slower 01-10 01:37:00",
    ] == await clockwork.outcomes()


async def test_the_same_call_changes_nothing(clockwork: Clockwork) -> None:
    """Each deploy may say it again: nothing is posted, nothing is fired anew."""
    app = await clockwork.hire()
    for hour in ("01:00", "01:30", "02:00", "02:30"):
        await app.schedule("s", tick, "hi", cron="0 * * * *")
        await clockwork.jump(f"2026-01-10 {hour}")

    assert ["hi 01-10 01:00:00", "hi 01-10 02:00:00"] == await clockwork.outcomes()
    reading = await clockwork.read("schedule/s")
    assert reading is not None
    assert 0 == reading.head.posted


async def test_another_definition_holds_from_then_on(clockwork: Clockwork) -> None:
    """Instants before go by the old plan, those behind by the new one; none twice, none lost."""
    app, other = await clockwork.hire(), await clockwork.hire()
    await app.schedule("s", tick, "old", cron="0 * * * *")
    await clockwork.jump("2026-01-10 01:00")
    await clockwork.jump("2026-01-10 01:59:59")
    await other.schedule("s", tock, "new", cron="*/30 * * * *")
    await clockwork.settle()
    for minute in ("02:00", "02:30", "03:00"):
        await clockwork.jump(f"2026-01-10 {minute}")

    assert [
        "old 01-10 01:00:00",
        "new 01-10 02:00:00",
        "new 01-10 02:30:00",
        "new 01-10 03:00:00",
    ] == await clockwork.outcomes()


async def test_a_wish_counts_from_when_it_was_uttered(clockwork: Clockwork) -> None:
    """What was changed while no worker was there holds from then on, not from when it is heard."""
    app = clockwork.open()
    await app.schedule("s", tick, "old", cron="0 * * * *", missed="once")
    await clockwork.jump("2026-01-10 01:30")
    await app.schedule("s", tick, "new", cron="0 4 * * *", missed="once")
    clockwork.pass_time(3600)

    assert datetime(2026, 1, 10, 4, tzinfo=UTC) == (await app.schedules())[0].next_at
    await clockwork.hire(app)
    await clockwork.jump("2026-01-10 04:00:30")

    assert ["old 01-10 01:00:00", "new 01-10 04:00:00"] == await clockwork.outcomes()


@pytest.mark.parametrize("missed", ["skip", "once"])
async def test_instants_at_which_nobody_was_there(clockwork: Clockwork, missed: Any) -> None:
    """They are left out, or caught up with once, by the last of them."""
    app = await clockwork.hire()
    await app.schedule("s", tick, cron="0 * * * *", missed=missed)
    await clockwork.jump("2026-01-10 01:00")
    await clockwork.crash(app)
    clockwork.pass_time(3.5 * 3600)
    await clockwork.hire()
    await clockwork.settle()
    await clockwork.jump("2026-01-10 05:00")

    late = ["s@2026-01-10T04:00:00Z"] if missed == "once" else []
    wanted = ["s@2026-01-10T01:00:00Z", *late, "s@2026-01-10T05:00:00Z"]
    assert wanted == await clockwork.fired()


async def test_a_little_late_is_not_missed(clockwork: Clockwork) -> None:
    """A takeover or a restart takes some moments: the instant is fired all the same."""
    app = await clockwork.hire()
    await app.schedule("s", tick, cron="0 * * * *")
    await clockwork.settle()
    await clockwork.crash(app)
    await clockwork.jump("2026-01-10 01:04:30")
    await clockwork.hire()
    await clockwork.settle()

    assert ["tick 01-10 01:00:00"] == await clockwork.outcomes()


async def test_pause_and_resume(clockwork: Clockwork) -> None:
    """What would have come meanwhile is left out, whatever is done with missed instants."""
    app = await clockwork.hire()
    await app.schedule("s", tick, cron="0 * * * *", missed="once")
    await clockwork.jump("2026-01-10 01:00")
    paused = await app.pause_schedule("s")
    await clockwork.jump("2026-01-10 03:30")
    assert (True, None) == (paused.paused, paused.next_at)
    assert paused.paused == (await app.schedules())[0].paused
    await app.schedule("s", tick, "still", cron="0 * * * *", missed="once")
    await clockwork.jump("2026-01-10 04:30")
    resumed = await app.resume_schedule("s")
    await clockwork.jump("2026-01-10 05:00")

    assert datetime(2026, 1, 10, 5, tzinfo=UTC) == resumed.next_at
    assert ["tick 01-10 01:00:00", "still 01-10 05:00:00"] == await clockwork.outcomes()


async def test_it_can_be_removed_and_defined_anew(clockwork: Clockwork) -> None:
    """A removed schedule fires nothing and is not listed; its name can be used again."""
    app = await clockwork.hire()
    await app.schedule("s", tick, every="1h")
    await clockwork.jump("2026-01-10 01:00")

    assert await app.unschedule("s")
    assert not await app.unschedule("s")
    await clockwork.jump("2026-01-10 02:30")
    assert [] == await app.schedules()
    with pytest.raises(ScheduleNotFound):
        await app.pause_schedule("s")
    await app.schedule("s", tick, every="1h")
    await clockwork.jump("2026-01-10 03:30")

    assert ["tick 01-10 01:00:00", "tick 01-10 03:30:00"] == await clockwork.outcomes()


async def test_it_can_be_fired_by_hand(clockwork: Clockwork) -> None:
    """Beside its instants, even while it is paused; the run is for the instant of asking."""
    app = await clockwork.hire()
    await app.schedule("s", tick, "hi", cron="0 3 * * *")
    await app.pause_schedule("s")
    await clockwork.jump("2026-01-10 00:12:34")

    handle = await app.fire_schedule("s")
    await clockwork.settle()

    assert handle.id.startswith("s@2026-01-10T00:12:34")
    assert ["hi 01-10 00:12:34"] == await clockwork.outcomes()


async def test_a_run_that_fails_stops_nothing(clockwork: Clockwork) -> None:
    """The next instant is fired, whatever became of the last."""
    app = await clockwork.hire()
    await app.schedule("s", failing, every="1h")
    for hour in ("01:00", "02:00", "03:00"):
        await clockwork.jump(f"2026-01-10 {hour}")

    (there,) = await app.schedules()
    assert ["failed"] * 3 == [run.status for run in there.recent]


@pytest.mark.parametrize("overlap", ["allow", "skip"])
async def test_while_the_last_run_goes_on(clockwork: Clockwork, overlap: Any) -> None:
    """Another one is started beside it, or the instant is left out."""
    app = await clockwork.hire()
    await app.schedule("s", long, every="1h", overlap=overlap)
    await clockwork.jump("2026-01-10 01:00")
    await clockwork.jump("2026-01-10 02:00")
    fired = await clockwork.fired()
    await clockwork.signal(fired[0], "end", "now")
    await clockwork.settle()
    await clockwork.jump("2026-01-10 03:00")

    assert (2 if overlap == "allow" else 1) == len(fired)
    assert (3 if overlap == "allow" else 2) == len(await clockwork.fired())


async def test_by_name_it_needs_no_code_here(clockwork: Clockwork) -> None:
    """Whoever has a worker fires it; whoever has the flow drives what was fired."""
    app = clockwork.open()
    await app.schedule("s", "tick", "hi", every="1h", tags={"team": "blue"}, queue="default")
    elsewhere = await clockwork.hire(flows=[tock])
    await clockwork.jump("2026-01-10 01:00")
    (run_id,) = await clockwork.fired()
    reading = await clockwork.read(run_id)
    assert reading is not None
    assert "pending" == reading.header.status
    assert "blue" == reading.header.tags["team"]
    await clockwork.fire(elsewhere)
    await clockwork.hire(flows=[tick])
    await clockwork.settle()

    assert ["hi 01-10 01:00:00"] == await clockwork.outcomes()


async def test_a_worker_of_other_queues_fires_it(clockwork: Clockwork) -> None:
    """Whatever queues it is kept to; what was fired is driven where its queue is."""
    app = await clockwork.hire(flows=[tick], queues=frozenset({"models"}))
    await app.schedule("s", tick, "here", every="1h", queue="models")
    await app.schedule("t", tock, every="1h")
    await clockwork.jump("2026-01-10 01:00")

    assert ["here 01-10 01:00:00"] == await clockwork.outcomes()
    assert ["t@2026-01-10T01:00:00Z"] == await clockwork.fired("t")


async def test_its_runs_have_the_flows_own_options(clockwork: Clockwork) -> None:
    """Deadline, queue and pins as if somebody had submitted each of them."""
    app = await clockwork.hire()
    await app.schedule("s", long.options(deadline="30m", pins={"model": "m1"}), every="1h")
    await clockwork.jump("2026-01-10 01:00")
    await clockwork.jump("2026-01-10 01:31")

    (there,) = await app.schedules()
    assert ["failed"] == [run.status for run in there.recent]
    (started, *_) = await clockwork.events(there.recent[0].id)
    assert {"model": "m1"} == started.pins


@pytest.mark.parametrize("is_said", [True, False], ids=["said", "preset"])
async def test_its_runs_have_their_place_in_a_queue(clockwork: Clockwork, is_said: bool) -> None:
    """Key, priority and units, by the call or by the flow; fired by hand as by the clock."""
    app = await clockwork.hire(flows=[])
    place: dict[str, Any] = {"queue": "q", "queue_key": "k", "priority": -3, "units": 7}
    flow, said = (tick, place) if is_said else (tick.options(**place), {})
    await app.schedule("s", flow, every="1h", **said)
    await clockwork.jump("2026-01-10 01:00")
    await clockwork.jump("2026-01-10 01:30")
    await app.fire_schedule("s")

    for run_id in await clockwork.fired():
        reading = await clockwork.read(run_id)
        assert reading is not None
        shown = reading.header
        assert ("q", "k", -3, 7) == (shown.queue, shown.queue_key, shown.priority, shown.units)
    assert 2 == len(await clockwork.fired())


def test_a_plan_of_before_is_read() -> None:
    """Recorded when runs of schedules had no place in their queue, it names none."""
    plan = SCHEDULE.args_codec.decode(PLAN_OF_BEFORE)["plan"]

    assert Plan(flow="f", version="1", args=b"x") == plan


async def test_a_signal_of_somebody_elses_does_no_harm(clockwork: Clockwork) -> None:
    """What is no wish is passed over."""
    app = await clockwork.hire()
    await app.schedule("s", tick, every="1h")
    await clockwork.signal("schedule/s", "wish", {"what": "ever"})
    await clockwork.signal("schedule/s", "another", 1)
    await clockwork.jump("2026-01-10 01:00")

    assert ["tick 01-10 01:00:00"] == await clockwork.outcomes()


async def test_a_taken_id_stops_nothing(clockwork: Clockwork) -> None:
    """Somebody else's run has the id of an instant: that one is not fired, the next one is."""
    app = await clockwork.hire()
    await app.schedule("s", tick, every="1h")
    await app.submit(tock, id="s@2026-01-10T01:00:00Z")
    await clockwork.jump("2026-01-10 01:00")
    await clockwork.jump("2026-01-10 02:00")

    assert ["tick 01-10 02:00:00"] == await clockwork.outcomes()


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "either cron="),
        ({"cron": "* * * * *", "every": "1h"}, "either cron="),
        ({"cron": "* * * *"}, "five fields"),
        ({"cron": 5}, "cron 5: it is a text"),
        ({"cron": "* * * * *", "tz": "Mars/Olympus"}, "Mars/Olympus"),
        ({"cron": "* * * * *", "tz": "/etc/passwd"}, "is not a time zone"),
        ({"every": "0.5s"}, "less than a second"),
        ({"every": "soon"}, "is not a duration"),
        ({"every": "1h", "tz": "Europe/Berlin"}, "the same in any"),
        ({"every": "1h", "missed": "all"}, '"skip" or "once"'),
        ({"every": "1h", "overlap": "never"}, '"allow" or "skip"'),
        ({"every": "1h", "queue": ""}, "queue"),
        ({"every": "1h", "queue": "q", "units": 0}, "units=0"),
        ({"every": "1h", "units": 2}, "add queue="),
        ({"every": "1h", "tags": {"a": 1}}, "tags"),
        ({"every": "1h", "no_such": 1}, "no_such"),
    ],
)
async def test_bad_definitions_are_refused(
    clockwork: Clockwork, options: dict[str, Any], words: str
) -> None:
    """At the call, with the word that is wrong; nothing is written."""
    app = clockwork.open()

    with pytest.raises((UsageError, TypeError), match=words.replace("(", r"\(")):
        await app.schedule("s", tick, **options)
    assert [] == await app.schedules()


async def test_what_can_be_no_schedule(clockwork: Clockwork) -> None:
    """Names that can't be, flows that are none, deadlines that are not a durations."""
    app = clockwork.open()
    soon = datetime.now(UTC) + timedelta(days=1)

    with pytest.raises(DefinitionRefused, match="can't be a name"):
        await app.schedule("a/b", tick, every="1h")
    with pytest.raises(DefinitionRefused, match=r"495 bytes; .* at most 487"):
        await app.schedule("日" * 165, tick, every="1h")
    with pytest.raises(UsageError, match="is not a flow"):
        await app.schedule("s", print, every="1h")  # type: ignore[arg-type]
    await app.set_queue(Queue("q", rate=Rate(10)))
    with pytest.raises(UsageError, match="units=11 is more than queue 'q'"):
        await app.schedule("s", tick, every="1h", queue="q", units=11)
    with pytest.raises(UsageError, match="leave the id out"):
        await app.schedule("s", tick.options(id="mine"), every="1h")
    with pytest.raises(UsageError, match="deadline at one instant"):
        await app.schedule("s", tick.options(deadline=soon), every="1h")
    for verb in (app.pause_schedule, app.resume_schedule, app.fire_schedule):
        with pytest.raises(ScheduleNotFound, match="no schedule 's'"):
            await verb("s")


async def test_a_run_that_is_no_schedule_keeps_its_id(clockwork: Clockwork) -> None:
    """Nor does a schedule whose run somebody cancelled begin again in silence."""
    app = await clockwork.hire()
    await app.submit(tick, id="schedule/mine")
    await app.schedule("s", tick, every="1h")
    await clockwork.cancel("schedule/s")
    await clockwork.settle()

    with pytest.raises(RunIdTaken, match="no schedule"):
        await app.schedule("mine", tick, every="1h")
    with pytest.raises(RunIdTaken, match="cancelled"):
        await app.schedule("s", tick, every="1h")
    assert [] == await app.schedules()
