"""Agents that exchange messages: their ledgers, their saved states, and who may save.

An agent is a run with checkpoints. Whoever opens it holds it until the next one opens it; the
journal names the holder and refuses everybody else (``LeaseLost``).

Every channel, from one agent to another, counts its messages from 1. An agent's *ledger* says per
peer how many it has sent and how many it has taken, and keeps those of its own that the peer is
not known to have taken. The ledger is saved with the agent's state, in one commit, so each saved
state says exactly which messages went into it and came out of it.

Saved states of several agents fit together when

- nobody has taken what was not sent, and
- nobody has dropped what was not taken.

What was sent and not taken is in flight, and is in the sender's ledger. A message leaves its sender
when that sender's state is saved, and is dropped when its receiver's is: so the newest states fit
together at each instant. States that were read one after the other need not. ``fitting`` finds the
newest ones that do, by going back where an agent is ahead; it never goes further back than the
instant at which reading began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from outlive.checkpoints import decide as deciding
from outlive.checkpoints.schema import Schema, decode, encode
from outlive.checkpoints.snapshot import RunSnapshot, instant_of
from outlive.checkpoints.store import SnapshotStore, draft_of
from outlive.errors import LeaseLost
from outlive.model.checkpoints import Checkpoints, OfCheckpoints, Saved, SnapshotSaved
from outlive.ports import Clock

#: The metadata key of the ledger.
LEDGER: Final = "outlive.exchange"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLedger:
    """Messages that one agent has sent and taken, up to one of its saved states."""

    #: Agents it sends to and takes from.
    peers: tuple[str, ...] = ()
    #: By peer: how many messages were sent to it, and how many of its own were taken.
    sent: Mapping[str, int] = field(default_factory=dict)
    taken: Mapping[str, int] = field(default_factory=dict)
    #: By peer: the newest messages to it, oldest first; at least all that it has not taken.
    kept: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    #: The cut with which the agent came into its store, if it did.
    origin: str = ""

    def dropped(self, peer: str) -> int:
        """The number of messages to this peer that are no longer kept."""
        return self.sent.get(peer, 0) - len(self.kept.get(peer, ()))

    def message(self, peer: str, number: int) -> Any:
        """The message of that number to this peer; it must be kept."""
        return self.kept[peer][number - self.dropped(peer) - 1]

    def in_flight(self, peer: str, taken: int) -> list[Any]:
        """The messages in flight to a peer that has taken this many."""
        return [self.message(peer, n) for n in range(taken + 1, self.sent.get(peer, 0) + 1)]

    @property
    def partners(self) -> frozenset[str]:
        """Peers with which a message was ever exchanged."""
        return frozenset(peer for peer, count in (*self.sent.items(), *self.taken.items()) if count)

    def as_value(self) -> dict[str, Any]:
        """The ledger as a value of a snapshot's metadata."""
        return {
            "peers": list(self.peers),
            "sent": dict(self.sent),
            "taken": dict(self.taken),
            "kept": {peer: list(messages) for peer, messages in self.kept.items()},
            "origin": self.origin,
        }


#: The ledger of an agent that has not begun, or exchanges no messages.
SILENT: Final = MessageLedger()


def ledger_of(metadata: Mapping[str, Any] | None) -> MessageLedger:
    """The ledger that is saved in a snapshot's metadata."""
    value = (metadata or {}).get(LEDGER)
    if value is None:
        return SILENT
    return MessageLedger(
        peers=tuple(value["peers"]),
        sent=value["sent"],
        taken=value["taken"],
        kept=value["kept"],
        origin=value["origin"],
    )


def ahead(ledgers: Mapping[str, MessageLedger]) -> Iterator[str]:
    """Agents whose state is too new for another's."""
    for name, ledger in ledgers.items():
        took = any(
            count > ledgers[peer].sent.get(name, 0)
            for peer, count in ledger.taken.items()
            if peer in ledgers
        )
        dropped = any(
            ledger.dropped(peer) > ledgers[peer].taken.get(name, 0)
            for peer in ledger.sent
            if peer in ledgers
        )
        if took or dropped:
            yield name


