"""Cuts: one state of many agents, as if all had been saved at the same instant.

Taking a cut stops no agent and asks none: they may run, sleep or be dead. First the end of each
agent's journal is read, then the states saved since, and of these the newest that fit together
are chosen (``fitting``). The whole cut, states and messages in flight, is one commit: if the
process is killed before it there is no cut, after it there is one that needs nothing else.

Restoring writes the cut into the other store first, also in one commit. From then on the restore
will be finished, whatever is killed: missing agents are inserted if absent, by whoever restores it
again or first opens one of them. Or all of it is deleted again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from outlive.checkpoints import decide as deciding
from outlive.checkpoints.agents.agents import (
    LEDGER,
    SILENT,
    Agents,
    MessageLedger,
    ahead,
    fitting,
    has_begun,
    ledger_of,
)
from outlive.checkpoints.schema import decode
from outlive.checkpoints.snapshot import RunSnapshot, text_of
from outlive.checkpoints.store import SnapshotStore, draft_of
from outlive.errors import CutRefused, LeaseLost
from outlive.journal.shared import SharedJournal
from outlive.model.checkpoints import Checkpoints, CheckpointsEnded, OfCheckpoints
from outlive.model.ids import CUTS, check_run_id
from outlive.stores.seam import Store
from outlive.stores.types import PAGE_MAX, Query

T = TypeVar("T")

TAKEN: Final = "taken"
RESTORED: Final = "restored"
#: A name is part of its journal's id.
NAME_BYTES_MAX: Final = 400


def check_name(name: str) -> str:
    """Check a cut's name."""
    if len(check_run_id(name).encode()) > NAME_BYTES_MAX:
        raise CutRefused(name[:40] + "...", f"a name has at most {NAME_BYTES_MAX} bytes")
    return name


class CutJournals:
    """The cuts of one store, as values."""

    def __init__(self, store: SnapshotStore) -> None:
        self._journals = store.journals

    async def add(self, name: str, kind: str, value: dict[str, Any]) -> None:
        """Add a cut.

        Raises:
            LeaseLost: a cut of that name exists.
        """
        run = self._journals.run(name)
        draft = draft_of(kind, value)

        def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
            if has_begun(fold):
                raise LeaseLost(name)
            at = fold.time(run.now)
            ending = [CheckpointsEnded(at, "succeeded")] if kind == TAKEN else []
            return [*run.beginning(fold), msgspec.structs.replace(draft, at=at), *ending]

        await self._call(name, lambda journal: journal.append(decide, _nothing))

    async def end(self, name: str) -> None:
        """Mark a cut as finished."""
        now = self._journals.run(name).now

        def decide(fold: Checkpoints) -> Sequence[OfCheckpoints]:
            if not is_open(fold):
                return []
            return [CheckpointsEnded(fold.time(now), "succeeded")]

        await self._call(name, lambda journal: journal.append(decide, _nothing))

    async def find(self, name: str) -> tuple[str, bool, dict[str, Any]] | None:
        """Find a cut: its kind, whether it is unfinished, and its value."""

        async def work(journal: SharedJournal[Checkpoints]) -> Any:
            saved, is_left = await journal.look(lambda fold: (fold.latest, is_open(fold)))
            if saved is None:
                return None
            (raw,) = await journal.values([(saved.seq, saved.event.state)])
            return saved.event.step, is_left, decode(raw, name, saved.seq)

        found: tuple[str, bool, dict[str, Any]] | None = await self._call(name, work)
        return found

    async def names(self, *, is_open: bool = False) -> list[str]:
        """The names of all cuts, the oldest first; or only of those that are unfinished."""
        status = "running" if is_open else None

        async def work(store: Store) -> list[str]:
            found: list[str] = []
            after = None
            while True:
                page = await store.find(Query(prefix=CUTS, status=status), after, PAGE_MAX)
                heads = [each.head for each in page.items if each.header.status != "cleared"]
                found += [head.run_id.removeprefix(CUTS) for head in heads]
                after = page.next
                if after is None:
                    return found

        return await self._journals.place.call(work)

    async def delete(self, name: str) -> None:
        """Delete a cut."""
        run = self._journals.run(name)

        async def work(journal: SharedJournal[Checkpoints]) -> None:
            await journal.append(deciding.clear(run), _nothing)
            await journal.delete()

        await self._call(name, work)

    async def _call(
        self,
        name: str,
        work: Callable[[SharedJournal[Checkpoints]], Coroutine[Any, Any, T]],
    ) -> T:
        place, journal = self._journals.place, _journal_of(name)
        return await place.call(
            lambda store: work(SharedJournal(store, journal, Checkpoints, place.ports.entropy))
        )


