"""Scenes for the crash lab: many append at once, to one key or to two as one; keys are dropped.

What was acknowledged is written down before anything else happens. A scene that is played again
looks first whether all of it is there, and goes on.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from outlive import KeyedLog
from outlive.testing.crash.child import Stage

KEYS = ("a", "b", "c")
MOVES, NOTES, DROPPED = 4, 6, ("x", "y")
TOLD = "told"


def tell(stage: Stage, operation: str) -> None:
    """Write down that this was acknowledged."""
    file = os.open(stage.folder / TOLD, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, f"{operation}\n".encode())
    os.close(file)


def told(stage: Stage) -> list[str]:
    path = stage.folder / TOLD
    return path.read_text().split() if path.exists() else []


async def check(stage: Stage, log: KeyedLog) -> None:
    """All that was acknowledged is there, once; what is for two keys is in both or in none."""
    entries = {key: [entry.value for entry in await log.read(key)] for key in KEYS}
    done = {key: [value["op"] for value in some] for key, some in entries.items()}
    for key, some in done.items():
        assert len(some) == len(set(some)), (key, some)
    everywhere = [op for some in done.values() for op in some]
    for number in range(MOVES):
        assert everywhere.count(f"move{number}") in (0, 2), (number, done)
    missing = [op for op in told(stage) if op not in everywhere]
    assert not missing, (missing, done)
    assert 0 == sum(value["n"] for some in entries.values() for value in some)


async def appends(stage: Stage) -> None:
    """Moves between keys and notes at keys, all at the same moment, twice."""
    log = stage.app.log("accounts", keep="1h")
    await check(stage, log)

    async def move(number: int) -> None:
        name, giver, taker = f"move{number}", KEYS[number % 3], KEYS[(number + 1) % 3]

        def decide(views: Any) -> Any:
            if any(entry.value["op"] == name for entry in views[giver].entries):
                return {}
            text = "long enough to be kept by itself, " * 20
            return {
                giver: [{"op": name, "n": -1, "text": text}],
                taker: [{"op": name, "n": 1, "text": text}],
            }

        await log.append_all([giver, taker], decide)
        tell(stage, name)

    async def note(number: int) -> None:
        name = f"note{number}"

        def decide(view: Any) -> Any:
            is_there = any(entry.value["op"] == name for entry in view.entries)
            return None if is_there else [{"op": name, "n": 0}]

        await log.append(KEYS[number % 3], decide)
        tell(stage, name)

    await asyncio.gather(*map(move, range(2)), *map(note, range(3)))
    await asyncio.gather(*map(move, range(2, MOVES)), *map(note, range(3, NOTES)))
    await check(stage, log)
    assert MOVES + NOTES <= len(set(told(stage)))


async def drops(stage: Stage) -> None:
    """A key is wholly there or wholly gone, and what begins anew has nothing of the old one."""
    log = stage.app.log("sessions")
    if "filled" not in told(stage):
        for key in DROPPED:
            await log.append(key, lambda view: None if len(view) else [["old"] * 200, "x" * 900])
        tell(stage, "filled")
    if "dropped" not in told(stage):
        for key in DROPPED:
            assert len(await log.read(key)) in (0, 2)
        await log.drop(DROPPED)
        tell(stage, "dropped")
    for key in DROPPED:
        await log.append(key, lambda view: None if len(view) else ["new"])
        assert ["new"] == [entry.value for entry in await log.read(key)]
    assert sorted(DROPPED) == sorted(found.key for found in (await log.find()).items)
