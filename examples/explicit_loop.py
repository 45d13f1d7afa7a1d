"""A plan-act-observe-reflect agent as an explicit machine of states.

    python explicit_loop.py trip-1 "a trip to Oslo"

Kill it wherever you like and start it again with the same id: it goes on from its last checkpoint.
The flight is booked once, the mail is sent once, and both come last in the plan. The model is a
pretend one; airline and mail server are files.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import outlive
from outlive.loop import Loop, State, arrange, drive

BOOKED, SENT = Path("booked.jsonl"), Path("sent.jsonl")
#: How long a pretend model thinks, and a pretend airline takes to reply.
SECONDS = float(os.environ.get("EXAMPLE_SECONDS", "0.5"))


@outlive.step(retry=outlive.Retry(attempts=5), timeout="90s")
async def think(prompt: str) -> list[dict[str, str]]:
    """A pretend model that knows one trade."""
    await asyncio.sleep(SECONDS)
    if prompt.startswith("plan"):
        return [
            {"tool": "book", "what": "flight"},
            {"tool": "search", "what": "weather"},
            {"tool": "mail", "what": "itinerary"},
            {"tool": "search", "what": "museums"},
        ]
    return []  # nothing to add


@outlive.step
async def search(what: str) -> str:
    """A read: harmless to repeat."""
    await asyncio.sleep(SECONDS / 5)
    return f"{what}: all about it"


def find_booking(key: str) -> object:
    """Ask the airline what became of a booking."""
    for line in BOOKED.read_text().splitlines() if BOOKED.exists() else []:
        if json.loads(line)["key"] == key:
            return json.loads(line)["receipt"]
    return outlive.NOT_HAPPENED


@outlive.effect(check=find_booking, settle_after="1s")
async def book(what: str) -> str:
    """An airline that books at once, and takes its time to reply."""
    receipt = f"{what}: seat 12A"
    with BOOKED.open("a") as file:
        file.write(json.dumps({"key": outlive.key(), "receipt": receipt}) + "\n")
    await asyncio.sleep(SECONDS)
    return receipt


@outlive.effect(doubt="retry")
async def mail(what: str) -> str:
    """A mail server that knows keys: the same one again is the same letter."""
    sent = SENT.read_text().splitlines() if SENT.exists() else []
    if outlive.key() not in [json.loads(line)["key"] for line in sent]:
        with SENT.open("a") as file:
            file.write(json.dumps({"key": outlive.key(), "what": what}) + "\n")
    await asyncio.sleep(SECONDS / 5)
    return f"{what}: sent"


TOOLS: dict[str, Any] = {"search": search, "book": book, "mail": mail}


class Travel(Loop):
    """Plans, does one thing after another, looks at what came of it, and thinks again."""

    keep = "7d"  # after its end, for those who look; workers delete it then

    async def on_planning(self) -> State:
        """What can't be repeated comes last."""
        say(self)
        arranged = arrange(await think(f"plan {self.request}"), lambda each: TOOLS[each["tool"]])
        self.plan, self.context["why"] = arranged.plan, arranged.why
        return State.EXECUTING

    async def on_executing(self) -> State:
        """No checkpoint follows; a tool that was under way is settled, not simply used again."""
        say(self)
        self.heard = await TOOLS[self.current["tool"]](self.current["what"])
        return State.OBSERVING

    async def on_observing(self) -> State:
        say(self)
        self.results.append(self.heard)
        self.cursor += 1
        return State.REFLECTING

    async def on_reflecting(self) -> State:
        say(self)
        self.plan += await think(f"reflect on {self.results[-1]}")
        return State.COMPLETE if self.current is None else State.EXECUTING


def say(loop: Loop) -> None:
    """Flow code may print; it says it again when it is replayed."""
    print(f"{loop.seq} {loop.state.name}", flush=True)
    time.sleep(SECONDS / 10)  # so that there is time to kill it


async def main(id: str, request: str) -> None:
    loop = await drive(Travel(request, id=id))
    print(f"{loop.state.name}: {', '.join(loop.results)}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