def is_open(fold: Checkpoints) -> bool:
    """Whether a cut is unfinished."""
    return fold.brief is not None and fold.brief.status == "running"


def _journal_of(name: str) -> str:
    return CUTS + name


def _nothing(fold: Checkpoints) -> None:
    """Return nothing: the answer of a journal that is only appended to."""


#: Agents of one cut.
AGENTS_MAX: Final = 10_000
#: The number of times that all is read anew because something was deleted meanwhile.
TRIES_MAX: Final = 5

CutStatus: TypeAlias = Literal["taken", "restoring", "restored"]
#: Snapshots of each agent since reading began, the oldest first; None: it had not begun.
Columns: TypeAlias = Mapping[str, Sequence[RunSnapshot | None]]
Line: TypeAlias = Mapping[str, RunSnapshot | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One state of many agents, with the messages in flight."""

    #: Its name.
    name: str
    #: Unique among cuts of the same name in other stores.
    cut_id: str
    #: The time at which it was taken, in UTC.
    taken_at: datetime
    #: "taken" here; or "restoring" here, and "restored" once all agents are.
    status: CutStatus
    #: By agent: the saved state that is part of the cut; None: it had not begun.
    agents: Mapping[str, RunSnapshot | None]
    #: By agent: the version of its state's schema.
    schemas: Mapping[str, str] = field(repr=False)

    @property
    def in_flight(self) -> dict[tuple[str, str], list[Any]]:
        """By sender and receiver: messages that were sent and not taken, in order."""
        ledgers = _ledgers(self.agents)
        found = {
            (sender, receiver): ledger.in_flight(receiver, ledgers[receiver].taken.get(sender, 0))
            for sender, ledger in ledgers.items()
            for receiver in ledger.sent
        }
        return {channel: messages for channel, messages in found.items() if messages}


class Cuts:
    """The cuts of one store."""

    def __init__(self, agents: Agents, journals: CutJournals) -> None:
        self._agents, self._journals = agents, journals

    async def take(self, run_ids: Iterable[str], name: str | None = None) -> Cut:
        """Take a cut of these agents; the same name gives the same cut.

        Raises:
            CutRefused: the name belongs to another cut, an agent does not exist or exchanges
                messages with one that is not in the cut, or the agents don't fit together.
        """
        if name is None:
            name = f"cut-{self._agents.token(8)}"
        wanted = _checked(check_name(name), run_ids)
        cut = await self.find(name)
        if cut is None:
            cut = await self._take(name, wanted)
        if set(cut.agents) != set(wanted):
            raise CutRefused(name, f"there is one of that name, of {_names(cut.agents)}")
        return cut

    async def _take(self, name: str, wanted: Sequence[str]) -> Cut:
        line = await self._line(name, wanted)
        schemas = {
            agent: await self._agents.schema(agent, snapshot.seq)
            for agent, snapshot in line.items()
            if snapshot is not None
        }
        cut = Cut(
            name=name,
            cut_id=self._agents.token(16),
            taken_at=self._agents.now(),
            status="taken",
            agents={agent: at and replace(at, seq=0) for agent, at in line.items()},
            schemas=schemas,
        )
        return await self._add(cut, TAKEN)

    async def _line(self, name: str, wanted: Sequence[str]) -> Line:
        """The newest saved states of these that fit together."""
        columns = await self._columns(name, wanted)
        at = fitting({agent: [_ledger(each) for each in c] for agent, c in columns.items()})
        if at is None:
            who = _names(ahead(_ledgers({agent: c[-1] for agent, c in columns.items()})))
            raise CutRefused(name, f"{who} is ahead of the others: they were rolled back alone")
        line = {agent: column[at[agent]] for agent, column in columns.items()}
        _check_whole(name, line)
        return line

    async def _columns(self, name: str, wanted: Sequence[str]) -> Columns:
        """The last snapshot of each agent before any state was read, and those saved since.

        All ends are read before any state is. At the instant in between the newest states fit
        together, and all of them are here.
        """
        for _ in range(TRIES_MAX):
            ends = {agent: await self._agents.seq(agent) for agent in wanted}
            columns: dict[str, Sequence[RunSnapshot | None]] = {}
            for agent, end in ends.items():
                found = await self._agents.since(agent, end)
                columns[agent] = found if end else [None, *found]
            if all(column and _seq(column[0]) == ends[a] for a, column in columns.items()):
                return columns
        raise CutRefused(name, "states were deleted while they were read; try again")

    # what is kept

    async def find(self, name: str) -> Cut | None:
        """The cut of that name, or None."""
        found = await self._journals.find(check_name(name))
        return None if found is None else _cut_of(name, *found)

    async def get(self, name: str) -> Cut:
        """The cut of that name.

        Raises:
            CutRefused: there is none.
        """
        cut = await self.find(name)
        if cut is None:
            raise CutRefused(name, "no cut has this name; list_cuts() lists them all")
        return cut

    async def names(self) -> list[str]:
        """The names of all cuts, the oldest first."""
        return await self._journals.names()

    async def _add(self, cut: Cut, kind: str) -> Cut:
        """Add a new cut, or return the one that somebody else just added under its name."""
        try:
            await self._journals.add(cut.name, kind, _value_of(cut))
        except LeaseLost:
            return await self.get(cut.name)
        return cut

    async def delete(self, name: str) -> None:
        """Delete a cut; if its restore is unfinished, also the agents that it brought here.

        If it is killed, it can be called again.

        Raises:
            CutRefused: there is none of that name.
            LeaseLost: an agent that it brought here is open.
        """
        cut = await self.get(name)
        if cut.status == "restoring":
            for agent in cut.agents:
                if await self._came_with(cut, agent):
                    await self._agents.delete(agent)
        await self._journals.delete(name)

    # restoring

    async def restore(self, cut: Cut) -> None:
        """Restore the agents of a cut here, as one; again, if that was killed.

        Raises:
            CutRefused: an agent is here already, or another cut of that name.
        """
        there = await self.find(cut.name) or await self._begin(cut)
        if there.cut_id != cut.cut_id:
            raise CutRefused(cut.name, "another cut of that name is there")
        if there.status == "taken":
            raise CutRefused(cut.name, "it was taken there; restore it into another store")
        if there.status == "restoring":
            await self._finish(there)

    async def finish_for(self, run_id: str) -> None:
        """Finish every restore that includes this agent."""
        for name in await self._journals.names(is_open=True):
            cut = await self.find(name)
            if cut is not None and cut.status == "restoring" and run_id in cut.agents:
                await self._finish(cut)

    async def _begin(self, cut: Cut) -> Cut:
        """Begin a restore, unless somebody else just did."""
        taken = [agent for agent in cut.agents if await self._agents.is_there(agent)]
        if not taken:
            return await self._add(replace(cut, status="restoring"), RESTORED)
        there = await self.find(cut.name)
        if there is None:
            raise CutRefused(cut.name, f"{_names(taken)}: there already; take an empty store")
        return there

    async def _finish(self, cut: Cut) -> None:
        for agent, snapshot in cut.agents.items():
            if snapshot is not None:
                await self._put(cut, agent, snapshot)
        await self._journals.end(cut.name)

    async def _put(self, cut: Cut, agent: str, snapshot: RunSnapshot) -> None:
        ledger = replace(_ledger(snapshot), origin=cut.cut_id)
        metadata = {**snapshot.metadata, LEDGER: ledger.as_value()}
        schema = cut.schemas.get(agent, "")
        draft = self._agents.draft(snapshot.step_id, snapshot.state, metadata, schema)
        draft = msgspec.structs.replace(
            draft, snapshot_id=snapshot.snapshot_id, created_at=text_of(snapshot.created_at)
        )
        try:
            await self._agents.put(agent, draft)
        except LeaseLost:
            if not await self._came_with(cut, agent) and await self._is_left(cut):
                why = f"{agent!r} began there by itself; delete_cut() what is restored of it"
                raise CutRefused(cut.name, why) from None

    async def _is_left(self, cut: Cut) -> bool:
        """Whether the restore is still unfinished."""
        there = await self.find(cut.name)
        return there is not None and there.status == "restoring"

    async def _came_with(self, cut: Cut, agent: str) -> bool:
        """Whether an agent is as it was restored, and nobody has saved it since."""
        ledger = await self._agents.ledger(agent)
        return ledger is not None and ledger.origin == cut.cut_id


def _checked(name: str, run_ids: Iterable[str]) -> list[str]:
    if isinstance(run_ids, str) or not isinstance(run_ids, Iterable):
        raise CutRefused(name, f"it needs a list of ids, not {run_ids!r}")
    wanted = [check_run_id(run_id) for run_id in dict.fromkeys(run_ids)]
    if not 0 < len(wanted) <= AGENTS_MAX:
        raise CutRefused(name, f"it needs between 1 and {AGENTS_MAX} agents, not {len(wanted)}")
    return wanted


def _check_whole(name: str, line: Line) -> None:
    """Check that no message leaves the cut, and that agents without a state are no misprint."""
    ledgers = _ledgers(line)
    for agent, ledger in ledgers.items():
        if others := ledger.partners - ledgers.keys():
            raise CutRefused(name, f"{agent!r} exchanges messages with {_names(others)}: add them")
    peers = {peer for ledger in ledgers.values() for peer in ledger.peers}
    if unknown := [agent for agent, at in line.items() if at is None and agent not in peers]:
        raise CutRefused(name, f"{_names(unknown)}: no checkpoint, and nobody's peer")


def _names(agents: Iterable[str]) -> str:
    return ", ".join(repr(agent) for agent in sorted(agents))


def _seq(snapshot: RunSnapshot | None) -> int:
    return 0 if snapshot is None else snapshot.seq


def _ledgers(line: Line) -> dict[str, MessageLedger]:
    return {agent: _ledger(snapshot) for agent, snapshot in line.items()}


def _ledger(snapshot: RunSnapshot | None) -> MessageLedger:
    return SILENT if snapshot is None else ledger_of(snapshot.metadata)


def _value_of(cut: Cut) -> dict[str, Any]:
    """The cut as a stored value."""
    return {
        "cut_id": cut.cut_id,
        "taken_at": cut.taken_at,
        "agents": {agent: at and at.to_dict() for agent, at in cut.agents.items()},
        "schemas": dict(cut.schemas),
    }


def _cut_of(name: str, kind: str, is_left: bool, value: Mapping[str, Any]) -> Cut:
    schemas = value["schemas"]
    agents = {
        agent: at and RunSnapshot.from_dict({**at, "schema_version": schemas.get(agent, "")})
        for agent, at in value["agents"].items()
    }
    status: CutStatus = "taken" if kind == TAKEN else "restoring" if is_left else "restored"
    return Cut(
        name=name,
        cut_id=value["cut_id"],
        taken_at=value["taken_at"],
        status=status,
        agents=agents,
        schemas=schemas,
    )
