"""What every store owes families: nobody joins one that goes, and what is left of one is found."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from outlive.collecting import Collecting
from outlive.store import Conflict, Entry, Node, Store
from outlive.testing.store_entries import START_MS, entry, header

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

        assert await store.delete("r", seq=1, digest=b"", keep_until=START_MS)
        assert {_NODE.address: _NODE.body} == await store.get_blobs("r", [_NODE.address])

    async def test_nobody_joins_a_run_that_is_gone(self, store: Store) -> None:
        """It is refused, beside others that are not, and nothing of it is left."""
        await store.commit([root("r")])
        await store.delete("r", seq=1, digest=b"", keep_until=START_MS)

        answers = await store.commit([entry("a", 0), child("c", "r"), entry("b", 0)])

        assert [None, Conflict(seq=0, epoch=0), None] == list(answers)
        assert await store.read("c") is None
        assert {} == await store.get_blobs("r", [_NODE.address])

    async def test_joining_again_changes_nothing(self, store: Store) -> None:
        """A repeat is done again, even if the parent is gone by then."""
        await store.commit([root("r")])
        await store.commit([child("c", "r")])
        await store.delete("r", seq=1, digest=b"", keep_until=START_MS)

        assert [None] == list(await store.commit([child("c", "r")]))

    async def test_who_joins_keeps_the_family_or_is_refused(self, store: Store) -> None:
        """A child and the deletion of its parent at once: never a child without its nodes."""
        joined = 0
        for number in range(ROUNDS):
            parent, name = f"r{number}", f"c{number}"
            await store.commit([root(parent)])
            how: dict[str, Any] = {"seq": 1, "digest": b"", "keep_until": START_MS}
            answers, gone = await asyncio.to_thread(
                at_once,
                partial(store.commit, [child(name, parent)]),
                partial(store.delete, parent, **how),
            )
            assert gone
            is_in = list(answers) == [None]
            joined += is_in
            found = await store.get_blobs(parent, [_NODE.address])
            assert is_in == bool(found), f"round {number}: joined {is_in}, nodes {found}"
            assert is_in == (await store.read(name) is not None)

    async def test_what_is_left_of_a_family_is_found_and_goes(self, store: Store) -> None:
        """Families with nodes are listed; only those without runs lose them."""
        assert isinstance(store, Collecting)
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
