"""A run and its forks as they were once written: ``python -m tests.replay.golden_forks FILE``.

The committed ones are never written again: a release that can't go on with them has broken its
users' runs.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from outlive.app.app import App
from outlive.journal.codec.restore import read_whole
from outlive.journal.retention.archive import Archived
from outlive.journal.retention.deletion import archived_of
from outlive.model.events import StepDone
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from tests.forks import flows

SETTINGS = Settings(lease_seconds=30.0, poll_seconds=0.01, idle_seconds=60.0)


class Family(msgspec.Struct):
    """Runs in the order in which they came to be, and what came of those that ended."""

    runs: list[Archived]
    outcomes: dict[str, list[str]]


async def made() -> Family:
    """A run, forks of it that ended, and forks that nobody has driven yet."""
    store, outcomes = MemoryStore(), {}
    async with App(store, settings=SETTINGS) as app:
        origin = await app.start(flows.buy, "a", id="origin")
        outcomes["origin"] = await origin
        place = _place_of(await origin.read())
        again = await origin.fork(at=place, id="again")
        outcomes["again"] = await again.outcome("20s")
        other = await origin.fork(set={"fork_plan#1": ["z"]}, id="other")
        outcomes["other"] = await other.outcome("20s")
    async with App(store, settings=SETTINGS, drive=False) as app:
        await app.fork("origin", at=place, id="pending")
        await app.fork("other", at=2, id="deeper")
    runs = [await read_whole(store, name) for name in (*outcomes, "pending", "deeper")]
    return Family(runs=[archived_of(run) for run in runs if run is not None], outcomes=outcomes)


def _place_of(events: list[object]) -> int:
    return next(seq for seq, event in enumerate(events, 1) if isinstance(event, StepDone))


def load(path: Path) -> Family:
    return msgspec.json.decode(path.read_bytes(), type=Family)


if __name__ == "__main__":
    written = msgspec.json.encode(asyncio.run(made()))
    Path(sys.argv[1]).write_bytes(msgspec.json.format(written, indent=1) + b"\n")
