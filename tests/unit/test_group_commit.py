"""Group commit of shared journals: appends share flushes, and nobody is told before one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from outlive.checkpoints import decide as deciding
from outlive.checkpoints.store import draft_of
from outlive.errors import StoreFailed, StoreUnavailable, UsageError
from outlive.journal.group import Append, GroupCommit
from outlive.journal.lane import ThreadLane, run_immediate
from outlive.journal.shared import SharedJournal
from outlive.model.checkpoints import Checkpoints
from outlive.model.ids import checkpoint_journal
from outlive.ports import SystemClock
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Entry
from outlive.testing.crash.failing_store import CallFault, FailingStore

MANY = 100


class Desk:
    """A group commit over a store, with its journals."""

    def __init__(self, store: Any) -> None:
        self.store, self.lane = store, ThreadLane(2)
        self.group = GroupCommit(store, self.lane, SystemClock())
        self.journals: dict[str, SharedJournal[Checkpoints]] = {}

    def journal(self, name: str) -> SharedJournal[Checkpoints]:
        if name not in self.journals:
            place = checkpoint_journal(name)
            self.journals[name] = SharedJournal(self.store, place, Checkpoints, os.urandom)
        return self.journals[name]

    def save(self, name: str, step: str) -> Append[int]:
        """The append of a snapshot; it answers with the journal's seq."""
        owner = deciding.CheckpointOwner(
            run_id=name, now=1_000, seed=os.urandom(8), metadata=b"\x80", holder=""
        )
        decide = deciding.save(owner, draft_of(step, {"step": step}))
        return Append(
            (self.journal(name),), lambda folds: [decide(folds[0])], lambda folds: folds[0].seq
        )

    def steps(self, name: str) -> list[str]:
        """What a reader of the store finds."""
        place = checkpoint_journal(name)
        fresh = SharedJournal(self.store, place, Checkpoints, os.urandom)
        return run_immediate(fresh.look(lambda fold: [s.event.step for s in fold.saved]))


async def test_a_hundred_at_once_are_few_commits() -> None:
    """Of different journals and of one, appended by a loop."""
    for names in ([f"r{n}" for n in range(MANY)], ["r"] * MANY):
        desk = Desk(MemoryStore())
        saves = [desk.save(name, f"s{n}") for n, name in enumerate(names)]
        await asyncio.gather(*(desk.group.append(each) for each in saves))

        assert 5 >= desk.group.counts.commits
        assert MANY == desk.group.counts.appends
        assert MANY == sum(len(desk.steps(name)) for name in set(names))


def test_threads_share_flushes() -> None:
    """Plain threads append each on its own; who waits for the turn goes with the next batch."""
    gate = threading.Event()

    class Slow(MemoryStore):
        async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
            gate.wait(30)
            return await super().commit(batch, wait=wait)

    desk = Desk(Slow())
    with ThreadPoolExecutor(8) as threads:
        told = [threads.submit(desk.group.append_here, desk.save("r", f"s{n}")) for n in range(8)]
        while len(desk.group._pending) < 7:
            pass
        gate.set()
        seqs = [each.result(30) for each in told]

    assert 2 == desk.group.counts.commits
    assert list(range(2, 10)) == sorted(seqs)
    assert 8 == len(set(desk.steps("r")))


async def test_nobody_is_told_before_the_flush() -> None:
    """Neither of an entry nor of a refusal that rests on one that is not durable yet."""

    told: list[bool] = []

    class Watched(MemoryStore):
        async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
            told.extend([append.is_done for append in appends])
            return await super().commit(batch, wait=wait)

    desk = Desk(Watched())

    def refuse(folds: Any) -> Any:
        if folds[0].saved:
            raise ValueError("somebody was here")
        return [[]]

    refused: Append[None] = Append((desk.journal("r"),), refuse, lambda folds: None)
    appends: list[Append[Any]] = [desk.save("r", "s"), refused]
    answers = await asyncio.gather(
        *(desk.group.append(each) for each in appends), return_exceptions=True
    )

    assert [False, False] == told
    assert isinstance(answers[1], ValueError)


async def test_a_refusal_by_what_was_not_stored_is_decided_again() -> None:
    """Where the commit before it fails, nobody is refused on its account."""
    store = FailingStore(MemoryStore(), CallFault(number=1, verb="commit", how="reply_lost"))
    desk = Desk(store)

    def once(folds: Any) -> Any:
        if folds[0].saved:
            raise ValueError("somebody was here")
        return [[]]

    second: Append[str] = Append((desk.journal("r"),), once, lambda folds: "first")
    answers = await asyncio.gather(
        desk.group.append(desk.save("r", "s")),
        desk.group.append(second),
        return_exceptions=True,
    )

    assert all(isinstance(each, StoreUnavailable) for each in answers)
    assert [] == desk.steps("r")
    third: Append[str] = Append((desk.journal("r"),), once, lambda folds: "first")
    assert "first" == await desk.group.append(third)


async def test_two_processes_lose_nothing() -> None:
    """Conflicts are read and decided again, and only those concerned."""
    store = MemoryStore()
    one, other = Desk(store), Desk(store)
    saves = []
    for number in range(MANY):
        desk = (one, other)[number % 2]
        saves.append(desk.group.append(desk.save(f"r{number % 3}", f"s{number}")))
    await asyncio.gather(*saves)

    found = [step for name in ("r0", "r1", "r2") for step in one.steps(name)]
    assert {f"s{n}" for n in range(MANY)} == set(found)
    assert MANY == len(found)


async def test_a_decision_appends_to_nothing_itself() -> None:
    """It would wait for itself for ever: it is refused."""
    desk = Desk(MemoryStore())

    def decide(folds: Any) -> Any:
        desk.group.append_here(desk.save("other", "s"))
        return [[]]

    append: Append[None] = Append((desk.journal("r"),), decide, lambda folds: None)
    with pytest.raises(UsageError, match="appends to nothing itself"):
        await desk.group.append(append)


async def test_who_gives_up_early_appends_nothing() -> None:
    """Cancelled before its batch was taken; what was begun is carried out."""
    desk = Desk(MemoryStore())
    saving = asyncio.create_task(desk.group.append(desk.save("r", "s")))
    await asyncio.sleep(0)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    await desk.group.append(desk.save("r", "t"))

    assert "t" in desk.steps("r")


async def test_an_interrupt_is_an_error_for_all_who_wait() -> None:
    """What ends a thread in the middle of a batch leaves nobody waiting."""

    class Interrupted(MemoryStore):
        async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
            raise KeyboardInterrupt

    desk = Desk(Interrupted())
    append = desk.save("r", "s")
    with pytest.raises(KeyboardInterrupt):
        desk.group.append_here(append)

    with pytest.raises(StoreFailed, match="interrupted"):
        append.result()
