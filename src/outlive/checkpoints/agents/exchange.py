"""Durable messages between agents: sent and taken messages are saved with the state.

An agent opens its ``Exchange``, continues from ``exchange.state``, sends, receives, and saves:

    exchange = await runner.exchange("planner", peers=["writer"])
    message = await exchange.receive()
    exchange.send("writer", {"chapter": 1})
    await exchange.checkpoint("planned", state)

Nothing counts before ``checkpoint`` returns, and everything counts then: the state, the sent and
the taken messages, in one commit. An agent killed before it repeats all of it, and nobody has
seen the first time; killed after it, it repeats nothing. So no message is lost or duplicated,
whatever is killed when.

A message stays in its sender's journal until its receiver has saved a state that includes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from outlive.checkpoints.agents.agents import LEDGER, SILENT, Agents, MessageLedger, Opened, ahead
from outlive.checkpoints.agents.cuts import Cuts
from outlive.checkpoints.schema import Schema
from outlive.checkpoints.snapshot import RunSnapshot
from outlive.checkpoints.store import metadata_of
from outlive.errors import ExchangeRefused
from outlive.model.ids import check_run_id
from outlive.model.retry import Duration, parse_duration

#: The largest number of messages to one peer that may be in flight.
KEPT_MAX: Final = 10_000
#: From this number on it is checked whether the peer has taken some.
KEPT_MANY: Final = 100
#: The interval at which a receiver looks: at first, and after a long wait.
LOOK_SECONDS: Final = 0.01
LOOK_SECONDS_MAX: Final = 0.5

REMEDY: Final = "agents that exchange messages go back together: restore a cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message from one agent to another."""

    #: The agent that sent it.
    sender: str
    #: From 1, per sender and receiver.
    number: int
    #: The message, exactly as it was sent.
    body: Any


