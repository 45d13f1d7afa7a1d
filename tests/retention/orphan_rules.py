"""What sweeps owe nodes that no run names: they go in time, and nobody else's do."""

from __future__ import annotations

from outlive import Retention
from outlive.app.app import App
from outlive.stores.types import Node, Query
from tests.harness.clocks import ShiftedClock
from tests.retention.flows import double, waits

RULES = Retention(completed="10d", id_window="20d")
CHUNK = Node(b"0123456789abcdef", b"a chunk that no record names")


async def has_chunk(app: App, family: str) -> bool:
    return bool(await app.store.get_blobs(family, [CHUNK.address]))


class OrphanRules:
    """Rules of what nobody names."""

    async def _leave_a_chunk(self, app: App, calendar: ShiftedClock) -> None:
        """A zombie keeps a chunk when its family is gone."""
        await (await app.start(double, 1, id="gone"))
        calendar.pass_days(11)
        await app.retain(RULES)
        await app.store.put_blob("gone", CHUNK)

    async def test_what_no_run_names_goes_after_a_day(
        self, app: App, calendar: ShiftedClock
    ) -> None:
        """Found by one sweep, dropped by one that comes a day later; nothing is left behind."""
        await self._leave_a_chunk(app, calendar)

        for days in (0, 0.4, 0.4):
            calendar.pass_days(days)
            assert 0 == (await app.retain(RULES)).families
            assert await has_chunk(app, "gone")
        calendar.pass_days(0.4)
        swept = await app.retain(RULES)

        assert 1 == swept.families
        assert not await has_chunk(app, "gone")
        assert [] == (await app.store.find(Query(prefix="outlive/"))).items

    async def test_what_a_run_may_name_stays(self, app: App, calendar: ShiftedClock) -> None:
        """A run that is under way has its chunks, however long they are not named."""
        await app.start(waits, id="live")
        await app.store.put_blob("live", CHUNK)

        for _ in range(3):
            calendar.pass_days(3)
            assert 0 == (await app.retain(RULES)).families

        assert await has_chunk(app, "live")

    async def test_a_family_that_has_a_run_again_stays(
        self, app: App, calendar: ShiftedClock
    ) -> None:
        """Its id was free again: what was marked before is its own now."""
        await self._leave_a_chunk(app, calendar)
        await app.retain(RULES)
        calendar.pass_days(30)
        await app.start(waits, id="gone")

        swept = await app.retain(RULES)

        assert 0 == swept.families
        assert await has_chunk(app, "gone")
        assert [] == (await app.store.find(Query(prefix="outlive/"))).items
