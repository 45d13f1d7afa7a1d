"""The pretend world as an agent sees it: a model, a bank, a post office, and a ticket.

Each is a socket in the agent's folder; a question is a line of JSON, and so is the answer.
"""

from __future__ import annotations

import asyncio
import json
import os

TICKET_ID = "ticket-1042"
TICKET = "My parcel A-1042 never came. I want my money back. Ada"


async def ask(place: str, **question: object) -> object:
    """Ask the service behind this socket."""
    reader, writer = await asyncio.open_unix_connection(f"{place}.sock")
    try:
        writer.write(json.dumps({"pid": os.getpid(), **question}).encode() + b"\n")
        line = await reader.readline()
    finally:
        writer.close()
    if not line:
        raise ConnectionError(f"the {place} hung up")
    return json.loads(line)["answer"]


async def ask_model(task: str, *parts: str) -> str:
    """An answer of the model: never the same twice, for each has a nonce of its own."""
    return str(await ask("model", task=task, parts=parts))


class Bank:
    """Pays as often as it is asked to; can be asked what it paid."""

    async def refund(self, order: str, cents: int, reason: str, *, key: str) -> str:
        """The number of the receipt."""
        return str(await ask("bank", key=key, order=order, cents=cents, reason=reason))

    async def find(self, key: str) -> str | None:
        """The receipt of a refund with this key, if there is one."""
        found = await ask("bank", find=key)
        return None if found is None else str(found)


class Post:
    """Sends as often as it is asked to; can be asked what it sent."""

    async def send(self, to: str, letter: str, *, key: str) -> str:
        """The number of the letter."""
        return str(await ask("post", key=key, to=to, letter=letter))

    async def find(self, key: str) -> str | None:
        """The number of the letter with this key, if there is one."""
        found = await ask("post", find=key)
        return None if found is None else str(found)


bank = Bank()
post = Post()