class Exchange:
    """One agent among others. Opened by ``DurableRunner.exchange``; for one task at a time."""

    def __init__(
        self, agents: Agents, schema: Schema, peers: Iterable[str], opened: Opened
    ) -> None:
        self.run_id = opened.run_id
        self._agents, self._schema, self._holder = agents, schema, opened.holder
        #: The step of its last save; None: the agent has not begun.
        self.step_id = opened.step_id
        self._state = opened.state_by(schema)
        ledger = opened.ledger
        self.peers = peers_of(self.run_id, peers, ledger)
        self._sent, self._taken = dict(ledger.sent), dict(ledger.taken)
        self._kept = {peer: list(messages) for peer, messages in ledger.kept.items()}
        #: By peer: its ledger at the last look.
        self._seen: dict[str, MessageLedger] = {}
        self._turn = 0

    @property
    def state(self) -> dict[str, Any] | None:
        """A copy of the last saved state; None: the agent has not begun."""
        state: dict[str, Any] | None = self._agents.copy(self._state)
        return state

    def send(self, to: str, message: Any) -> int:
        """Send a message, with the next save; return its number.

        Raises:
            ExchangeRefused: the receiver is not a peer of this agent, or has not taken the last
                ``KEPT_MAX`` messages.
            ValueRefused: the message can't be restored exactly.
        """
        if to not in self.peers:
            raise ExchangeRefused(self.run_id, f"{to!r} is not one of its peers; name it in peers=")
        kept = self._kept.setdefault(to, [])
        if len(kept) >= KEPT_MAX:
            why = f"{to!r} has not taken the last {KEPT_MAX} messages: save, and wait for it"
            raise ExchangeRefused(self.run_id, why)
        kept.append(self._agents.copy(message))
        self._sent[to] = self._sent.get(to, 0) + 1
        return self._sent[to]

    async def receive(self, timeout: Duration | None = None) -> Message | None:
        """The next message, of each sender in the order of sending; None: none in time.

        It counts as taken when the next state is saved. ``timeout=0`` looks once.

        Raises:
            ExchangeRefused: a peer, or this agent, was rolled back alone.
            LeaseLost: somebody else has opened this agent since.
        """
        clock, until = self._agents.clock, None
        if timeout is not None:
            until = clock.monotonic() + parse_duration(timeout)
        pause = LOOK_SECONDS
        while (message := self._take()) is None:
            await self.look()
            if (message := self._take()) is not None:
                break
            if until is not None and clock.monotonic() >= until:
                break
            await asyncio.sleep(pause)
            pause = min(2 * pause, LOOK_SECONDS_MAX)
        return message

    async def checkpoint(
        self, step_id: str, state: dict[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> RunSnapshot:
        """Save the state with everything that was sent and taken since the last one.

        Raises:
            LeaseLost: somebody else has opened this agent since.
            ValueRefused: a part of the state can't be restored exactly.
        """
        said = metadata_of(metadata)
        if LEDGER in said:
            raise ExchangeRefused(self.run_id, f"metadata can't have {LEDGER!r}: that is ours")
        if any(len(kept) >= KEPT_MANY for kept in self._kept.values()):
            await self.look()
        self._drop_what_was_taken()
        noted = {**said, LEDGER: self._ledger().as_value()}
        draft = self._agents.draft(step_id, state, noted, self._schema.of(state))
        saved = await self._agents.save(self.run_id, draft, self._holder)
        self._state, self.step_id = saved.state, saved.step_id
        return saved

    async def leave(self) -> None:
        """Release the agent, so that anybody may save or delete it; it can be opened again."""
        await self._agents.leave(self.run_id, self._holder)

    async def look(self) -> None:
        """Read what the peers have saved.

        Raises:
            ExchangeRefused: a peer, or this agent, was rolled back alone.
            LeaseLost: somebody else has opened this agent since.
        """
        for peer in self.peers:
            seen = await self._agents.ledger(peer)
            if seen is not None:  # otherwise it has not begun, or is still to be restored
                await self._check(peer, seen)
                self._seen[peer] = seen

    async def _check(self, peer: str, seen: MessageLedger) -> None:
        """Check that nobody was rolled back alone: then its numbers would mean other messages."""
        for name in ahead({self.run_id: self._ledger(), peer: seen}):
            # If somebody else continued this agent, it is only this process that is behind.
            await self._agents.check_held(self.run_id, self._holder)
            other = peer if name == self.run_id else self.run_id
            why = f"{name!r} is ahead of {other!r}, which was rolled back alone; {REMEDY}"
            raise ExchangeRefused(self.run_id, why)

    def _ledger(self) -> MessageLedger:
        # Its origin no longer matters: whoever opens it has finished the restore.
        return MessageLedger(peers=self.peers, sent=self._sent, taken=self._taken, kept=self._kept)

    def _drop_what_was_taken(self) -> None:
        """Drop messages that the receiver's saved state has taken."""
        for peer, seen in self._seen.items():
            kept = self._kept.get(peer, [])
            dropped = self._sent.get(peer, 0) - len(kept)
            del kept[: max(0, seen.taken.get(self.run_id, 0) - dropped)]

    def _take(self) -> Message | None:
        """The next message that was seen; peers take turns."""
        for offset in range(len(self.peers)):
            turn = (self._turn + offset) % len(self.peers)
            peer = self.peers[turn]
            seen, number = self._seen.get(peer, SILENT), self._taken.get(peer, 0) + 1
            if number <= seen.sent.get(self.run_id, 0):
                self._turn, self._taken[peer] = turn + 1, number
                body = self._agents.copy(seen.message(self.run_id, number))
                return Message(sender=peer, number=number, body=body)
        return None


def peers_of(run_id: str, peers: Iterable[str], ledger: MessageLedger) -> tuple[str, ...]:
    """Check the peers that an agent names."""
    if isinstance(peers, str) or not isinstance(peers, Iterable):
        raise ExchangeRefused(run_id, f"peers is a list of ids, not {peers!r}")
    named = tuple(check_run_id(peer) for peer in dict.fromkeys(peers))
    if run_id in named:
        raise ExchangeRefused(run_id, "an agent can't be its own peer")
    if left_out := sorted(ledger.partners - set(named)):
        others = ", ".join(map(repr, left_out))
        raise ExchangeRefused(run_id, f"it has exchanged messages with {others}: name them, too")
    return named


async def open_exchange(
    agents: Agents, cuts: Cuts, schema: Schema, run_id: str, peers: Iterable[str]
) -> Exchange:
    """Open an agent, after finishing any restore that includes it."""
    ledger = await agents.ledger(check_run_id(run_id))
    known = peers_of(run_id, peers, ledger or SILENT)
    if ledger is None or ledger.origin:
        await cuts.finish_for(run_id)
    opened = await agents.open(run_id, agents.token(8), schema)
    exchange = Exchange(agents, schema, known, opened)
    await exchange.look()
    return exchange
