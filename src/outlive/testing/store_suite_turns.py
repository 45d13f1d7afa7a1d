"""What a store owes those who wait in queues: a turn. Of keys, of priorities, and of queues."""

from __future__ import annotations

from typing import Any

import msgspec

from outlive.store import Queueing, Store, Wanted
from outlive.testing.store_entries import (
    LEASE_SECONDS,
    START_MS,
    VERSION,
    WANTED,
    HandClock,
    entry,
    header,
)
from outlive.testing.store_queued import Desk, limit_queue, offer_of, queued


def wanting(*queues: str, **changes: Any) -> Wanted:
    """What a worker of some queues wants."""
    return msgspec.structs.replace(WANTED, queues=frozenset(queues), **changes)


async def one_by_one(desk: Desk, times: int) -> list[str]:
    """Take a run and end it, again and again: the order of turns."""
    order: list[str] = []
    for _ in range(times):
        for run_id in await desk.take(1):
            order.append(run_id)
            await desk.end(run_id)
    return order


class QueueTurnRules:
    """Who is next, where a store keeps queues."""

    async def test_within_a_key_the_oldest_goes_first(self, store: Store) -> None:
        """In the order of their creation."""
        assert isinstance(store, Queueing)
        await store.commit([queued(f"r{n}") for n in range(5)])

        assert [f"r{n}" for n in range(5)] == await one_by_one(Desk(store, "w"), 5)

    async def test_keys_take_turns(self, store: Store) -> None:
        """A long line of one key does not keep the others waiting, with or without limits."""
        assert isinstance(store, Queueing)
        await limit_queue(store, concurrency=1)
        for queue in ("q", "free"):
            long = [queued(f"{queue}-a{n}", queue, queue_key="a") for n in range(50)]
            short = [queued(f"{queue}-{key}", queue, queue_key=key) for key in "bc"]
            await store.commit([*long, *short])

            order = await one_by_one(Desk(store, "w", wanting(queue)), 5)

            assert {f"{queue}-b", f"{queue}-c"} < set(order[:4]), order

    async def test_keys_share_what_is_taken_at_once(self, store: Store) -> None:
        """Of many that are offered together each key has its part."""
        assert isinstance(store, Queueing)
        await store.commit([queued(f"a{n}", queue_key="a") for n in range(50)])
        await store.commit([queued(f"b{n}", queue_key="b") for n in range(50)])

        taken = await Desk(store, "w").take(10)

        assert 5 == sum(run_id.startswith("a") for run_id in taken)
        assert 10 == len(taken)

    async def test_lower_numbers_go_first(self, store: Store) -> None:
        """But nobody is forgotten: one of eight is the one that has waited longest."""
        assert isinstance(store, Queueing)
        await limit_queue(store, concurrency=1)
        old: dict[str, Any] = {"wake_at": START_MS - 2}
        new: dict[str, Any] = {"wake_at": START_MS - 1}
        await store.commit([queued(f"low{n}", priority=9, **old) for n in range(3)])
        await store.commit([queued(f"mid{n}", priority=0, queue_key="m", **new) for n in range(3)])
        await store.commit([queued(f"high{n}", priority=-1) for n in range(60)])

        order = await one_by_one(Desk(store, "w"), 48)

        assert [f"high{n}" for n in range(7)] == order[:7]
        assert ["low0", "low1", "low2", "mid0", "mid1", "mid2"] == order[7::8]
        assert 42 == sum(each.startswith("high") for each in order)

    async def test_the_oldest_does_not_change_whose_turn_it_is(self, store: Store) -> None:
        """With many keys each is served, though the one that waited longest comes in between."""
        assert isinstance(store, Queueing)
        await limit_queue(store, concurrency=1)
        old: dict[str, Any] = {"wake_at": START_MS - 1}
        await store.commit([queued(f"z{n}", queue_key="z", priority=9, **old) for n in range(9)])
        keys = [f"k{n:02}" for n in range(12)]
        await store.commit([queued(f"{k}-{n}", queue_key=k) for k in keys for n in range(9)])

        order = await one_by_one(Desk(store, "w"), 28)

        assert set(keys) <= {each.split("-")[0] for each in order}

    async def test_the_oldest_is_found_behind_a_long_line_of_a_full_key(self, store: Store) -> None:
        """Though more urgent runs keep coming, and hundreds before it may not be held."""
        assert isinstance(store, Queueing)
        desk = Desk(store, "w")
        await limit_queue(store, per_key=1)
        await store.commit([queued("held", queue_key="full")])
        assert ["held"] == await desk.take()
        await store.commit([queued(f"full-{n}", queue_key="full") for n in range(300)])
        since = START_MS - 1000
        await store.commit([queued("late", queue_key="late", priority=9, wake_at=since)])
        await store.commit([queued(f"urgent-{n}", queue_key=f"k{n}") for n in range(20)])

        assert "late" in await one_by_one(desk, 8)

    async def test_queues_take_turns(self, store: Store) -> None:
        """A worker with little room serves every queue, the unnamed one, too."""
        assert isinstance(store, Queueing)
        await store.commit([queued(f"x{n}", "x") for n in range(30)])
        await store.commit([queued(f"y{n}", "y") for n in range(30)])
        await store.commit(
            [entry(f"d{n}", 0, epoch=0, header=header(wake_at=START_MS)) for n in range(30)]
        )
        order = await one_by_one(Desk(store, "w"), 12)

        for first in "xyd":
            assert 3 <= sum(each.startswith(first) for each in order), order

    async def test_a_full_queue_hides_no_other(self, store: Store) -> None:
        """Not by those who wait in it, nor by mail of theirs, nor by those of them who wake."""
        assert isinstance(store, Queueing)
        await limit_queue(store, "full", concurrency=1)
        await limit_queue(store, "keys", per_key=1)
        await store.beat("w")
        for queue, key in (("full", ""), ("keys", "k")):
            desk = Desk(store, "w", wanting(queue))
            await store.commit([queued(f"{queue}{n}", queue, queue_key=key) for n in range(30)])
            for number in range(10):
                (run_id,) = await desk.take(1)
                await desk.leave(run_id, wake_at=START_MS - 1 if number % 2 else None)
            assert 1 == len(await desk.take(1))
            for number in range(30):
                await store.post(f"{queue}{number}", "m", b"")
        await store.commit([queued("other", "keys", queue_key="z"), queued("free", "free")])
        await store.commit([entry("plain", 0, epoch=0, header=header(wake_at=START_MS))])

        assert {"other", "free", "plain"} == set(await Desk(store, "v").offered(3))

    async def test_a_worker_of_some_queues_takes_no_other(
        self, store: Store, clock: HandClock
    ) -> None:
        """New or woken, with mail or left by the dead: only what is in its queues."""
        assert isinstance(store, Queueing)
        names = ("x", "y", "default")
        for name in names:
            await store.commit([queued(f"{name}-{kind}", name) for kind in ("dead", "old", "new")])
        await store.beat("dead")
        first = Desk(store, "first", wanting(*names))
        for name in names:
            await first.take_these([await offer_of(store, f"{name}-old")])
            await first.leave(f"{name}-old", wake_at=START_MS)
            await store.post(f"{name}-new", "m", b"")
            await Desk(store, "dead").take_these([await offer_of(store, f"{name}-dead")])
        for name in names:
            await Desk(store, "w", wanting(name)).offered()
        clock.advance(2 * LEASE_SECONDS)

        for name in names:
            mine = {f"{name}-{kind}" for kind in ("dead", "old", "new")}
            assert mine == set(await Desk(store, "w", wanting(name)).offered())
        assert 6 == len(await Desk(store, "w", wanting("x", "default")).offered())

    async def test_of_some_flows_what_is_in_no_queue_is_taken_too(
        self, store: Store, clock: HandClock
    ) -> None:
        """By a worker of some queues: due, with mail or left by the dead; and the next is told."""
        assert isinstance(store, Queueing)
        kinds = ("dead", "due", "mail", "later")
        wakes = {"due": START_MS, "later": START_MS + 9 * 60_000}
        for flow in ("own", "other"):
            for kind in kinds:
                shown = header(flow=flow, wake_at=wakes.get(kind))
                await store.commit([entry(f"{flow}-{kind}", 0, epoch=0, header=shown)])
            await store.post(f"{flow}-mail", "m", b"")
        await store.beat("dead")
        for flow in ("own", "other"):
            await Desk(store, "dead").take_these([await offer_of(store, f"{flow}-dead")])
        versions = frozenset({VERSION})
        wanted = wanting(
            "x",
            flows={"own": versions, "other": versions},
            unqueued=frozenset({"own", "neither"}),
        )
        await store.claim("w", wanted, 10)
        clock.advance(2 * LEASE_SECONDS)

        claims = await store.claim("w", wanted, 10)

        offered = {offer.head.run_id for offer in claims.offers}
        assert {"own-dead", "own-due", "own-mail"} == offered
        assert START_MS + 9 * 60_000 == claims.next_at

    async def test_a_run_that_is_named_waits_for_its_turn(self, store: Store) -> None:
        """Who wants only some runs is not offered those that their queue has no place for."""
        assert isinstance(store, Queueing)
        await limit_queue(store, concurrency=1)
        await store.commit([queued("a"), queued("b"), *(queued(f"n{n}", "n") for n in range(99))])
        many = frozenset({"a", "b", "none", *(f"n{n}" for n in range(60))})
        for run_ids in (frozenset({"a", "b"}), many):
            desk = Desk(store, "w", msgspec.structs.replace(WANTED, run_ids=run_ids))
            (taken,) = [each for each in await desk.take() if each in ("a", "b")]

            assert not {"a", "b"} & set(await desk.offered())
            await desk.end(taken)
        assert set(desk.held) == many - {"a", "b", "none"}

    async def test_a_sleeper_in_a_queue_tells_when_it_wakes(self, store: Store) -> None:
        """A worker that has nothing to do knows when to look again."""
        assert isinstance(store, Queueing)
        await store.commit([queued("a", "x"), queued("b", "y")])
        desk = Desk(store, "w")
        await desk.take()
        await desk.leave("a", wake_at=START_MS + 5000)
        await desk.leave("b", wake_at=START_MS + 9000)

        claims = await store.claim("w", WANTED, 10)
        of_one = await store.claim("w", wanting("y"), 10)

        assert ([], START_MS + 5000) == (list(claims.offers), claims.next_at)
        assert START_MS + 9000 == of_one.next_at
