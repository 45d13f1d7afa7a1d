"""``outlive retain`` and ``restore``: what is old goes, and what was archived comes back."""

from __future__ import annotations

import argparse
import asyncio

from outlive.cli.output import age, now_ms, print_json, print_line, print_note, print_table
from outlive.errors import RunIdTaken, RunNotFound
from outlive.journal.sweeping import Seen, Swept
from outlive.model.retention import parse_retention
from outlive.opening import open_app

COLUMNS = ("RUN", "FLOW", "STATUS", "AGE", "FATE")


def retain(asked: argparse.Namespace) -> int:
    """Delete what the rules let go, or say what would be deleted."""
    swept, now = asyncio.run(_retain(asked))
    if asked.json:
        print_json(_facts(swept) | ({"runs": swept.seen} if asked.dry_run else {}))
        return 0
    if asked.dry_run:
        print_table(COLUMNS, [_row(seen, now) for seen in swept.seen])
        print_note("a dry run: nothing was changed")
    for fate, count in sorted(swept.fates.items()):
        print_line(f"{count} {fate}")
    if swept.keys:
        print_line(f"{swept.keys} keys of deleted runs are free again")
    if swept.families:
        print_line(f"{swept.families} families of which only values were left are gone")
    return 0


async def _retain(asked: argparse.Namespace) -> tuple[Swept, int]:
    rules = parse_retention(asked.rules or "", "--rules")
    async with open_app(asked.store, drive=False, must_exist=True) as app:
        return await app.retain(rules, dry_run=asked.dry_run), now_ms(app.store)


def _facts(swept: Swept) -> dict[str, object]:
    return {"fates": dict(swept.fates), "keys": swept.keys, "families": swept.families}


def _row(seen: Seen, now: int) -> list[str]:
    return [seen.run, seen.flow, seen.status, age(now - seen.at), seen.fate]


def restore(asked: argparse.Namespace) -> int:
    """Put the runs of an archive's file into a store."""
    told = asyncio.run(_restore(asked))
    if asked.json:
        print_json(told)
    else:
        for run_id, what in told.items():
            print_line(f"{run_id}: {what}")
    return 1 if any(what.startswith("not") for what in told.values()) else 0


async def _restore(asked: argparse.Namespace) -> dict[str, str]:
    told: dict[str, str] = {}
    async with open_app(asked.store, drive=False) as app:
        for run in app.archived(asked.file):
            run_id = run.head.run_id
            if asked.run not in (None, run_id):
                continue
            try:
                told[run_id] = "restored" if await app.restore(run) else "there already"
            except RunIdTaken as error:
                told[run_id] = f"not restored: {error}"
    if asked.run is not None and not told:
        raise RunNotFound(asked.run)
    return told
