"""What becomes of a ticket: a reply is written, a clerk lets it go out, the customer writes back.

outlive worker tickets
"""

import asyncio
import json
from pathlib import Path

import outlive

MAILS = Path("mails.jsonl")


@outlive.step(retry=outlive.Retry(attempts=5), timeout="60s")
async def write(talk: list[str]) -> str:
    """A pretend model."""
    return f"Thank you for writing “{talk[-1]}”."


def find_mail(key: str) -> object:
    """Ask the mail server what it sent."""
    sent = MAILS.read_text().splitlines() if MAILS.exists() else []
    return None if any(json.loads(line)["key"] == key for line in sent) else outlive.NOT_HAPPENED


@outlive.effect(check=find_mail)
async def send(text: str) -> None:
    """A pretend mail server: it sends at once and takes its time to reply."""
    with MAILS.open("a") as sent:
        sent.write(json.dumps({"key": outlive.key(), "text": text}) + "\n")
    await asyncio.sleep(1)


@outlive.flow
async def ticket(question: str) -> str:
    """From the customer's question to the end of the talk."""
    reply = await write([question])
    if not await outlive.ask(f"Send this? {reply}", type=bool, within="7d"):
        return "dropped"
    await send(reply)
    talk = [question, reply]
    async for message in outlive.requests("message", type=str, idle="30d"):
        talk += [message.value, await write([*talk, message.value])]
        await message.reply(talk[-1])
        if message.value == "bye":
            break
    return f"closed after {len(talk)} messages"
