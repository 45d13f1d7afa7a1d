"""``outlive key``, ``outlive rekey``, ``outlive erase``: what is sealed, and with what."""

from __future__ import annotations

import argparse
import asyncio

from outlive.cli.output import now_ms, print_json, print_line, print_note
from outlive.errors import UsageError
from outlive.opening import open_app
from outlive.ports import Ports
from outlive.sealing import ID_WINDOW_MS, erase_family, new_master_key, rekey_store


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
    """Forget a run, its children and its forks for good."""
    if not asked.yes:
        raise UsageError("nothing brings back what is erased; say --yes if you mean it")
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
