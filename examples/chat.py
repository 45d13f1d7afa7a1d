"""A chat agent that lives for years: one run per person, whatever happens to the process.

    python chat.py ada

Type a line, get a reply; end it, kill it, come back next month: it knows what you said. After
every few messages the run begins a new chapter with what it wants to remember, so going on takes
no longer after a hundred thousand messages than after one.
"""

import sys
from dataclasses import dataclass

import outlive
from outlive import sync

CHAPTER = 20  # messages
REMEMBERED = 10


@dataclass(frozen=True)
class Memory:
    """What is carried from chapter to chapter."""

    count: int = 0
    first: str = ""
    latest: tuple[str, ...] = ()

    def plus(self, text: str) -> "Memory":
        latest = (*self.latest, text)[-REMEMBERED:]
        return Memory(self.count + 1, self.first or text, latest)


@outlive.step(retry=outlive.Retry(attempts=5), timeout="60s")
async def think(memory: Memory) -> str:
    """A pretend model; a real one would get the same."""
    return f"That was message {memory.count}. It all began with “{memory.first}”."


@outlive.flow
async def chat(memory: Memory) -> int:
    """Reply to each message, until there was none for a year."""
    async for message in outlive.requests("message", type=str, idle="365d"):
        memory = memory.plus(message.value)
        await message.reply(await think(memory))
        if memory.count % CHAPTER == 0:
            await outlive.carry(memory)
    return memory.count


def main(person: str) -> None:
    talk = sync.ensure(chat, Memory(), id=f"chat-{person}")
    for line in sys.stdin:
        print(talk.request("message", line.strip()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
