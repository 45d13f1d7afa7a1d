"""The pretend model: answers from a script, each answer with a nonce that never comes again.

It runs in the show's own process, so that it sees every question the instant it comes in, and a
kill that is planned for a moment can't come too late: whoever is doomed is answered nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Protocol

from outlive.cli.demo.kills import IN_CALL, Moment

QUERIES = ("the order", "the tracking", "the refund rules", "earlier tickets")
FINDINGS = {
    "the order": "A-1042: paid 19.99, sent on Monday",
    "the tracking": "A-1042: lost between two depots",
    "the refund rules": "a lost parcel is refunded in full",
    "earlier tickets": "none; a customer since 2019",
}


class Doom(Protocol):
    """Decides who dies when."""

    @property
    def is_near(self) -> bool:
        """A kill was decided and has not come yet."""
        ...

    def strikes(self, moment: Moment, answers: int = 0) -> bool:
        """True if the agent dies at this moment."""
        ...


class PretendModel:
    """Answers whoever connects, after a while."""

    def __init__(
        self,
        doom: Doom,
        think_seconds: float,
        nonce: Callable[[], str],
        answered: Callable[[str], None],
    ) -> None:
        self.calls = 0
        self._doom = doom
        self._think_seconds = think_seconds
        self._nonce = nonce
        self._answered = answered
        self._searches_open = 0
        self._searches_answered = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: one call."""
        try:
            question = json.loads(await reader.readline())
            self.calls += 1
            task, parts = question["task"], question["parts"]
            if await self._may_answer(task, reader):
                answer = f"{_script(task, parts)} ~{self._nonce()}"
                writer.write(json.dumps({"answer": answer}).encode() + b"\n")
                self._answered(task if task != "search" else f"search {_topic(parts[0])}")
                self._after(task)
        finally:
            writer.close()

    async def _may_answer(self, task: str, reader: asyncio.StreamReader) -> bool:
        """Think; False if the asker dies meanwhile, and then only when it is dead."""
        doomed = task in IN_CALL and self._doom.strikes(IN_CALL[task])
        if not doomed:
            await self._think(task)
        if doomed or self._doom.is_near:
            await reader.read()
        return not reader.at_eof()

    async def _think(self, task: str) -> None:
        if task != "search":
            await asyncio.sleep(self._think_seconds)
            return
        self._searches_open += 1
        try:
            await asyncio.sleep(self._think_seconds * (0.4 + 0.2 * self._searches_open))
        finally:
            self._searches_open -= 1

    def _after(self, task: str) -> None:
        if task != "search":
            return
        self._searches_answered += 1
        self._doom.strikes(Moment.SEARCHING, self._searches_answered)
        if not self._searches_open:
            self._doom.strikes(Moment.SEARCHED)


def _topic(query: str) -> str:
    """A query without the nonce that it came with."""
    return query.partition(" ~")[0]


def _script(task: str, parts: list[str]) -> str:
    match task:
        case "plan":
            return "\n".join(QUERIES)
        case "search":
            return FINDINGS[_topic(parts[0])]
        case "decide":
            return f"lost parcel, {len(parts) - 1} findings agree"
        case "write":
            return f"Dear Ada, we sent you 19.99 (receipt {parts[2]}): {parts[1]}"
        case _:
            return f"Closed: refund {parts[1]}, letter {parts[2]}"
