"""What every store owes the dead: they go once, what others need stays, and their ids rest."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from outlive.stores.seam import Store
from outlive.stores.types import Conflict, Deletion, Entry, Node, Query
from outlive.testing.suite.entries import (
    START_MS,
    HandClock,
    delete_one,
    entry,
    header,
    parked,
    post_one,
)
from outlive.testing.suite.mail import reading_of

DAY_MS = 86_400_000


class DeletionRules:
    """Delete, and the tombstone that stays."""

    async def test_only_an_ended_run_is_deleted(self, store: Store) -> None:
        """A run that is under way stays."""
        await store.commit([entry("r", 0)])

        assert not await delete_one(store, "r", seq=1, digest=b"d", keep_until=START_MS + DAY_MS)
        assert await store.read("r") is not None

    async def test_a_run_that_moved_on_is_not_deleted(self, store: Store) -> None:
        """Whoever decided to delete saw an older state."""
        await end(store, "r")

        assert not await delete_one(store, "r", seq=1, digest=b"d", keep_until=START_MS + DAY_MS)
        assert not await delete_one(store, "nobody", seq=1, digest=b"d", keep_until=START_MS)

    async def test_a_deleted_run_is_gone(self, store: Store) -> None:
        """Records, mail and nodes go; the id can't be used, nor mailed, until the stone falls."""
        await end(store, "r")
        await store.put_blob("family-1", Node(b"a", b"body"))

        assert await delete_one(store, "r", seq=2, digest=b"d", keep_until=START_MS + DAY_MS)

        (conflict,) = await store.commit([entry("r", 0)])
        assert await store.read("r") is None
        assert {} == await store.get_blobs("family-1", [b"a"])
        assert conflict is not None
        assert (True, 2) == (conflict.gone, conflict.seq)
        assert "ended" == await post_one(store, "r", "m", b"")

    async def test_deleting_twice_is_fine(self, store: Store) -> None:
        """A deletion whose answer was lost may be asked for again."""
        await end(store, "r")

        for _ in range(2):
            assert await delete_one(store, "r", seq=2, digest=b"d", keep_until=START_MS + DAY_MS)
        assert not await delete_one(store, "r", seq=2, digest=b"other", keep_until=START_MS)

    async def test_a_zombie_can_not_extend_a_deleted_run(self, store: Store) -> None:
        """An append says that the run is gone."""
        await end(store, "r")
        await delete_one(store, "r", seq=2, digest=b"d", keep_until=START_MS + DAY_MS)

        answers = await store.commit([entry("r", 2), entry("s", 0)])

        assert [Conflict(seq=2, epoch=0, gone=True), None] == list(answers)

    async def test_a_tombstone_falls_in_time(self, store: Store, clock: HandClock) -> None:
        """After its time the id is free again, and nothing of the old run comes back."""
        await end(store, "r")
        await post_one(store, "r", "m", b"")
        await delete_one(store, "r", seq=2, digest=b"d", keep_until=clock.now_ms() + DAY_MS)
        clock.advance(DAY_MS / 1000)

        assert [None] == list(await store.commit([entry("r", 0, b"anew")]))

        reading = await reading_of(store, "r")
        assert ([b"anew"], 0) == ([r.body for r in reading.records], reading.head.posted)
        assert "posted" == await post_one(store, "r", "m", b"")

    async def test_nodes_stay_while_the_family_lives(self, store: Store) -> None:
        """A relative may still need them."""
        await end(store, "r")
        await store.commit([parked("child")])
        await store.put_blob("family-1", Node(b"a", b"body"))

        await delete_one(store, "r", seq=2, digest=b"d", keep_until=START_MS)

        assert {b"a": b"body"} == await store.get_blobs("family-1", [b"a"])


