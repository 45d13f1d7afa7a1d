"""Redaction off, and what notices it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import outlive
from outlive.app.app import App
from outlive.journal.redaction import Hider
from outlive.stores.memory import MemoryStore
from tests.mutants.killers_waits import play

SECRET = "correct horse battery"


def redaction_off(patch: pytest.MonkeyPatch) -> None:
    """Events are recorded as they are."""
    patch.setattr(Hider, "event", lambda self, event: event)


@outlive.step(name="mutant_echo", redact=("secret",))
async def echo(secret: str) -> str:
    return f"you said {secret}"


@outlive.flow(name="mutant_telling")
async def telling() -> str:
    return await echo(SECRET)


def secrets_stay_out_of_the_journal(folder: Path) -> None:
    """What a step returns of a hidden argument is hidden, too."""

    async def scene(app: App, store: MemoryStore) -> Any:
        told = await (await app.start(telling, id="r")).outcome()
        reading = await store.read("r")
        return told, msgspec.msgpack.encode(reading)

    told, stored = play(scene)
    assert "you said [redacted]" == told
    assert SECRET.encode() not in stored
