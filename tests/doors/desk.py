"""Flows that are spoken to from the command line, and a process that drives them for a while."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive.cli import main
from outlive.settings import Settings

PATIENCE_SECONDS = 20
QUICK = Settings(lease_seconds=5, poll_seconds=0.02, idle_seconds=0.0)


@outlive.flow
async def ask_number() -> int:
    number: int = await outlive.ask("How many?", type=int)
    return number + 1


@outlive.flow
async def ask_all() -> list[Any]:
    async def one(text: str, hint: Any) -> Any:
        return await outlive.ask(text, type=hint)

    return list(await asyncio.gather(one("Name?", str), one("Sure?", bool)))


@outlive.flow
async def wait_two() -> list[Any]:
    return [await outlive.wait_signal("go") for _ in range(2)]


@outlive.flow
async def child() -> str:
    return str(await outlive.wait_signal("never"))


@outlive.flow(deadline="7d", pins={"model": "m1"})
async def parent() -> str:
    return str(await outlive.call(child, id="kid"))


@outlive.flow
async def fails_at_first() -> str:
    return await shaky()


@outlive.step
async def shaky() -> str:
    if not Path("works").exists():
        raise ValueError("not yet")
    return "done"


FLOWS = [ask_number, ask_all, wait_two, child, parent, fails_at_first]


class Desk:
    """A store, the command line on it, and workers that come and go."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.url = f"sqlite:///{folder}/desk.db"
        patch.setenv("OUTLIVE_STORE", self.url)
        patch.setenv("OUTLIVE_POLL_SECONDS", "0.02")
        patch.setenv("OUTLIVE_IDLE_SECONDS", "0")
        patch.chdir(folder)

    def start(self, flow: Any, *args: Any, id: str = "r") -> None:
        """Start a run, which nobody drives yet."""

        async def submit() -> None:
            async with outlive.open(self.url, drive=False) as app:
                await app.submit(flow, *args, id=id)

        asyncio.run(submit())

    def drive(self, until: Callable[[Any], bool], id: str = "r") -> Any:
        """Let a worker work until the run's header is as wanted."""

        async def work() -> Any:
            async with outlive.open(self.url) as app, app.worker(FLOWS):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while not until((reading := await app.read(id)).header):
                        await asyncio.sleep(0.01)
                    return reading

        return asyncio.run(work())

    def park(self, flow: Any, *args: Any, id: str = "r") -> None:
        """Start a run and let it come to its first wait."""
        self.start(flow, *args, id=id)
        self.drive(lambda header: header.status == "waiting", id)

    def end(self, id: str = "r") -> Any:
        """Let the run end; how it did, as ``show`` has it."""
        self.drive(lambda header: header.ended_at is not None, id)
        return json.loads(self("show", id, "--json")[1])

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, output and notes of a command."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(words))
        return code, out.getvalue(), err.getvalue()