class ClearingRules:
    """Many journals at once."""

    async def test_many_are_deleted_at_once(self, store: Store) -> None:
        """Each is answered for itself: gone, moved on, under way, gone before, never there."""
        for run_id in ("a", "b", "moved", "before"):
            await end(store, run_id)
        await store.commit([entry("live", 0)])
        await delete_one(store, "before", seq=2, digest=b"d", keep_until=START_MS + DAY_MS)
        asked = [("a", 2), ("moved", 1), ("live", 1), ("before", 2), ("never", 1), ("b", 2)]

        answers = await store.delete([deletion(*each) for each in asked])
        again = await store.delete([deletion(*each) for each in asked])

        assert [True, False, False, True, False, True] == list(answers) == list(again)
        there = [found.head.run_id for found in (await store.find(Query())).items]
        assert ["moved", "live"] == there
        conflicts = await store.commit([entry("a", 0), entry("never", 0), entry("b", 2)])
        gone = Conflict(seq=2, epoch=0, gone=True)
        assert [gone, None, gone] == list(conflicts)

    async def test_another_digest_is_another_run(self, store: Store) -> None:
        """Who asks again for what is gone must mean the same; each of a batch has its own time."""
        for run_id in "abc":
            await end(store, run_id)
        await store.delete([deletion("a", 2), deletion("b", 2, keep_until=START_MS)])

        answers = await store.delete(
            [deletion("a", 2, digest=b"other"), deletion("c", 2, digest=b"c")]
        )

        assert [False, True] == list(answers)
        assert "ended" == await post_one(store, "a", "m", b"")
        assert "unknown" == await post_one(store, "b", "m", b"")

    async def test_families_go_with_their_last(self, store: Store) -> None:
        """Also if all of a family go at once; nodes of others stay."""
        for family in ("whole", "half", "other"):
            done = header(status="done", ended_at=START_MS, family=family)
            await store.commit([entry(f"{family}-{n}", 0, header=done) for n in (1, 2)])
            await store.put_blob(family, Node(b"n", family.encode()))
        await store.put_blob("early", Node(b"n", b"its run is to come"))

        await store.delete([deletion(x, 1) for x in ("whole-2", "half-1", "whole-1")])

        found = [await store.get_blobs(x, [b"n"]) for x in ("whole", "half", "other", "early")]
        assert [0, 1, 1, 1] == [len(each) for each in found]

    async def test_many_more_than_fit_a_statement(self, store: Store) -> None:
        """Records, mail and all; none of them is one call, too."""
        names = [f"r{number}" for number in range(1_100)]
        await store.commit([entry(name, 0) for name in names])
        await post_one(store, "r7", "m", b"mail")
        done = header(status="done", ended_at=START_MS)
        await store.commit([entry(name, 1, header=done) for name in names])

        assert all(await store.delete([deletion(name, 2) for name in names]))

        assert [] == list((await store.find(Query())).items)
        assert {} == await store.read_all(names)
        assert ([], {}) == (list(await store.delete([])), await store.read_all([]))

    async def test_many_are_read_at_once(self, store: Store) -> None:
        """As each would be, but for its mail."""
        await store.commit([entry(run_id, 0) for run_id in "abc"])
        await store.commit([entry("b", 1), entry("b", 2), entry("c", 1)])
        await post_one(store, "b", "m", b"mail")

        found = await store.read_all(["c", "none", "b"])

        assert {"b", "c"} == found.keys()
        for run_id, reading in found.items():
            alone = await reading_of(store, run_id)
            assert (alone.head, alone.header) == (reading.head, reading.header)
            assert (list(alone.records), []) == (list(reading.records), list(reading.mail))


def deletion(run_id: str, seq: int, **changes: Any) -> Deletion:
    """The deletion of a run that was seen at this seq."""
    plain: dict[str, Any] = {"digest": b"d", "keep_until": START_MS + DAY_MS}
    return Deletion(run_id=run_id, seq=seq, **(plain | changes))


async def end(store: Store, run_id: str) -> None:
    """A run of two events that ended."""
    done = header(status="done", ended_at=START_MS)
    await store.commit([entry(run_id, 0), entry(run_id, 1, header=done)])


#: Times that a child and a deletion meet.
ROUNDS = 25
_NODE = Node(b"shared", b"what parent and child name")


