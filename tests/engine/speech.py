"""Steps, effects and flows that stream words, and what their readers see."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

import outlive
from outlive.app import streams as feeds
from outlive.app.app import App
from outlive.model.events import Event
from outlive.model.streams import StreamFold
from tests.harness.readers import Screen

WORDS = [f"w{number}" for number in range(12)]
#: Between two words.
PAUSE = 0.02
#: How often a body was begun, and at which word it fails by then.
begun: dict[str, int] = {}
breaks: dict[str, list[int]] = {}


async def say(name: str, words: Sequence[str] = WORDS) -> int:
    begun[name] = begun.get(name, 0) + 1
    at = breaks.get(name, [])
    last = at.pop(0) if at else len(words)
    async with outlive.stream("tokens") as out:
        for number, word in enumerate(words):
            if number == last:
                raise ConnectionError(f"{name} broke at {number}")
            out.put(word)
            await asyncio.sleep(PAUSE)
    return len(words)


@outlive.step(retry=outlive.Retry(attempts=4, delay="0.1s", jitter=False))
async def talk(name: str) -> int:
    return await say(name)


@outlive.effect(
    not_happened=(ConnectionError,),
    retry=outlive.Retry(attempts=3, delay="0.1s"),
    doubt="retry",
    settle_after=0,
)
async def act(name: str) -> int:
    return await say(name)


@outlive.flow
async def talking() -> int:
    return await talk("a")


@outlive.flow
async def mixed() -> list[int]:
    async with outlive.stream("tokens") as out:
        out.put("flow begins")
        first = await talk("a")
        out.put("between")
        second, third = await asyncio.gather(talk("b"), act("c"))
        out.put("flow ends")
    return [first, second, third]


FLOW = "0/stream:tokens#1"
MIXED = {
    FLOW: ["flow begins", "between", "flow ends"],
    "0/talk#1": WORDS,
    "0.1/talk#1": WORDS,
    "0.2/act#1": WORDS,
}


async def read(app: App, run_id: str = "r", name: str = "tokens", after: int = 0) -> Screen:
    """What a reader sees of a run that is over."""
    screen = Screen()
    screen.offset = after
    handle = await app.get(run_id)
    await screen.follow(handle.stream(name, after))
    return screen


async def seen_in(events: Sequence[Event], run_id: str = "r") -> Screen:
    """What a reader sees of these events."""
    screen, fold = Screen(), StreamFold(run_id, "tokens")
    for seq, event in enumerate(events, 1):
        for item in fold.take(seq, event):
            codec: Any = _Plain
            screen.take(feeds.chunk_of(item, codec))
    return screen


class _Plain:
    """A codec for plain words."""

    decode = staticmethod(msgspec.msgpack.decode)
