"""Agents as their exchange and their cuts need them: saved states with ledgers, and who saves.

An agent is a run with checkpoints. Whoever opens it has it to itself from then on, until the next
one opens it; the journal says who, and refuses others (``LeaseLost``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outlive.checkpoints import decide as deciding
from outlive.checkpoints.agents.ledger import LEDGER, SILENT, MessageLedger, ledger_of
from outlive.checkpoints.schema import Schema, decode, encode
from outlive.checkpoints.snapshot import RunSnapshot, instant_of
from outlive.checkpoints.store import SnapshotStore, draft_of
from outlive.errors import LeaseLost
from outlive.model.checkpoints import Checkpoints, OfCheckpoints, Saved, SnapshotSaved
from outlive.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An agent that somebody has, as it was saved last."""

    run_id: str
    holder: str
    #: None: it has not begun.
    snapshot: RunSnapshot | None
    schema: str

    @property
    def ledger(self) -> MessageLedger:
        """What it had sent and taken."""
        return SILENT if self.snapshot is None else ledger_of(self.snapshot.metadata)

    @property
    def step_id(self) -> str | None:
        """The step at which it was saved."""
        return None if self.snapshot is None else self.snapshot.step_id

    def state_by(self, schema: Schema) -> dict[str, Any] | None:
        """Its state, as the code of that schema has it."""
        if self.snapshot is None:
            return None
        return schema.read(self.snapshot.state, self.schema, self.snapshot.where)


class Agents:
    """The agents of one store."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store, self._journals = store, store.journals

    @property
    def clock(self) -> Clock:
        """What time it is."""
        return self._journals.place.ports.clock

    def now(self) -> datetime:
        """This instant."""
        return instant_of(self.clock.now_ms())

    def token(self, size: int) -> str:
        """A name that nobody else has."""
        return self._journals.place.ports.entropy(size).hex()

    def copy(self, value: Any) -> Any:
        """The value as it is now.

        Raises:
            ValueRefused: a part of it would not come back as it is.
        """
        return decode(encode({"message": value}, "a message"), "", 0)["message"]

    def draft(
        self, step_id: str, state: dict[str, Any], metadata: dict[str, Any], schema: str
    ) -> SnapshotSaved:
        """A state that is to be saved, as it is now."""
        return draft_of(step_id, state, metadata, schema=schema)

    # one agent

    async def open(self, run_id: str, holder: str, schema: Schema) -> Opened:
        """Have an agent from here on.

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
        """Let go of an agent, unless somebody else has it by now."""
        await self._store.let_go(run_id, holder)

    async def save(self, run_id: str, draft: SnapshotSaved, holder: str) -> RunSnapshot:
        """Save an agent that this one has.

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
        """Forget an agent.

        Raises:
            LeaseLost: somebody has it.
        """
        await self._store.clear(run_id)

    # looking

    async def check_held(self, run_id: str, holder: str) -> None:
        """That this one still has the agent.

        Raises:
            LeaseLost: somebody else has it by now.
        """
        await self._journals.look(run_id, lambda fold: fold.check_holder(run_id, holder))

    async def is_there(self, run_id: str) -> bool:
        """Whether there is an agent of that id."""
        return await self._journals.look(run_id, has_begun)

    async def seq(self, run_id: str) -> int:
        """Where the last saved state stands; 0: there is none."""
        return await self._journals.look(
            run_id, lambda fold: 0 if fold.latest is None else fold.latest.seq
        )

    async def since(self, run_id: str, seq: int) -> list[RunSnapshot]:
        """What was saved from there on, the oldest first."""
        found = await self._journals.snapshots(
            run_id, lambda fold: [saved for saved in fold.line if saved.seq >= seq]
        )
        await self._carry_ledger(run_id, found)
        return found

    async def schema(self, run_id: str, seq: int) -> str:
        """The version of the schema of the state that stands there."""

        def view(fold: Checkpoints) -> str:
            saved = fold.at_seq(seq)
            return "" if saved is None else saved.event.schema

        return await self._journals.look(run_id, view)

    async def ledger(self, run_id: str) -> MessageLedger | None:
        """What an agent had sent and taken when it was saved last; None: it never was."""
        found = await self._journals.snapshots(run_id, lambda fold: fold.line[-1:], states=False)
        await self._carry_ledger(run_id, found)
        return ledger_of(found[0].metadata) if found else None

    async def _carry_ledger(self, run_id: str, found: Sequence[RunSnapshot]) -> None:
        """Give what was saved without the exchange the ledger from before: nothing was sent."""
        if all(LEDGER in each.metadata for each in found):
            return
        known: Any = None
        for each in [*await self._before(run_id, found[0]), *found]:
            if LEDGER in each.metadata:
                known = each.metadata[LEDGER]
            elif known is not None:
                each.metadata[LEDGER] = {**known, "origin": ""}  # it was saved since it came

    async def _before(self, run_id: str, first: RunSnapshot) -> list[RunSnapshot]:
        """Snapshots before this one that may have a ledger: of who had the agent, or of a cut."""
        if LEDGER in first.metadata:
            return []

        def choose(fold: Checkpoints) -> list[Saved]:
            line = [saved for saved in fold.line if saved.seq < first.seq]
            return [saved for saved in line if saved.event.holder or saved is line[0]]

        return await self._journals.snapshots(run_id, choose, states=False)


def has_begun(fold: Checkpoints) -> bool:
    """Whether a journal of checkpoints is that of something; not if it is about to go."""
    return fold.brief is not None and fold.brief.status != "cleared"