def root(run_id: str) -> Entry:
    """A run that begins a family, and ended at once; with a node."""
    ended = header(family=run_id, status="done", ended_at=START_MS)
    return entry(run_id, 0, header=ended, nodes=(_NODE,))


def child(run_id: str, parent: str) -> Entry:
    """A run that joins its parent's family and names the same node."""
    return entry(run_id, 0, header=header(family=parent), nodes=(_NODE,), joins=parent)


class FamilyRules:
    """Joining, and clearing up."""

    async def test_a_child_joins_a_run_that_is_there(self, store: Store) -> None:
        """Its family's nodes then stay when the parent goes."""
        await store.commit([root("r")])

        assert [None] == list(await store.commit([child("c", "r")]))

        assert await delete_one(store, "r", seq=1, digest=b"", keep_until=START_MS)
        assert {_NODE.address: _NODE.body} == await store.get_blobs("r", [_NODE.address])

    async def test_nobody_joins_a_run_that_is_gone(self, store: Store) -> None:
        """It is refused, beside others that are not, and nothing of it is left."""
        await store.commit([root("r")])
        await delete_one(store, "r", seq=1, digest=b"", keep_until=START_MS)

        answers = await store.commit([entry("a", 0), child("c", "r"), entry("b", 0)])

        assert [None, Conflict(seq=0, epoch=0), None] == list(answers)
        assert await store.read("c") is None
        assert {} == await store.get_blobs("r", [_NODE.address])

    async def test_joining_again_changes_nothing(self, store: Store) -> None:
        """A repeat is done again, even if the parent is gone by then."""
        await store.commit([root("r")])
        await store.commit([child("c", "r")])
        await delete_one(store, "r", seq=1, digest=b"", keep_until=START_MS)

        assert [None] == list(await store.commit([child("c", "r")]))

    async def test_who_joins_keeps_the_family_or_is_refused(self, store: Store) -> None:
        """A child and the deletion of its parent at once: never a child without its nodes."""
        joined = 0
        for number in range(ROUNDS):
            parent, name = f"r{number}", f"c{number}"
            await store.commit([root(parent)])
            last = deletion(parent, 1, digest=b"", keep_until=START_MS)
            answers, gone = await asyncio.to_thread(
                at_once,
                partial(store.commit, [child(name, parent)]),
                partial(store.delete, [last]),
            )
            assert [True] == list(gone)
            is_in = list(answers) == [None]
            joined += is_in
            found = await store.get_blobs(parent, [_NODE.address])
            assert is_in == bool(found), f"round {number}: joined {is_in}, nodes {found}"
            assert is_in == (await store.read(name) is not None)

    async def test_what_is_left_of_a_family_is_found_and_goes(self, store: Store) -> None:
        """Families with nodes are listed; only those without runs lose them."""
        await store.commit([root("alive")])
        for family in ("lost", "alive", "straße/\0x", "also lost"):
            await store.put_blob(family, Node(b"n", b"body"))

        listed: list[str] = []
        while more := await store.families(listed[-1] if listed else "", 1):
            listed += more
        ours = [family for family in listed if not family.startswith("outlive")]
        lost = await store.without_runs(ours)

        assert {"alive", "also lost", "lost", "straße/\0x"} == set(ours)
        assert len(listed) == len(set(listed))
        assert {"also lost", "lost", "straße/\0x"} == set(lost)
        assert [True, True, True] == [await store.drop_family(family) for family in lost]
        assert not await store.drop_family("alive")
        assert ["alive"] == [
            family for family in await store.families("", 100) if family in (*lost, "alive")
        ]
        assert {} == await store.get_blobs("lost", [b"n"])


def at_once(*verbs: Callable[[], Coroutine[Any, Any, Any]]) -> list[Any]:
    """What several verbs answer that are called from threads of their own, together."""
    answers: list[Any] = [None] * len(verbs)
    gate = threading.Barrier(len(verbs))

    def call(place: int) -> None:
        gate.wait()
        answers[place] = asyncio.run(verbs[place]())

    threads = [threading.Thread(target=call, args=(place,)) for place in range(len(verbs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
