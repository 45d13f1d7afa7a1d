"""Whoever clears a store, or forks a run, may be killed at any moment."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from outlive.app.app import App
from outlive.errors import RunIdTaken
from outlive.journal.lane import run_immediate
from outlive.journal.reader import read_events
from outlive.journal.retention.archive import read_archive
from outlive.journal.retention.sweep import RUNS_AT_ONCE, Orphans
from outlive.model.ids import is_run
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Query
from tests.conftest import Figure
from tests.harness.clocks import ShiftedClock
from tests.harness.programs import run_python
from tests.retention.flows import double, shop, till, waits
from tests.retention.orphan_rules import CHUNK
from tests.retention.victim import rules

SETTINGS = Settings(lease_seconds=30.0, poll_seconds=0.02, idle_seconds=0.0)
#: Of each kind; more than go in one portion.
RUNS = RUNS_AT_ONCE // 2 + 2
MOMENTS = (
    ("retain.cancelled", 1),
    *(
        (moment, number)
        for moment in (
            "retain.archived",
            "retain.keys_kept",
            "retain.deleted",
            "commit.before",
            "commit.after",
        )
        for number in (1, 2)
    ),
    *(("retain.orphan_marked", 1), ("retain.orphan_dropped", 1)),
)


async def fill(path: Path) -> None:
    async with App(SQLiteStore(path), settings=SETTINGS) as app:
        for number in range(RUNS):
            await (await app.start(shop, str(number), id=f"shop-{number}"))
            await (await app.start(double, number, id=f"double-{number}"))
        await app.start(waits, id="live")
        while (await app.read("live", 1 << 62)).head.worker is not None:
            await asyncio.sleep(0.01)
        await app.store.put_blob("nobody", CHUNK)
        await Orphans(app.store, Ports().clock.now_ms(), lambda name: None).mark_some()


def kill(path: Path, what: str, moment: str, number: int) -> int:
    """Let a process work until that moment; its exit code."""
    archive = str(path.parent / "archive")
    victim = ("-m", "tests.retention.victim", path, archive, what, moment, number)
    return run_python(*victim).returncode


def archived(path: Path) -> set[str]:
    files = (path.parent / "archive").rglob("*.outlive")
    return {run.head.run_id for file in files for run in read_archive(file)}


def runs_in(path: Path) -> set[str]:
    store = SQLiteStore(path)
    found = run_immediate(store.find(Query(), None, 1000)).items
    for each in found:
        reading = run_immediate(store.read(each.head.run_id))
        assert reading is not None
        read_events(reading)
    run_immediate(store.close())
    return {each.head.run_id for each in found if is_run(each.head.run_id)}


async def go_on(path: Path) -> None:
    """The next sweep finds the rest; ids and keys are taken, and nothing is paid twice."""
    calendar = ShiftedClock()
    calendar.pass_days(20)
    ports = Ports(clock=calendar)
    store = SQLiteStore(path, ports=ports)
    async with App(store, ports=ports, settings=SETTINGS) as app:
        await app.retain(rules(str(path.parent / "archive")))
        assert {} == await store.get_blobs("nobody", [CHUNK.address])
        for number in range(RUNS):
            with pytest.raises(RunIdTaken):
                await app.start(shop, str(number), id=f"shop-{number}")
            handle = await app.start(shop, str(number), id=f"asks-{number}")
            assert f"receipt {number + 1} for {number}" == await handle.outcome("20s")


@pytest.mark.parametrize(("moment", "number"), MOMENTS, ids=str)
def test_a_sweep_that_is_killed_is_gone_on_with(
    moment: str, number: int, tmp_path: Path, figure: Figure
) -> None:
    """What is gone is archived, what is live is there, and the next sweep ends the work."""
    path = tmp_path / "o.db"
    till.paid.clear()
    asyncio.run(fill(path))
    everything = runs_in(path)

    code = kill(path, "retain", moment, number)
    left = runs_in(path)
    paid = list(till.paid)
    asyncio.run(go_on(path))

    assert -signal.SIGKILL == code
    assert everything - left <= archived(path)
    assert "live" in left
    assert everything - {"live"} == archived(path)
    assert {"live", *(f"asks-{n}" for n in range(RUNS))} == runs_in(path)
    assert paid == till.paid
    figure("retention: moments at which a sweep was killed", len(MOMENTS))


@pytest.mark.parametrize("moment", ["fork.marked", "fork.planned", "commit.before", "commit.after"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_fork_that_is_killed_is_made_or_not(moment: str, number: int, tmp_path: Path) -> None:
    """Half a fork keeps its run for a day, is in nobody's way, and can be made again."""
    path = tmp_path / "o.db"
    till.paid.clear()
    asyncio.run(fill(path))

    kill(path, "fork", moment, number)
    left = runs_in(path)

    async def again() -> str:
        async with App(SQLiteStore(path), settings=SETTINGS) as app:
            handle = (
                await app.get("fork")
                if "fork" in left
                else await app.fork("shop-0", at=1, id="fork")
            )
            return str(await (await app.resume(handle.id, [shop])).outcome("20s"))

    assert {"live", "shop-0"} <= left
    assert "receipt 1 for 0" == asyncio.run(again())
