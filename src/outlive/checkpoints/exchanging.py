"""What a runner does for many agents at once: their exchange, cuts, and restoring them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from outlive.checkpoints.agent_journals import Agents
from outlive.checkpoints.cut_journals import CutJournals
from outlive.checkpoints.cuts import Cut, Cuts
from outlive.checkpoints.exchange import Exchange, peers_of
from outlive.checkpoints.ledger import SILENT
from outlive.checkpoints.schemas import Schema
from outlive.checkpoints.store import SnapshotStore, snapshots_of
from outlive.errors import ExchangeRefused
from outlive.model.ids import check_run_id


class HasStore(Protocol):
    """Whatever saves into a store: a runner."""

    store: SnapshotStore


class Exchanging:
    """The verbs of a runner that are about many agents."""

    store: SnapshotStore
    schema: Schema
    enabled: bool

    async def exchange(self, run_id: str, peers: Iterable[str]) -> Exchange:
        """Open an agent that exchanges messages with these; whoever had it open has it no more.

        Raises:
            ExchangeRefused: it has exchanged messages with others as well, it or a peer was put
                back to an older state by itself, or checkpoints are switched off.
            WrongVersion: its schema is another, and no upcaster leads to this code's.
        """
        if not self.enabled:
            why = "checkpoints are switched off, and messages travel with them"
            raise ExchangeRefused(run_id, why)
        agents = Agents(self.store)
        return await open_exchange(agents, self._cuts(), self.schema, run_id, peers)

    async def cut(self, run_ids: Iterable[str], name: str | None = None) -> Cut:
        """One state of many agents, with the messages under way; the same name gives the same cut.

        Agents go on meanwhile, or are dead. Durable and whole when this returns; killed on its
        way, there is none, and the same call takes it.

        Raises:
            CutRefused: the name is that of another cut, an agent does not exist or exchanges
                messages with one that is not of the cut, or was put back by itself.
        """
        return await self._cuts().take(run_ids, name)

    async def list_cuts(self) -> list[str]:
        """The names of the cuts that there are, the oldest first."""
        return await self._cuts().names()

    async def get_cut(self, name: str) -> Cut:
        """The cut of that name.

        Raises:
            CutRefused: there is none.
        """
        return await self._cuts().get(name)

    async def delete_cut(self, name: str) -> None:
        """Forget a cut; if it is not restored to its end, also the agents that it brought here.

        Raises:
            CutRefused: there is none of that name.
            LeaseLost: an agent that it brought here is open.
        """
        await self._cuts().delete(name)

    def _cuts(self) -> Cuts:
        return Cuts(Agents(self.store), CutJournals(self.store))


async def restore_cut(cut: Cut, *, into: SnapshotStore | HasStore) -> None:
    """Put the agents of a cut into another store, as one: all states, all messages under way.

    Killed on its way, it is called again; or the first agent that is opened there ends it; or
    ``delete_cut`` takes it back.

    Raises:
        CutRefused: an agent is there already, or another cut of that name.
    """
    store = snapshots_of(into, "into")
    await Cuts(Agents(store), CutJournals(store)).restore(cut)


async def open_exchange(
    agents: Agents, cuts: Cuts, schema: Schema, run_id: str, peers: Iterable[str]
) -> Exchange:
    """Open an agent, once everything that a cut brings here is here."""
    ledger = await agents.ledger(check_run_id(run_id))
    known = peers_of(run_id, peers, ledger or SILENT)
    if ledger is None or ledger.origin:
        await cuts.finish_for(run_id)
    opened = await agents.open(run_id, agents.token(8), schema)
    exchange = Exchange(agents, schema, known, opened)
    await exchange.look()
    return exchange
