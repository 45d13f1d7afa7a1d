"""The pretend model: answers from a script, each answer with a nonce that never comes again.

It runs in the show's own process, so that it sees every question the instant it comes in, and a
kill that is planned for a moment can't come too late: whoever is doomed is answered nothing.
"""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from typing import Any

from outlive.cli.demo.story import IN_CALL, Kill, Moment

QUERIES = ("the order", "the tracking", "the refund rules", "earlier tickets")
FINDINGS = {
    "the order": "A-1042: paid 19.99, sent on Monday",
    "the tracking": "A-1042: lost between two depots",
    "the refund rules": "a lost parcel is refunded in full",
    "earlier tickets": "none; a customer since 2019",
}


class Doom:
    """Kills the agent of one side, at the moments of a plan, each once."""

    def __init__(self, plan: Sequence[Kill], think_seconds: float) -> None:
        self._pending = {kill.moment: kill for kill in plan}
        self._think_seconds = think_seconds
        self._victim: Process | None = None
        self._moment: Moment | None = None
        self._strike: asyncio.Task[None] | None = None

    @property
    def is_near(self) -> bool:
        """A kill was decided, and has not been reported yet."""
        return self._moment is not None

    def aim(self, victim: Process) -> None:
        """Set the current agent."""
        self._victim = victim

    def plans(self, moment: Moment) -> bool:
        """Whether this moment is still to come."""
        return moment in self._pending

    def strikes(self, moment: Moment, answers: int = 0) -> bool:
        """True if the agent dies at this moment; the signal comes a little later."""
        kill = self._pending.get(moment)
        if kill is None or self.is_near:
            return False
        if moment is Moment.SEARCHING and answers < kill.answers:
            return False
        del self._pending[moment]
        self._moment = moment
        self._strike = asyncio.create_task(self._kill(kill))
        return True

    async def _kill(self, kill: Kill) -> None:
        await asyncio.sleep(kill.delay_seconds(self._think_seconds))
        if self._victim is not None and self._victim.returncode is None:
            self._victim.kill()

    def mourn(self) -> str:
        """The agent is dead; return the moment at which it died."""
        moment, self._moment = self._moment, None
        if moment is None and Moment.REFUND_MADE in self._pending:
            moment = self._pending.pop(Moment.REFUND_MADE).moment
        return "by somebody else" if moment is None else moment.value


class PretendModel:
    """Answers every connection, after a while."""

    def __init__(
        self,
        doom: Doom,
        think_seconds: float,
        nonce: Callable[[], str],
        on_asked: Callable[[], None],
        on_answered: Callable[[str], None],
    ) -> None:
        self._doom = doom
        self._think_seconds = think_seconds
        self._nonce = nonce
        self._on_asked, self._on_answered = on_asked, on_answered
        self._calls = 0
        self._searches_open: set[int] = set()
        self._searches_answered = 0

    def greet(self) -> None:
        """Note that an agent was started; earlier clients are dead."""
        self._searches_open.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: one call."""
        try:
            line = await reader.readline()
            if line:
                await self._answer(json.loads(line), reader, writer)
        finally:
            writer.close()

    async def _answer(
        self,
        question: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._calls += 1
        self._on_asked()
        task, parts = question["task"], question["parts"]
        if not await self._may_answer(task, self._calls, reader):
            return
        answer = f"{_script(task, parts)} ~{self._nonce()}"
        writer.write(json.dumps({"answer": answer}).encode() + b"\n")
        self._on_answered(f"search {_topic(parts[0])}" if task == "search" else task)
        if task == "search":
            self._after_search()

    async def _may_answer(self, task: str, call: int, reader: asyncio.StreamReader) -> bool:
        """Think; False if the client dies meanwhile."""
        if task in IN_CALL and self._doom.strikes(IN_CALL[task]):
            return await _is_alive_after(None, reader)
        seconds = self._think_seconds
        if task == "search":
            self._searches_open.add(call)
            seconds *= 0.4 + 0.2 * len(self._searches_open)
        is_alive = await _is_alive_after(seconds, reader)
        self._searches_open.discard(call)
        if is_alive and self._doom.is_near:
            return await _is_alive_after(None, reader)
        return is_alive

    def _after_search(self) -> None:
        self._searches_answered += 1
        self._doom.strikes(Moment.SEARCHING, self._searches_answered)
        if not self._searches_open:
            self._doom.strikes(Moment.SEARCHED)


async def _is_alive_after(seconds: float | None, asker: asyncio.StreamReader) -> bool:
    """Wait; a client says nothing more after its question, but hangs up when it dies."""
    try:
        async with asyncio.timeout(seconds):
            await asker.read()
    except TimeoutError:
        return True
    return False


def _topic(query: str) -> str:
    """A query without its nonce."""
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
