"""A newsletter to a thousand readers, fifty at a time; some have no address.

    outlive run fan_out:newsletter --id may --input '["may"]'     # fails, and says for whom
    outlive retry may                                             # once readers.json is mended
    outlive resume may fan_out                                    # sends what was missing

Kill it in the middle: whoever got the letter does not get it again.
"""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import outlive

READERS = Path("readers.json")
OUTBOX = Path("outbox.jsonl")
AT_ONCE = 50


@dataclass(frozen=True)
class Letter:
    issue: str
    reader: str


@outlive.step
async def readers() -> list[str]:
    """Everybody who wants it."""
    return list(json.loads(READERS.read_text()))


def find_letter(key: str) -> object:
    """Ask the post office what it took."""
    taken = OUTBOX.read_text().splitlines() if OUTBOX.exists() else []
    return None if any(json.loads(line)["key"] == key for line in taken) else outlive.NOT_HAPPENED


@outlive.effect(key="{letter.issue}/{letter.reader}", check=find_letter, settle_after="100ms")
async def send(letter: Letter) -> None:
    """A pretend post office: a file with a line per letter."""
    address = json.loads(READERS.read_text())[letter.reader]
    if not address:
        raise outlive.NotHappened(f"{letter.reader} has no address")
    with OUTBOX.open("a") as outbox:
        outbox.write(json.dumps({"key": outlive.key(), "to": address}) + "\n")
    await asyncio.sleep(0.05)


@outlive.flow
async def newsletter(issue: str) -> str:
    """Everybody gets it; at the end it is told who did not."""
    letters = [Letter(issue, reader) for reader in await readers()]
    outcomes = await outlive.map(send, letters, limit=AT_ONCE)
    failures = [outcome.error for outcome in outcomes if outcome.error]
    if failures:
        who = "; ".join(str(failure) for failure in failures)
        raise ExceptionGroup(f"{len(failures)} of {len(letters)} not sent: {who}", failures)
    return f"sent {len(letters)} letters"
