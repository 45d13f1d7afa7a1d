"""``outlive retain``, ``restore``, ``accept-loss``, ``key``, ``rekey``, ``erase``."""

from __future__ import annotations

import argparse
import asyncio

from outlive.app.open import open_app
from outlive.app.seal import erase_family, new_master_key, rekey_store
from outlive.cli.output import age, now_ms, print_json, print_line, print_note, print_table
from outlive.errors import RunIdTaken, RunNotFound, UsageError
from outlive.journal.retention.archive import check_archive
from outlive.journal.retention.sweep import Swept, SweptRun
from outlive.model.defaults import ID_WINDOW_MS
from outlive.model.retention import parse_retention
from outlive.ports import Ports
from outlive.stores.types import Loss

COLUMNS = ("RUN", "FLOW", "STATUS", "AGE", "FATE")


def retain(asked: argparse.Namespace) -> int:
    """Delete runs by the retention rules, or list what would be deleted."""
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


def _row(seen: SweptRun, now: int) -> list[str]:
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
    check_archive(asked.file)  # a slip in its name makes no store
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


def accept_loss(asked: argparse.Namespace) -> int:
    """Let workers continue without the events that a store lost, once a human accepts the loss."""
    loss = asyncio.run(_accept(asked))
    missing = f"run {loss.run_id} was stored up to {loss.known} and ends at {loss.found}"
    if asked.json:
        print_json({"timeline": loss.timeline, "run": loss.run_id, "accepted": True})
    else:
        print_line(f"accepted: what is missing on timeline {loss.timeline} ({missing}, at least)")
        print_note("start the workers again; effects that are missing are done again")
    return 0


async def _accept(asked: argparse.Namespace) -> Loss:
    async with open_app(asked.store, drive=False, must_exist=True, only_looks=True) as app:
        store = app.store
        loss = await store.loss()
        if loss is None:
            raise UsageError("nothing is known to be missing; there is nothing to accept")
        if asked.timeline is None:
            raise UsageError(
                f"run {loss.run_id} was stored up to {loss.known} and ends at {loss.found}, and "
                "others may lack events too. Accepting that means: all runs go on from where they "
                "end now, and effects since then are done again, unless their receivers honour "
                f"keys or checks find them. If that is acceptable: --timeline {loss.timeline}"
            )
        if not await store.accept_loss(asked.timeline):
            raise UsageError(f"the loss is on timeline {loss.timeline}, not {asked.timeline}")
        return loss


def key(asked: argparse.Namespace) -> int:
    """Print a new key."""
    print_line(new_master_key(Ports()))
    return 0


def rekey(asked: argparse.Namespace) -> int:
    """Wrap every data key with the first of the keys that OUTLIVE_KEY holds."""
    count = asyncio.run(_rekey(asked))
    if asked.json:
        print_json({"rewrapped": count})
    else:
        print_line(f"{count} data keys rewrapped; the other keys are not needed any more")
    return 0


async def _rekey(asked: argparse.Namespace) -> int:
    async with open_app(asked.store, drive=False, must_exist=True) as app:
        return await rekey_store(app.store, lambda family: print_note(f"rewrapped {family}"))


def erase(asked: argparse.Namespace) -> int:
    """Erase a run, its children and its forks for good."""
    if not asked.yes:
        raise UsageError("erased data can't be recovered; confirm with --yes")
    erased = asyncio.run(_erase(asked))
    if asked.json:
        print_json({"erased": erased})
    else:
        print_line(f"erased: {', '.join(erased)}")
    return 0


async def _erase(asked: argparse.Namespace) -> list[str]:
    async with open_app(asked.store, drive=False, must_exist=True) as app:
        keep_until = now_ms(app.store) + ID_WINDOW_MS
        return await erase_family(app.store, asked.run, keep_until)