def fitting(columns: Mapping[str, Sequence[MessageLedger]]) -> dict[str, int] | None:
    """The newest state of each agent, by its position, such that all fit together.

    A column has one agent's ledgers, the oldest first. None: a column does not reach back so far.
    """
    at = {name: len(column) - 1 for name, column in columns.items()}
    while behind := list(ahead({name: columns[name][at[name]] for name in at})):
        for name in behind:
            if not at[name]:
                return None
            at[name] -= 1
    return at


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An open agent, with its last saved state."""

    run_id: str
    holder: str
    #: None: it has not begun.
    snapshot: RunSnapshot | None
    schema: str

    @property
    def ledger(self) -> MessageLedger:
        """Its ledger in the saved state."""
        return SILENT if self.snapshot is None else ledger_of(self.snapshot.metadata)

    @property
    def step_id(self) -> str | None:
        """The step at which it was saved."""
        return None if self.snapshot is None else self.snapshot.step_id

    def state_by(self, schema: Schema) -> dict[str, Any] | None:
        """Its state, converted to this schema."""
        if self.snapshot is None:
            return None
        return schema.read(self.snapshot.state, self.schema, self.snapshot.where)


class Agents:
    """The agents of one store."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store, self._journals = store, store.journals

    @property
    def clock(self) -> Clock:
        """The clock of the storage."""
        return self._journals.place.ports.clock

    def now(self) -> datetime:
        """The current time."""
        return instant_of(self.clock.now_ms())

    def token(self, size: int) -> str:
        """A random name."""
        return self._journals.place.ports.entropy(size).hex()

    def copy(self, value: Any) -> Any:
        """A copy of a message.

        Raises:
            ValueRefused: a part of it can't be restored exactly.
        """
        return decode(encode({"message": value}, "a message"), "", 0)["message"]

    def draft(
        self, step_id: str, state: dict[str, Any], metadata: dict[str, Any], schema: str
    ) -> SnapshotSaved:
        """A snapshot to be saved."""
        return draft_of(step_id, state, metadata, schema=schema)

    # one agent

    async def open(self, run_id: str, holder: str, schema: Schema) -> Opened:
        """Open an agent; its previous holder loses it.

        Raises:
            WrongVersion: code of this schema can't read its state.
        """
        await self._store.check(schema, run_id)
        found = await self._store.restore(run_id, holder=holder, takes=True)
        snapshot, version = (None, "") if found is None else found
        if snapshot is not None:
            await self._carry_ledger(run_id, [snapshot])
        return Opened(run_id=run_id, holder=holder, snapshot=snapshot, schema=version)

    async def leave(self, run_id: str, holder: str) -> None:
        """Release an agent, unless somebody else has it by now."""
        await self._store.let_go(run_id, holder)

    async def save(self, run_id: str, draft: SnapshotSaved, holder: str) -> RunSnapshot:
        """Save an agent.

        Raises:
            LeaseLost: somebody else has it by now.
        """
        return await self._store.save(run_id, draft, holder)

    async def put(self, run_id: str, draft: SnapshotSaved) -> None:
        """Begin an agent with this state.

        Raises:
            LeaseLost: it has begun already.
        """
        run = self._journals.run(run_id)

        def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
            if has_begun(fold):
                raise LeaseLost(run_id)
            return deciding.save(run, draft)(fold)

        await self._journals.append(run_id, decide, lambda fold: None)

    async def delete(self, run_id: str) -> None:
        """Delete an agent.

        Raises:
            LeaseLost: somebody holds it.
        """
        await self._store.clear(run_id)

    # looking

    async def check_held(self, run_id: str, holder: str) -> None:
        """Check that this holder still has the agent.

        Raises:
            LeaseLost: somebody else has it by now.
        """
        await self._journals.look(run_id, lambda fold: fold.check_holder(run_id, holder))

    async def is_there(self, run_id: str) -> bool:
        """Whether an agent with this id exists."""
        return await self._journals.look(run_id, has_begun)

    async def seq(self, run_id: str) -> int:
        """The seq of the last saved state; 0: there is none."""
        return await self._journals.look(
            run_id, lambda fold: 0 if fold.latest is None else fold.latest.seq
        )

    async def since(self, run_id: str, seq: int) -> list[RunSnapshot]:
        """Snapshots saved from this seq on, the oldest first."""
        found = await self._journals.snapshots(
            run_id, lambda fold: [saved for saved in fold.line if saved.seq >= seq]
        )
        await self._carry_ledger(run_id, found)
        return found

    async def schema(self, run_id: str, seq: int) -> str:
        """The schema version of the state at this seq."""

        def view(fold: Checkpoints) -> str:
            saved = fold.at_seq(seq)
            return "" if saved is None else saved.event.schema

        return await self._journals.look(run_id, view)

    async def ledger(self, run_id: str) -> MessageLedger | None:
        """The ledger of an agent's last saved state; None: it was never saved."""
        found = await self._journals.snapshots(run_id, lambda fold: fold.line[-1:], states=False)
        await self._carry_ledger(run_id, found)
        return ledger_of(found[0].metadata) if found else None

    async def _carry_ledger(self, run_id: str, found: Sequence[RunSnapshot]) -> None:
        """Snapshots saved without the exchange get the ledger from before: nothing was sent."""
        if all(LEDGER in each.metadata for each in found):
            return
        known: Any = None
        for each in [*await self._before(run_id, found[0]), *found]:
            if LEDGER in each.metadata:
                known = each.metadata[LEDGER]
            elif known is not None:
                each.metadata[LEDGER] = {**known, "origin": ""}  # it was saved since it came

    async def _before(self, run_id: str, first: RunSnapshot) -> list[RunSnapshot]:
        """Earlier snapshots that may have a ledger: of a holder, or of a cut."""
        if LEDGER in first.metadata:
            return []

        def choose(fold: Checkpoints) -> list[Saved]:
            line = [saved for saved in fold.line if saved.seq < first.seq]
            return [saved for saved in line if saved.event.holder or saved is line[0]]

        return await self._journals.snapshots(run_id, choose, states=False)


def has_begun(fold: Checkpoints) -> bool:
    """Whether a journal of checkpoints has begun and is not about to be deleted."""
    return fold.brief is not None and fold.brief.status != "cleared"
