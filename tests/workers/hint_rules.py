"""Beside a journal there are only hints: rows that lie, and that nobody believes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

import outlive
from outlive import Retention
from outlive.app.app import App
from outlive.errors import CorruptRecord
from outlive.journal.retention.sweep import ORPHAN_MS, Orphans
from outlive.settings import Settings
from outlive.stores.seam import Store
from outlive.worker.neighbours import StorePeer

QUICK = Settings(lease_seconds=30, poll_seconds=0.02, idle_seconds=0.0, drain_seconds=2)
ALL = Retention(completed=0, failed=0, cancelled=0)
#: Nonsense in a row of ``runs``, as SQL.
NONSENSE = {
    "seq of 2^62": "seq = 4611686018427387904",
    "seq of 2^63 - 1": "seq = 9223372036854775807",
    "seq below zero": "seq = -5",
    "seq of nothing": "seq = 0",
    "seq far ahead": "seq = 1000000",
    "epoch of 2^63 - 1": "epoch = 9223372036854775807",
    "epoch below zero": "epoch = -1",
    "chapter of 2^62": "chapter = 4611686018427387904",
    "chapter below zero": "chapter = -7",
    "mail below zero": "posted = -3",
    "started before time": "started_at = -9223372036854775807",
    "tags that are none": "tags = 'garbage'",
    "units below zero": "units = -5",
}

LONG = "long enough to stand by itself " * 100

paid: list[str] = []

Damage = Callable[[str], None]


@outlive.effect(name="hint_pay")
async def pay(name: str) -> str:
    paid.append(name)
    return name


@outlive.flow(name="hint_buy")
async def buy(name: str) -> str:
    return await pay(name)


@outlive.flow(name="hint_wait")
async def wait(name: str) -> str:
    await pay(name)
    return str(await outlive.wait_signal("go", type=str))


@outlive.flow(name="hint_parent")
async def parent() -> str:
    await outlive.call(buy, "7", id="child")
    return str(await outlive.wait_signal("go", type=str))


@outlive.step(name="hint_long")
async def long() -> str:
    """Returns a text that stands by itself in the store."""
    return LONG


@outlive.flow(name="hint_hold")
async def hold() -> str:
    text = await long()
    await outlive.wait_signal("go", type=str)
    return text


@outlive.flow(name="hint_leave")
async def leave() -> str:
    await outlive.spawn(hold, id="child")
    return "left"


async def waiting(app: App, flow: Any, *args: object, id: str) -> None:
    """A run that has left memory and waits."""
    await app.start(flow, *args, id=id)
    while (await app.read(id)).head.worker is not None:
        await asyncio.sleep(0.01)


class HintRules:
    """What holds whatever rows say."""

    #: The seq of the last record of run r: a head before it is followed by nobody's entry.
    LAST_RECORD = "SELECT max(seq) FROM records WHERE run_id = 'r'"

    @pytest.fixture
    def opened(self) -> Callable[[], Store]:
        raise NotImplementedError

    @pytest.fixture
    def store(self, opened: Callable[[], Store]) -> Store:
        return opened()

    @pytest.fixture
    def damage(self, store: Store) -> Damage:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _nothing_paid(self) -> None:
        paid.clear()

    # what can't be undone

    async def test_a_live_run_whose_header_says_completed_is_kept(
        self, store: Store, damage: Damage, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Retention asks the journal, says what it found, and nobody waits for the run in vain."""
        async with App(store, settings=QUICK) as app:
            await waiting(app, wait, "a", id="r")
            damage("UPDATE runs SET status = 'completed', ended_at = 1 WHERE run_id = 'r'")

            swept = await app.retain(ALL)
            is_deleted = await app.delete("r")
            with pytest.raises(CorruptRecord, match=r"run r.*header says completed"):
                await (await app.get("r", wait)).outcome(timeout=5)

        assert {"kept: its journal can't be read": 1} == dict(swept.fates)
        assert not is_deleted
        assert any("its journal does not end" in each.message for each in caplog.records)

    async def test_a_child_whose_parents_header_says_completed_is_kept(
        self, store: Store, damage: Damage
    ) -> None:
        """A parent is over when its journal says so."""
        async with App(store, settings=QUICK) as app:
            await waiting(app, parent, id="r")
            damage("UPDATE runs SET status = 'completed', ended_at = 1 WHERE run_id = 'r'")

            await app.retain(ALL)

            assert "completed" == await (await app.get("child")).status()

    async def test_a_completed_run_whose_header_says_running_is_not_driven_again(
        self, store: Store, damage: Damage
    ) -> None:
        """It is shown as it is, and its outcome is the one that it had."""
        async with App(store, settings=QUICK) as app:
            await (await app.start(buy, "a", id="r"))
            damage(
                "UPDATE runs SET status = 'running', wake_at = 0, ended_at = NULL"
                " WHERE run_id = 'r'"
            )
            async with app.worker([buy]):
                assert "a" == await (await app.start(buy, "a", id="r")).outcome(timeout=5)
            status = await (await app.get("r")).status()

        assert ("completed", ["a"]) == (status, paid)

    async def test_values_of_a_child_whose_row_names_another_family_are_kept(
        self, store: Store, damage: Damage, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A parent goes when its children's rows and journals agree on whose values they share."""
        async with App(store, settings=QUICK) as app:
            assert "left" == await (await app.start(leave, id="r"))
            while await (await app.get("child")).status() != "waiting":
                await asyncio.sleep(0.01)
            damage("UPDATE runs SET family = 'another' WHERE run_id = 'child'")

            swept = await app.retain(ALL)
            damage("UPDATE runs SET family = 'r' WHERE run_id = 'child'")
            await (await app.get("child", hold)).signal("go", "on")
            async with app.worker([hold]):
                assert LONG == await (await app.get("child", hold)).outcome(timeout=5)

        assert {"kept: its journal can't be read": 1} == dict(swept.fates)
        assert any("belongs to family 'another'" in each.message for each in caplog.records)

    async def test_values_that_seem_to_be_nobodys_are_kept_while_a_journal_names_them(
        self, store: Store, damage: Damage
    ) -> None:
        """They are not dropped because a row names another family."""
        async with App(store, settings=QUICK) as app:
            await waiting(app, hold, id="r")
            damage("UPDATE runs SET family = 'another' WHERE run_id = 'r'")
            passes = [Orphans(store, now, lambda moment: None) for now in (1, 3 * ORPHAN_MS)]
            for each in passes:
                while await each.mark_some():
                    pass
                await each.drop_old()
            damage("UPDATE runs SET family = 'r' WHERE run_id = 'r'")

            await (await app.get("r", hold)).signal("go", "on")
            async with app.worker([hold]):
                assert LONG == await (await app.get("r", hold)).outcome(timeout=5)
        assert 0 == sum(each.dropped for each in passes)

    async def test_whether_a_run_is_over_is_told_by_its_journal(
        self, store: Store, damage: Damage
    ) -> None:
        """A schedule that must not overlap does not go by a header."""

        async def lane(work: Any) -> Any:
            return await work

        peer = StorePeer(store, lane)
        async with App(store, settings=QUICK) as app:
            await waiting(app, wait, "a", id="open")
            await (await app.start(buy, "b", id="over"))
            damage("UPDATE runs SET status = 'completed', ended_at = 1 WHERE run_id = 'open'")
            damage("UPDATE runs SET status = 'waiting', ended_at = NULL WHERE run_id = 'over'")

            told = [await peer.is_over(run_id) for run_id in ("open", "over", "gone")]

        assert [False, True, True] == told

    # a head that its records do not end at

    @pytest.mark.parametrize("seq", ["seq - 1", "seq + 1", "LAST_RECORD - 1"])
    async def test_a_head_beside_the_end_of_its_journal_is_told(
        self, opened: Callable[[], Store], damage: Damage, seq: str
    ) -> None:
        """Nobody waits in silence: not who starts it, not who asks for its outcome, no worker."""
        async with App(opened(), settings=QUICK) as app:
            await waiting(app, wait, "a", id="r")
            async with App(opened(), settings=QUICK) as other:
                await (await other.get("r", wait)).signal("go", "on")
        moved = seq.replace("LAST_RECORD", f"({self.LAST_RECORD})")
        damage(f"UPDATE runs SET seq = {moved} WHERE run_id = 'r'")

        async with App(opened(), settings=QUICK) as app:
            with pytest.raises(CorruptRecord, match="run r"):
                await (await app.start(wait, "a", id="r")).outcome(timeout=10)
        async with App(opened(), settings=QUICK) as app, app.worker([wait, buy]):
            assert "b" == await (await app.submit(buy, "b", id="other")).outcome(timeout=5)
            with pytest.raises(CorruptRecord, match="run r"):
                await (await app.get("r", wait)).outcome(timeout=10)
        assert ["a", "b"] == paid

    # rows of nonsense

    @pytest.mark.parametrize("column", NONSENSE)
    async def test_a_row_of_nonsense_ends_no_worker(
        self, store: Store, damage: Damage, column: str
    ) -> None:
        """Only that run is not driven; who asks for it is told."""
        async with App(store, settings=QUICK) as app:
            await app.submit(buy, "bad", id="bad")
            await waiting(app, wait, "a", id="sleeps")
            await (await app.get("sleeps", wait)).signal("go", "on")
            damage(f"UPDATE runs SET {NONSENSE[column]}")

            async with app.worker([buy, wait]) as worker:
                await asyncio.sleep(0.1)
                assert "b" == await (await app.submit(buy, "b", id="good")).outcome(timeout=10)
                assert worker.failure is None

    async def test_ten_thousand_rows_of_nonsense_starve_nobody(
        self, store: Store, damage: Damage, full: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Healthy runs behind them are found."""
        caplog.set_level(logging.CRITICAL)
        count = 10_000 if full else 2_000
        async with App(store, settings=QUICK) as app:
            for number in range(count):
                await app.submit(buy, "bad", id=f"bad-{number}")
            damage("UPDATE runs SET seq = -5")
            good = [await app.submit(buy, f"b{n}", id=f"good-{n}") for n in range(20)]
            async with app.worker([buy]):
                for number, handle in enumerate(good):
                    assert f"b{number}" == await handle.outcome(timeout=20)

    @pytest.mark.parametrize(
        "limits", ["rate = 0, rate_ms = 1000", "rate = 1, rate_ms = 0", "rate = 5, rate_ms = -9"]
    )
    async def test_limits_of_nonsense_end_no_worker(
        self, store: Store, damage: Damage, limits: str
    ) -> None:
        """Nothing of that queue begins; others go on."""
        async with App(store, settings=QUICK) as app:
            await app.set_queue(outlive.Queue("q", rate=outlive.Rate(5)))
            damage(f"UPDATE queues SET {limits}")
            await app.submit(buy.options(queue="q"), "bad", id="bad")
            async with app.worker([buy]):
                await asyncio.sleep(0.1)
                assert "b" == await (await app.submit(buy, "b", id="good")).outcome(timeout=5)
                await app.queues()
        assert ["b"] == paid
