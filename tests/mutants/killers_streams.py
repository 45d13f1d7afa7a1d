"""One small test per rule of streams and published values."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import outlive
from outlive.app.app import App
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Entry

SETTINGS = Settings(lease_seconds=5.0, poll_seconds=0.01, idle_seconds=0.0)
PATIENCE_SECONDS = 5
WORDS = ["one", "two", "three"]


@outlive.step(retry=outlive.Retry(attempts=2, delay="0.01s"))
async def talk() -> None:
    async with outlive.stream("tokens") as out:
        for word in WORDS:
            out.put(word)
    if outlive.attempt() == 1:
        raise ConnectionError


@outlive.flow(name="mutants_talking")
async def talking() -> None:
    await talk()


async def _chunks() -> list[outlive.Chunk]:
    async with asyncio.timeout(PATIENCE_SECONDS), App(MemoryStore(), settings=SETTINGS) as app:
        handle = await app.start(talking, id="r")
        await handle
        return [chunk async for chunk in handle.stream("tokens")]


def each_word_is_shown_once(folder: Path) -> None:
    """Of a step that was tried twice, a reader has the words of one attempt."""
    shown: list[Any] = []
    for chunk in asyncio.run(_chunks()):
        shown = [] if chunk.reset else [*shown, chunk.value]
    assert WORDS == shown


def each_attempt_begins_with_one_reset(folder: Path) -> None:
    """A reader hears of the second attempt before its first word."""
    assert [False, False, False, True, False, False, False] == [
        chunk.reset for chunk in asyncio.run(_chunks())
    ]


class _Held(MemoryStore):
    """Commits that publish something hang until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.is_held = False

    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
        if self.is_held:
            return None if not wait else [None] * len(batch)  # "done", and lost with the machine
        return await super().commit(batch, wait=wait)


def what_is_published_is_durable(folder: Path) -> None:
    """A value that the store has not taken is shown to nobody."""
    store, begun, go = _Held(), asyncio.Event(), asyncio.Event()

    @outlive.step
    async def work() -> None:
        store.is_held = True
        await outlive.publish(stage="lost")
        begun.set()
        await go.wait()

    @outlive.flow
    async def flow() -> None:
        await work()

    async def main() -> dict[str, Any]:
        app = App(store, settings=SETTINGS)
        handle = await app.start(flow, id="r")
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await begun.wait()
            return await handle.published()
        finally:
            store.is_held = False
            go.set()
            await app.aclose()

    assert {} == asyncio.run(main())


KILLERS = {
    "stream doubled on retry": each_word_is_shown_once,
    "reset lost": each_attempt_begins_with_one_reset,
    "publish visible before its commit": what_is_published_is_durable,
}
