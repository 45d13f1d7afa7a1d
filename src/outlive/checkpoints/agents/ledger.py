"""What an agent has sent and taken, and which states of many agents fit together. Pure.

Every channel, from one agent to another, counts its messages from 1. An agent's *ledger* says per
peer how many it has sent and how many it has taken, and keeps those of its own that the peer is
not known to have taken. The ledger is saved with the agent's state, in one commit, so each saved
state says exactly which messages went into it and came out of it.

Saved states of several agents fit together when

- nobody has taken what was not sent, and
- nobody has dropped what was not taken.

What was sent and not taken is in flight, and is in the sender's ledger. A message leaves its sender
when that sender's state is saved, and is dropped when its receiver's is: so the newest states fit
together at each instant. Those that were read one after the other need not. ``fitting`` finds the
newest that do, by going back where somebody is ahead; it never goes further back than the
instant at which reading began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

#: Under this name a ledger stands in its snapshot's metadata.
LEDGER: Final = "outlive.exchange"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLedger:
    """What one agent has sent and taken, up to one of its saved states."""

    #: Those it sends to and takes from.
    peers: tuple[str, ...] = ()
    #: By peer: how many messages were sent to it, and how many of its own were taken.
    sent: Mapping[str, int] = field(default_factory=dict)
    taken: Mapping[str, int] = field(default_factory=dict)
    #: By peer: the newest messages to it, oldest first; at least all that it has not taken.
    kept: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    #: The cut with which the agent came into its store, if it did.
    origin: str = ""

    def dropped(self, peer: str) -> int:
        """How many of the messages to this peer are no longer kept."""
        return self.sent.get(peer, 0) - len(self.kept.get(peer, ()))

    def message(self, peer: str, number: int) -> Any:
        """The message of that number to this peer; it must be kept."""
        return self.kept[peer][number - self.dropped(peer) - 1]

    def in_flight(self, peer: str, taken: int) -> list[Any]:
        """The messages to a peer that has taken so many."""
        return [self.message(peer, n) for n in range(taken + 1, self.sent.get(peer, 0) + 1)]

    @property
    def partners(self) -> frozenset[str]:
        """Those with whom a message was ever exchanged."""
        return frozenset(peer for peer, count in (*self.sent.items(), *self.taken.items()) if count)

    def as_value(self) -> dict[str, Any]:
        """As it stands in a snapshot."""
        return {
            "peers": list(self.peers),
            "sent": dict(self.sent),
            "taken": dict(self.taken),
            "kept": {peer: list(messages) for peer, messages in self.kept.items()},
            "origin": self.origin,
        }


#: Of an agent that has not begun, or does not talk.
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
    """Those whose state is too new for somebody else's."""
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
