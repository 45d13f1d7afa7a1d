"""What retention owes everybody, on every store: one set of rules, one class per store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive import Retention
from outlive.app.app import App
from outlive.errors import KeyTaken, RunFailed, RunIdTaken, RunNotFound, UsageError
from outlive.journal.reader import read_events
from outlive.model.events import CancelRequested, RunCancelled
from outlive.model.ids import is_run
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.seam import Store
from outlive.stores.types import Deletion, Query
from tests.harness.clocks import ShiftedClock
from tests.harness.processes import eventually
from tests.retention.flows import (
    FLOWS,
    bad_shop,
    chapters,
    double,
    failing_parent,
    fails,
    other,
    parent,
    shop,
    till,
    twin_shop,
    waits,
)
from tests.retention.orphan_rules import OrphanRules
from tests.retention.portions import PortionRules

SETTINGS = Settings(lease_seconds=30.0, poll_seconds=0.02, idle_seconds=0.0, retain_seconds=0.2)
ALL = Retention(completed="10d", failed="10d", cancelled="10d", id_window="30d")


async def journals(app: App, prefix: str = "") -> list[str]:
    """The ids of all journals that there are."""
    page = await app.store.find(Query(prefix=prefix), None, 1000)
    return [found.head.run_id for found in page.items]


async def runs_of(app: App) -> list[str]:
    return sorted(each for each in await journals(app) if is_run(each))


class RetentionRules(PortionRules, OrphanRules):
    """Rules of deletion."""

    #: What the store is sealed with, if it is.
    key = ""

    @pytest.fixture
    def calendar(self) -> ShiftedClock:
        return ShiftedClock()

    @pytest.fixture
    def ports(self, calendar: ShiftedClock) -> Ports:
        return Ports(clock=calendar)

    @pytest.fixture
    def store(self, ports: Ports) -> Store:
        raise NotImplementedError

    @pytest.fixture
    async def app(self, store: Store, ports: Ports) -> AsyncIterator[App]:
        till.paid.clear()
        async with App(store, ports=ports, settings=SETTINGS) as app:
            yield app

    async def test_without_rules_nothing_goes(self, app: App, calendar: ShiftedClock) -> None:
        """However old; and asking for it without rules is refused, with the remedy."""
        await (await app.start(double, 1, id="old"))
        calendar.pass_days(10_000)

        with pytest.raises(UsageError, match="OUTLIVE_RETENTION"):
            await app.retain()
        swept = await app.retain(Retention())

        assert (["old"], {}) == (await runs_of(app), dict(swept.fates))

    async def test_status_flow_and_age_decide(self, app: App, calendar: ShiftedClock) -> None:
        """Each rule takes what it names when it is old enough, and nothing else."""
        for flow, run_id in ((double, "double"), (other, "other")):
            await (await app.start(flow, 1, id=run_id))
        with pytest.raises(RunFailed):
            await (await app.start(fails, id="failed"))
        rules = Retention(completed="5d", flows={"kept_other": Retention(completed="20d")})
        seen = []
        for days in (4.9, 0.2, 14, 1000):
            calendar.pass_days(days)
            await app.retain(rules)
            seen.append(await runs_of(app))

        everything = ["double", "failed", "other"]
        assert [everything, everything[1:], everything[1:], ["failed"]] == seen

    async def test_the_last_of_a_flow_are_kept(self, app: App, calendar: ShiftedClock) -> None:
        """So many of those that ended last, of each flow by itself, however old."""
        for number in range(5):
            await (await app.start(double, number, id=f"double-{number}"))
            await (await app.start(other, number, id=f"other-{number}"))
            calendar.pass_days(1)
        rules = Retention(completed=0, keep_last=2, flows={"kept_other": Retention(completed=0)})

        swept = await app.retain(rules)

        assert ["double-3", "double-4"] == await runs_of(app)
        assert {"deleted": 8, "kept: among the last of its flow": 2} == dict(swept.fates)

    async def test_what_is_under_way_never_goes(self, app: App, calendar: ShiftedClock) -> None:
        """However silent and old it is, whatever the rules say."""
        waiting = await app.start(waits, id="waiting")
        await app.submit("nobody_has_it", id="pending")
        calendar.pass_days(10_000)

        await app.retain(Retention(completed=0, failed=0, cancelled=0))
        await waiting.signal("go", "on")

        assert "on" == await waiting.outcome("20s")
        assert ["pending", "waiting"] == await runs_of(app)

    async def test_a_child_stays_as_long_as_its_parent_lives(
        self, app: App, calendar: ShiftedClock
    ) -> None:
        """The parent may ask for it again; when it has ended, both may go."""
        handle = await app.start(parent, "child", id="parent")
        await eventually(lambda: self._is_over(app, "child"), "the child's end")
        calendar.pass_days(11)

        kept = await app.retain(ALL)
        await handle.signal("go", "on")
        assert 8 == await handle.outcome("20s")
        calendar.pass_days(11)
        gone = await app.retain(ALL)

        assert {"kept: its parent lives, or may be tried again": 1} == dict(kept.fates)
        assert {"deleted": 2} == dict(gone.fates)

    async def _is_over(self, app: App, run_id: str) -> bool:
        try:
            return (await app.read(run_id, 1 << 62)).header.ended_at is not None
        except RunNotFound:
            return False

    async def test_a_child_stays_for_a_parent_that_may_be_tried_again(
        self, app: App, calendar: ShiftedClock
    ) -> None:
        """A failed parent that is kept longer keeps its children."""
        with pytest.raises(RunFailed):
            await (await app.start(failing_parent, "child", id="parent"))
        calendar.pass_days(11)

        await app.retain(Retention(completed="10d", failed="20d"))
        kept = await runs_of(app)
        calendar.pass_days(11)
        await app.retain(Retention(completed="10d", failed="20d"))
        await app.retain(Retention(completed="10d", failed="20d"))

        assert (["child", "parent"], []) == (kept, await runs_of(app))

    async def test_an_id_stays_taken_for_its_window(self, app: App, calendar: ShiftedClock) -> None:
        """And is free afterwards."""
        await (await app.start(double, 1, id="again"))
        calendar.pass_days(11)
        await app.retain(ALL)

        with pytest.raises(RunIdTaken, match="deleted not long ago"):
            await app.start(double, 1, id="again")
        with pytest.raises(RunNotFound):
            await app.get("again")
        calendar.pass_days(29)
        with pytest.raises(RunIdTaken):
            await app.start(double, 1, id="again")
        calendar.pass_days(2)

        assert 2 == await (await app.start(double, 1, id="again"))

    async def test_a_key_outlives_its_run_by_its_window(
        self, app: App, calendar: ShiftedClock
    ) -> None:
        """Who asks for it gets the outcome of the run that is gone; later the key is free."""
        first = await (await app.start(shop, "7", id="first"))
        calendar.pass_days(11)
        await app.retain(ALL)

        second = await (await app.start(shop, "7", id="second"))
        with pytest.raises(RunFailed) as taken:
            await (await app.start(shop, "7", 6, id="third"))
        calendar.pass_days(29)
        await app.retain(ALL)
        within = await journals(app, "key/")
        calendar.pass_days(2)
        await app.retain(ALL)

        assert (first, ["7"]) == (second, till.paid)
        assert KeyTaken.__name__ == taken.value.type_name
        assert (["key/pay:7"], []) == (within, await journals(app, "key/"))
        assert first != await (await app.start(shop, "7", id="fourth"))

    async def test_a_key_whose_effect_did_not_happen_says_so(
        self, app: App, calendar: ShiftedClock
    ) -> None:
        """The run that is gone told why, and that is what the next one is told."""
        with pytest.raises(RunFailed):
            await (await app.start(bad_shop, "7", id="first"))
        calendar.pass_days(11)
        await app.retain(ALL)

        with pytest.raises(RunFailed, match="7 is closed"):
            await (await app.start(bad_shop, "7", id="second"))

    async def test_a_key_that_several_steps_asked_for_is_kept(
        self, app: App, calendar: ShiftedClock
    ) -> None:
        """Whichever of them held it."""
        first = await (await app.start(twin_shop, "7", id="first"))
        calendar.pass_days(11)
        await app.retain(ALL)

        assert first == await (await app.start(twin_shop, "7", id="second"))
        assert ["7"] == till.paid

    async def test_every_chapters_keys_are_kept(self, app: App, calendar: ShiftedClock) -> None:
        """Also those of chapters that were over long before the run was."""
        await (await app.start(chapters, 2, id="long"))
        calendar.pass_days(11)
        await app.retain(ALL)

        await (await app.start(shop, "chapter-2", 1, id="asks"))

        assert ["chapter-2", "chapter-1", "chapter-0"] == till.paid

    async def test_a_silent_run_ends_by_an_event_before_it_goes(
        self, app: App, calendar: ShiftedClock
    ) -> None:
        """Its ttl cancels it; only what ended is deleted, and in its own time."""
        handle = await app.start(waits, id="silent")
        rules = Retention(cancelled="10d", ttl="5d")
        await eventually(lambda: self._is_parked(app, "silent"), "a run that waits")
        calendar.pass_days(4)
        early = await app.retain(rules)
        calendar.pass_days(2)
        late = await app.retain(rules)
        with pytest.raises(outlive.errors.RunCancelled):
            await handle.outcome("20s")
        events = read_events(await app.read("silent"))
        await app.retain(rules)
        there = await runs_of(app)
        calendar.pass_days(11)
        await app.retain(rules)

        assert ({}, {"cancelled: it wrote nothing for its ttl": 1}) == (
            dict(early.fates),
            dict(late.fates),
        )
        assert [CancelRequested, RunCancelled] == [
            type(e) for e in events if isinstance(e, (CancelRequested, RunCancelled))
        ]
        assert (["silent"], []) == (there, await runs_of(app))

    async def _is_parked(self, app: App, run_id: str) -> bool:
        return (await app.read(run_id, 1 << 62)).head.worker is None

    async def test_a_dry_run_changes_nothing(self, app: App, calendar: ShiftedClock) -> None:
        """It lists what would become of each."""
        await (await app.start(double, 1, id="old"))
        await app.start(waits, id="silent")
        await eventually(lambda: self._is_parked(app, "silent"), "a run that waits")
        calendar.pass_days(11)
        before = await journals(app)

        swept = await app.retain(Retention(completed="10d", ttl="5d"), dry_run=True)

        assert before == await journals(app)
        assert [("old", "deleted"), ("silent", "cancelled: it wrote nothing for its ttl")] == [
            (seen.run, seen.fate) for seen in swept.seen
        ]
        assert 0 == (await app.read("silent", 1 << 62)).head.posted

    async def test_what_goes_is_archived_first(
        self, app: App, calendar: ShiftedClock, tmp_path: Path
    ) -> None:
        """In files that are whole, verifiable, and can be restored into another store."""
        await (await app.start(shop, "7", id="shop"))
        await (await app.start(chapters, 1, id="long"))
        before = {name: await app.read(name) for name in ("shop", "long")}
        calendar.pass_days(11)
        rules = Retention(completed="10d", archive=str(tmp_path / "old"))

        await app.retain(rules)

        (path,) = (tmp_path / "old").rglob("*.outlive")
        found = {run.head.run_id: run for run in app.archived(path)}
        assert {name: list(reading.records) for name, reading in before.items()} == {
            name: list(run.records) for name, run in found.items()
        }
        async with outlive.open(f"sqlite:///{tmp_path}/restored.db", key=self.key) as there:
            assert [True, True] == [await there.restore(run) for run in found.values()]
            assert [False, False] == [await there.restore(run) for run in found.values()]
            for name, reading in before.items():
                back = await there.read(name)
                assert read_events(reading) == read_events(back)
                assert (reading.head, reading.header) == (back.head, back.header)
            assert "receipt 1 for 7" == await (await there.get("shop"))
        with pytest.raises(RunIdTaken, match="deleted not long ago"):
            await app.restore(found["shop"])

    async def test_what_goes_may_be_archived_in_another_store(
        self, app: App, calendar: ShiftedClock, tmp_path: Path
    ) -> None:
        """As it was, record by record."""
        await (await app.start(shop, "7", id="shop"))
        before = await app.read("shop")
        calendar.pass_days(11)
        url = f"sqlite:///{tmp_path}/archive.db"

        await app.retain(Retention(completed="10d", archive=url))

        assert [] == await runs_of(app)
        async with outlive.open(url, key=self.key) as there:
            after = await there.read("shop")
        assert (before.head, before.header) == (after.head, after.header)
        assert list(before.records) == list(after.records)

    async def test_a_run_that_somebody_goes_on_with_stays(
        self, app: App, calendar: ShiftedClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also if that happens between the look and the deletion."""
        with pytest.raises(RunFailed):
            await (await app.start(fails, id="retried"))
        await (await app.start(double, 1, id="left alone"))
        calendar.pass_days(11)
        real = app.store.delete

        async def delete(batch: Sequence[Deletion]) -> Sequence[bool]:
            if "retried" in {each.run_id for each in batch}:
                await app.store.commit([await self._retry_entry(app, "retried")])
            return await real(batch)

        monkeypatch.setattr(app.store, "delete", delete)
        swept = await app.retain(ALL)

        assert ["retried"] == await runs_of(app)
        assert {"deleted": 1} == dict(swept.fates)

    async def _retry_entry(self, app: App, run_id: str) -> Any:
        from outlive.app.mail import retry_entry

        reading = await app.store.read(run_id)
        assert reading is not None
        return retry_entry(reading, now=app._reader.ports.clock.now_ms(), by="somebody")

    async def test_one_of_many_workers_sweeps(
        self, app: App, calendar: ShiftedClock, ports: Ports, caplog: pytest.LogCaptureFixture
    ) -> None:
        """In each period the first to mark it; the others rest, and no mark is left behind."""
        caplog.set_level("INFO", logger="outlive")
        for number in range(30):
            await (await app.start(double, number, id=f"r{number}"))
        calendar.pass_days(11)
        app._retention.rules = ALL

        async with app.worker(FLOWS), app.worker(FLOWS), app.worker(FLOWS):
            await eventually(lambda: self._is_empty(app), "an empty store")
            await eventually(lambda: self._has_no_mark(app), "the last mark's end")

        told = [record.getMessage() for record in caplog.records if "deleted" in record.message]
        counts = [int(text.split()[1]) for text in told]
        assert 30 == sum(counts)

    async def _is_empty(self, app: App) -> bool:
        return not await runs_of(app)

    async def _has_no_mark(self, app: App) -> bool:
        return not await journals(app, "outlive/")
