"""Runs of several chapters, with people outside who do not care where one ends."""

from __future__ import annotations

import asyncio

import outlive
from outlive.engine import people
from outlive.engine import verbs as fanout
from outlive.engine.verbs import carry
from outlive.model.events import ChapterBegan, SignalReceived
from tests.harness.theatre import Theatre
from tests.harness.world import note, pay

MESSAGES = 5


@outlive.flow
async def chatting(heard: list[str], left: int) -> list[str]:
    """Two messages a chapter; whatever else was said meanwhile is the next chapter's."""
    for _ in range(min(2, left)):
        heard = [*heard, await people.wait_signal("say", str)]
        await note(heard[-1])
        left -= 1
    await pay(f"chapter {len(heard)}")
    if left:
        await carry(heard, left)
    return heard


async def talk(theatre: Theatre) -> None:
    """Say all of it at once, each thing once."""
    for number in range(MESSAGES):
        await theatre.signal("r", "say", f"{number}", id=f"say{number}")


@outlive.flow
async def failing_late(chapter: int) -> None:
    """What earlier chapters did is undone, too."""
    await pay(f"part {chapter}")
    if chapter < 3:
        await carry(chapter + 1)
    await note("now")
    raise ValueError("late")


@outlive.flow
async def never_ending(chapter: int) -> None:
    """Ends only when somebody wants it to, in whatever chapter, between two of them, too."""
    pending = asyncio.ensure_future(pay(f"part {chapter}"))
    await asyncio.sleep(0)
    if chapter < 4:
        await carry(chapter + 1)
    await pending
    await people.wait_signal("never", str)


async def cancel_early(theatre: Theatre) -> None:
    """As soon as the second chapter has begun."""
    if await theatre.events("r", ChapterBegan):
        await theatre.cancel("r")


@outlive.flow
async def parenting(chapter: int) -> str:
    """A child of an earlier chapter is not one of this."""
    said = await fanout.call(whispering, chapter)
    if chapter < 2:
        await carry(chapter + 1)
    return f"{said} {await people.wait_signal('word', str)}"


@outlive.flow
async def whispering(chapter: int) -> str:
    """A child."""
    return await note(f"whisper {chapter}")


async def send_word(theatre: Theatre) -> None:
    """Once, early."""
    if not await theatre.events("r", SignalReceived):
        await theatre.signal("r", "word", "hi", id="word")
