"""What retention owes everybody when many runs go at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from outlive import Retention
from outlive.app.app import App
from outlive.errors import CorruptRecord, RunIdTaken
from outlive.journal.retention import sweep as sweeping
from outlive.journal.retention.sweep import runs_at_once
from outlive.model.ids import is_run
from outlive.stores.types import Conflict, Deletion, Entry, Query, Reading
from tests.harness.clocks import ShiftedClock
from tests.retention.flows import double, shop, till

OLD = Retention(completed="10d", id_window="30d")


async def ids_in(app: App) -> list[str]:
    page = await app.store.find(Query(), None, 1000)
    return sorted(found.head.run_id for found in page.items if is_run(found.head.run_id))


class PortionRules:
    """Rules of deletion, several runs at once."""

    async def test_many_go_in_few_calls(
        self, app: App, calendar: ShiftedClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With one flush for a portion, and one for the keys that its runs hold."""
        monkeypatch.setattr(sweeping, "RUNS_AT_ONCE_SERVED", 8)
        at_once = runs_at_once(app.store)
        count = 2 * at_once + 5
        for number in range(count):
            await (await app.start(shop, str(number), id=f"shop-{number}"))
        calendar.pass_days(11)
        deleted, committed = self._counted(app, monkeypatch)

        swept = await app.retain(OLD)

        assert {"deleted": count} == dict(swept.fates)
        assert [at_once, at_once, 5] == deleted == committed
        with pytest.raises(RunIdTaken):
            await app.start(shop, "7", id="shop-7")
        assert "receipt 8 for 7" == await (await app.start(shop, "7", id="asks"))
        assert count == len(till.paid)

    def _counted(self, app: App, patch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
        """How many runs each deletion was of, and how many entries each commit."""
        deleted: list[int] = []
        committed: list[int] = []
        delete, commit = app.store.delete, app.store.commit

        async def counted_deletion(batch: Sequence[Deletion]) -> Any:
            deleted.append(len(batch))
            return await delete(batch)

        async def counted_commit(batch: Sequence[Entry], *, wait: bool = True) -> Any:
            committed.append(len(batch))
            return await commit(batch, wait=wait)

        patch.setattr(app.store, "delete", counted_deletion)
        patch.setattr(app.store, "commit", counted_commit)
        return deleted, committed

    async def test_one_that_can_not_be_read_is_in_nobodys_way(
        self, app: App, calendar: ShiftedClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is kept and told of; the others go."""
        for number in range(5):
            await (await app.start(double, number, id=f"r{number}"))
        calendar.pass_days(11)
        real = app.store.read_all

        async def read_all(run_ids: Sequence[str]) -> Mapping[str, Reading]:
            if "r3" in run_ids:
                raise CorruptRecord("r3", 1, "its row is damaged")
            found: Mapping[str, Reading] = await real(run_ids)
            return found

        monkeypatch.setattr(app.store, "read_all", read_all)
        swept = await app.retain(OLD)

        assert {"deleted": 4, "kept: its journal can't be read": 1} == dict(swept.fates)
        assert ["r3"] == await ids_in(app)

    async def test_a_run_whose_keys_can_not_be_kept_stays(
        self, app: App, calendar: ShiftedClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Somebody is always faster: the next sweep tries again."""
        await (await app.start(shop, "7", id="shop"))
        await (await app.start(double, 1, id="double"))
        calendar.pass_days(11)

        async def commit(batch: Sequence[Entry]) -> Sequence[Conflict | None]:
            return [Conflict(seq=1, epoch=0) for _ in batch]

        with monkeypatch.context() as patch:
            patch.setattr(app.store, "commit", commit)
            first = await app.retain(OLD)
        there = await ids_in(app)
        second = await app.retain(OLD)

        assert ({"deleted": 1}, ["shop"]) == (dict(first.fates), there)
        assert ({"deleted": 1}, []) == (dict(second.fates), await ids_in(app))
