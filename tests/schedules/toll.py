"""A bell that a schedule rings, and the book of whoever hears it; a scene for crash tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import outlive
from outlive.app.app import App
from outlive.stores.types import Found
from outlive.testing.audit.auditor import Policy, Receipt
from outlive.testing.crash.child import Stage
from outlive.testing.crash.lab import Evidence
from outlive.testing.ledger import Ledger
from tests.schedules.laws import check_schedule

NAME = "bell"
FIRINGS = 3
POLICIES: dict[str, Policy] = {"ring": "once"}


@outlive.effect(doubt="retry", timeout=4.0, settle_after=0.2)
async def ring(book: str, word: str) -> str:
    """The receiver honours keys."""
    receipt = Receipt(run_id=outlive.run_id(), effect="ring", key=outlive.key(), nonces=())
    return Ledger(Path(book)).enter(receipt, honours_key=True).key + word


@outlive.flow
async def toll(book: str, word: str) -> str:
    """Rings once."""
    return await ring(book, word)


async def define(app: App, book: str, fired: int) -> int:
    """Say what is to be done, again and again: from the second firing on something else."""
    word = "first" if fired < 2 else "second"
    there = await app.schedule(NAME, toll, book, word, every="1s", missed="once")
    return len([run for run in there.recent if run.status == "completed"])


async def scene(stage: Stage) -> None:
    """Until the bell was rung some times, by one plan and by another."""
    book = str(stage.folder / "ledger.jsonl")
    async with stage.app.worker([toll]):
        fired = 0
        while fired < FIRINGS:
            fired = await define(stage.app, book, fired)
            await asyncio.sleep(0.25)
        await stage.app.unschedule(NAME)
        while await is_busy(stage.app):
            await asyncio.sleep(0.1)


async def is_busy(app: App) -> bool:
    """Somebody has mail, is driven or due, or rings."""
    page = await app.find(limit=1000)
    return any(_is_busy(each) for each in page.items)


def _is_busy(each: Found) -> bool:
    if each.header.flow == toll.name:
        return each.header.ended_at is None
    # A removed schedule sleeps for good.
    is_awake = each.head.worker is not None or each.header.wake_at is not None
    return is_awake or each.head.posted != each.head.consumed


def check(evidence: Evidence) -> Sequence[str]:
    """Each instant was fired once, and each run rang once."""
    broken = check_schedule(NAME, evidence.journals)
    runs = [run_id for run_id in evidence.journals if run_id.startswith(f"{NAME}@")]
    rung = sorted(receipt.run_id for receipt in evidence.receipts)
    return broken if rung == sorted(runs) else [*broken, f"rung: {rung}, not {sorted(runs)}"]
