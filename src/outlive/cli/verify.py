"""``outlive verify``: read every journal, check everything, name what is damaged."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from outlive.app.app import App
from outlive.app.open import open_app
from outlive.app.seal import archive_keys
from outlive.cli.output import print_json, print_line
from outlive.errors import AppClosed, CorruptArchive, CorruptRecord, RunNotFound, StoreError
from outlive.journal.retention.archive import read_archive
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.types import DAMAGED, PAGE_MAX, Found, Reading
from outlive.views.damage import Checked, Damage, check_journal, check_outcomes


@dataclass(slots=True)
class VerifyReport:
    """The result of a verification."""

    journals: int = 0
    records: int = 0
    damage: list[Damage] = field(default_factory=list)


def verify(asked: argparse.Namespace) -> int:
    """Check one run or everything; 3 if anything is damaged."""
    if asked.archive is not None:
        report = check_archive(asked.archive)
    else:
        report = asyncio.run(_verify(asked))
    if asked.json:
        print_json(report)
    else:
        for damage in report.damage:
            print_line(_render(damage))
        sound = "damage found" if report.damage else "all sound"
        print_line(f"journals: {report.journals}, records: {report.records}; {sound}")
    return StoreError.exit_code if report.damage else 0


async def _verify(asked: argparse.Namespace) -> VerifyReport:
    async with open_app(asked.store, drive=False, must_exist=True) as app:
        return await check_store(app, asked.run)


def check_archive(path: str) -> VerifyReport:
    """Check a file of archived runs; after damage to the file itself nothing can be trusted."""
    report = VerifyReport()
    try:
        keys = archive_keys(Settings.from_environment().key, Ports())
        for run in read_archive(path, keys):
            report.journals += 1
            checked = check_journal(run.reading())
            report.records += checked.records
            report.damage += checked.all
    except CorruptArchive as error:
        report.damage.append(Damage(run=None, seq=None, why=str(error)))
    return report


async def check_store(app: App, only: str | None = None) -> VerifyReport:
    """Check one journal, or each; damage of one does not hide that of another."""
    report = VerifyReport()
    if only is not None:
        await _check(app, only, report)
        return report
    await _check_health(app, report)
    async for found in _journals(app, report):
        journal = found.head.run_id
        if found.header.status == DAMAGED:
            report.journals += 1
            report.damage.append(Damage(run=journal, seq=None, why=found.header.reason))
            continue
        try:
            await _check(app, journal, report)
        except RunNotFound:
            continue  # deleted since the page was read
    return report


async def _check_health(app: App, report: VerifyReport) -> None:
    """Ask the store for damage that only it can see."""
    try:
        problems = (await app.health()).problems
    except AppClosed:
        raise
    except Exception as error:
        problems = [f"it can't be searched: {error}"]
    report.damage += [Damage(run=None, seq=None, why=problem) for problem in problems]


async def _journals(app: App, report: VerifyReport) -> AsyncIterator[Found]:
    after = None
    while True:
        try:
            page = await app.find(limit=PAGE_MAX, after=after, keys=True)
        except AppClosed:
            raise
        except Exception as error:
            why = f"the list of journals can't be read on: {error}"
            report.damage.append(Damage(run=None, seq=None, why=why))
            return
        for found in page.items:
            yield found
        after = page.next
        if after is None:
            return


async def _check(app: App, journal: str, report: VerifyReport) -> None:
    report.journals += 1
    try:
        reading = await app.read(journal)
        checked = check_journal(reading)
        beside = await _check_beside(app, reading, checked)
    except (AppClosed, RunNotFound):
        report.journals -= 1
        raise
    except CorruptRecord as error:
        report.damage.append(Damage(run=journal, seq=error.seq or None, why=error.why))
        return
    except Exception as error:
        # A damaged file may make a store say anything; the other journals are still checked.
        report.damage.append(Damage(run=journal, seq=None, why=f"it can't be read: {error}"))
        return
    report.records += checked.records
    report.damage += checked.all + beside


async def _check_beside(app: App, reading: Reading, checked: Checked) -> list[Damage]:
    """Outcomes of transactional steps that the journal does not have as yet."""
    if checked.damage or app.store.transactions is None:
        return []
    kept = await app.store.transactions.outcomes_of(reading.head.run_id)
    return check_outcomes(reading, checked.events, kept)


def _render(damage: Damage) -> str:
    if damage.run is None:
        return f"the store: {damage.why}"
    place = "" if damage.seq is None else f", seq {damage.seq}"
    return f"run {damage.run}{place}: {damage.why}"
