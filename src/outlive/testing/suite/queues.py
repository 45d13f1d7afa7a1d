"""What a store owes limited queues: no limit is ever exceeded, whoever claims, dies or repeats."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import msgspec
import pytest

from outlive.stores.seam import Store
from outlive.stores.types import QueueLimits, QueueState, Wanted
from outlive.testing.suite.entries import (
    LEASE_SECONDS,
    START_MS,
    VERSION,
    WANTED,
    Desk,
    HandClock,
    claim_of,
    entry,
    header,
    limit_queue,
    offer_of,
    post_one,
    queued,
)


class QueueLimitRules:
    """Concurrency, keys, workers and rates."""

    async def test_no_more_are_held_than_a_queue_allows(self, store: Store) -> None:
        """What is over the limit is neither offered nor given, until something ends."""
        await limit_queue(store, concurrency=2)
        await store.commit([queued(f"r{n}") for n in range(4)])
        desk = Desk(store, "w")

        assert ["r0", "r1"] == await desk.take()
        assert [] == await desk.offered()
        assert [] == await desk.take_these([await offer_of(store, "r2")])

        await desk.end("r0")
        assert ["r2"] == await desk.take()

    async def test_a_refusal_leaves_the_run_as_it_was(self, store: Store) -> None:
        """The head that a refused claim is shown is the one it followed."""
        await limit_queue(store, concurrency=1)
        await store.commit([queued("a"), queued("b")])
        await Desk(store, "w").take()
        offer = await offer_of(store, "b")

        (answer,) = await store.commit([claim_of(offer, "v")])

        assert answer is not None
        assert (offer.head.seq, offer.head.epoch) == (answer.seq, answer.epoch)
        assert offer == await offer_of(store, "b")

    async def test_limits_hold_within_a_batch(self, store: Store) -> None:
        """Of many claims in one commit as many are done as fit; others are not disturbed."""
        await limit_queue(store, concurrency=3)
        await store.commit([queued(f"r{n}") for n in range(8)] + [entry("other", 0)])
        claims = [claim_of(await offer_of(store, f"r{n}"), "w") for n in range(8)]

        answers = await store.commit([*claims[:4], entry("other", 1), *claims[4:]])

        assert 3 == sum(answer is None for answer in [*answers[:4], *answers[5:]])
        assert answers[4] is None

    async def test_limits_hold_among_those_who_claim_at_once(
        self, store: Store, make_store: Callable[[], Store]
    ) -> None:
        """Eight who claim the same runs at the same moment never hold more than allowed."""
        await limit_queue(store, concurrency=5, per_key=2, per_worker=2, rate=9, rate_ms=60_000)
        await store.commit([queued(f"r{n}", queue_key=f"k{n % 3}") for n in range(40)])
        offers = [await offer_of(store, f"r{n}") for n in range(40)]
        stores = [make_store() for _ in range(8)]

        def claim(number: int) -> None:
            order = random.Random(number).sample(offers, len(offers))
            for offer in order:
                asyncio.run(_commit(stores[number], claim_of(offer, f"w{number}")))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(claim, range(8)))

        after = [(await offer_of(store, f"r{n}")) for n in range(40)]
        held = [offer for offer in after if offer.head.worker is not None]
        assert 5 == len(held)
        for part in ("queue_key", "worker"):
            named = [getattr(o.header, part, None) or getattr(o.head, part, "") for o in held]
            assert max(named.count(name) for name in named) <= 2
        await _close(stores, store)

    async def test_who_waits_takes_nothing_of_its_queue(self, store: Store) -> None:
        """A run that sleeps makes way for another, and needs a place again when it wakes."""
        await limit_queue(store, concurrency=1)
        await store.commit([queued("a"), queued("b")])
        desk = Desk(store, "w")
        assert ["a"] == await desk.take()

        await desk.leave("a", wake_at=START_MS)
        assert ["a"] == await desk.offered(1)
        assert ["b"] == await desk.take_these([await offer_of(store, "b")])

        assert [] == await desk.offered()
        assert [] == await desk.take_these([await offer_of(store, "a")])

    async def test_the_dead_keep_their_place_until_somebody_takes_over(
        self, store: Store, clock: HandClock
    ) -> None:
        """What a dead worker held counts as held, and may be taken over though all is full."""
        await limit_queue(store, concurrency=1, rate=1)
        await store.commit([queued("a"), queued("b")])
        await store.beat("dead")
        await Desk(store, "dead").take()
        heir = Desk(store, "heir")
        await heir.offered()  # some stores only suspect from the first look on
        clock.advance(2 * LEASE_SECONDS)

        assert ["a"] == await heir.offered()
        assert [] == await heir.take_these([await offer_of(store, "b")])
        assert ["a"] == await heir.take()
        assert [] == await heir.take_these([await offer_of(store, "b")])

    async def test_no_key_has_more_than_its_part(self, store: Store) -> None:
        """A key that is full hides nobody behind it; runs without a key are not counted."""
        await limit_queue(store, per_key=2)
        await store.commit([queued(f"a{n}", queue_key="a") for n in range(9)])
        await store.commit([queued("b0", queue_key="b"), *(queued(f"none{n}") for n in range(3))])
        desk = Desk(store, "w")

        assert {"a0", "a1", "b0", "none0", "none1", "none2"} == set(await desk.take())
        assert [] == await desk.take_these([await offer_of(store, "a2")])

        await desk.end("a0")
        assert ["a2"] == await desk.take()

    async def test_no_worker_has_more_than_its_part(self, store: Store, clock: HandClock) -> None:
        """Neither by claiming nor by taking over."""
        await limit_queue(store, per_worker=2)
        await store.commit([queued(f"r{n}") for n in range(6)])
        dead, heir, other = (Desk(store, name) for name in ("dead", "heir", "other"))
        await store.beat("dead")
        assert ["r0", "r1"] == await dead.take()
        assert ["r2"] == await heir.take_these([await offer_of(store, "r2")])
        await heir.offered()
        clock.advance(2 * LEASE_SECONDS)
        await store.beat("heir")

        assert 1 == len(await heir.take())
        orphan = "r0" if "r1" in heir.held else "r1"
        assert [] == await heir.take_these([await offer_of(store, orphan)])
        assert orphan in await other.take()

    # ------------------------------------------------------------------ rates

    async def test_no_more_begin_than_a_rate_allows(self, store: Store, clock: HandClock) -> None:
        """However they are asked for: in no stretch of time do more begin."""
        await limit_queue(store, rate=3, rate_ms=10_000)
        await store.commit([queued(f"r{n}") for n in range(40)])
        desk = Desk(store, "w")
        begun: list[int] = []
        chance = random.Random(7)
        for number in count():
            if number == 40 or len(begun) == 40:
                break
            for n in range(40):
                if f"r{n}" in desk.held:
                    continue
                if not await desk.take_these([await offer_of(store, f"r{n}")]):
                    break
                begun.append(clock.now_ms())
            clock.advance(chance.choice((0.0, 0.4, 1.0, 3.0, 6.0, 9.7)))

        assert 20 <= len(begun)
        for begin in begun:
            assert 3 >= sum(begin <= at < begin + 10_000 for at in begun)

    async def test_units_are_what_a_rate_counts(self, store: Store, clock: HandClock) -> None:
        """A dear run waits until it can be paid for, and nobody passes it meanwhile."""
        await limit_queue(store, rate=1000)
        await store.commit([queued("a", units=600), queued("b", units=500), queued("c", units=1)])
        desk = Desk(store, "w")

        assert ["a"] == await desk.take()
        clock.advance(30)
        assert [] == await desk.offered()
        assert [] == await desk.take_these([await offer_of(store, "b")])

        clock.advance(36.1)
        assert ["b", "c"] == await desk.take()

    async def test_what_exceeds_a_rate_alone_takes_all_of_it(
        self, store: Store, clock: HandClock
    ) -> None:
        """It begins when nothing else counts, and nothing else begins beside it."""
        await limit_queue(store, rate=1000)
        await store.commit([queued("a"), queued("b", units=5000), queued("c")])
        desk = Desk(store, "w")

        assert ["a"] == await desk.take()
        assert [] == await desk.take_these([await offer_of(store, "b")])
        clock.advance(66.1)
        assert ["b"] == await desk.take()
        assert [] == await desk.take_these([await offer_of(store, "c")])
        assert 1000 == (await _state(store)).spent
        clock.advance(66.1)
        assert ["c"] == await desk.take()

    async def test_only_the_first_claim_is_charged(self, store: Store, clock: HandClock) -> None:
        """Not a repeated commit, not a run that wakes, not one that is taken over."""
        await limit_queue(store, rate=2, rate_ms=1_000_000)
        await store.commit([queued("a"), queued("b"), queued("c")])
        await store.beat("w")
        first, desk = claim_of(await offer_of(store, "a"), "w"), Desk(store, "w")
        desk.held["a"] = await offer_of(store, "a")

        assert [None] == list(await store.commit([first]))
        assert [None] == list(await store.commit([first]))
        await desk.leave("a", wake_at=START_MS)
        assert ["a", "b"] == sorted(await desk.take())
        heir = Desk(store, "heir")
        await heir.offered()
        clock.advance(2 * LEASE_SECONDS)
        assert {"a", "b"} == set(await heir.take())
        assert 2 == (await _state(store)).spent

    async def test_a_clock_that_is_set_back_stops_nobody_for_long(
        self, store: Store, clock: HandClock
    ) -> None:
        """What was spent in what is now the future counts as spent now."""
        await limit_queue(store, rate=1, rate_ms=10_000)
        await store.commit([queued("a", wake_at=0), queued("b", wake_at=0)])
        desk = Desk(store, "w")
        await desk.take()
        clock.wall_ms -= 3_600_000

        assert [] == await desk.take()
        clock.advance(9)
        assert [] == await desk.take()
        clock.advance(3)
        assert ["b"] == await desk.take()

    async def test_another_stretch_forgets_nothing(self, store: Store, clock: HandClock) -> None:
        """A rate that is set anew counts what was spent before."""
        await limit_queue(store, rate=2, rate_ms=60_000)
        await store.commit([queued(name) for name in "abc"])
        desk = Desk(store, "w")
        await desk.take()

        await limit_queue(store, rate=2, rate_ms=10_000)

        assert [] == await desk.take_these([await offer_of(store, "c")])
        clock.advance(11.5)
        assert ["c"] == await desk.take()

    # ------------------------------------------------------------------ setting and looking

    async def test_limits_are_set_once_or_anew(self, store: Store) -> None:
        """Who only declares a queue leaves limits that are set; whoever sets them changes them."""
        few, many = QueueLimits(concurrency=1), QueueLimits(per_worker=9, rate=7, rate_ms=5)
        assert await store.find_queue("q") is None

        assert few == await store.set_queue("q", few, replace=False)
        assert few == await store.set_queue("q", many, replace=False)
        assert few == await store.find_queue("q")
        assert many == await store.set_queue("q", many, replace=True)
        assert many == await store.find_queue("q")

    async def test_what_a_queue_shows(self, store: Store, clock: HandClock) -> None:
        """Limits, how many wait and since when, how many are held, what is spent."""
        await limit_queue(store, concurrency=1, rate=5)
        await limit_queue(store, "empty", per_key=3)
        await store.commit([queued("a", units=2), queued("b"), queued("c", wake_at=START_MS + 1)])
        await Desk(store, "w").take(1)
        await store.commit([queued("free", "unlimited"), entry("plain", 0)])
        clock.advance(1)

        shown = {state.name: state for state in await store.queues()}

        assert ["empty", "q", "unlimited"] == list(shown)
        assert (0, 0, None) == _counts(shown["empty"])
        assert QueueLimits(per_key=3) == shown["empty"].limits
        assert shown["unlimited"].limits is None
        assert (1, 0, START_MS) == _counts(shown["unlimited"])
        assert (2, 1, START_MS) == _counts(shown["q"])
        assert 2 == shown["q"].spent

    @pytest.mark.parametrize("queue", ["q", "unlimited"])
    async def test_nobody_jumps_a_queue(self, store: Store, queue: str) -> None:
        """A run of a queue can't begin with its creation."""
        jumping: dict[str, Any] = {"lease": "take", "worker": "w", "epoch": 1}
        with pytest.raises(ValueError, match="jumps its queue"):
            await store.commit([msgspec.structs.replace(queued("r", queue), **jumping)])
        assert await store.read("r") is None


def _counts(state: QueueState) -> tuple[int, int, int | None]:
    return state.waiting, state.held, state.oldest_at


async def _state(store: Store) -> QueueState:
    (state,) = [each for each in await store.queues() if each.name == "q"]
    return state


async def _commit(store: Store, claim: Any) -> None:
    await store.commit([claim])


async def _close(stores: list[Store], kept: Store) -> None:
    for store in stores:
        if store is not kept:
            await store.close()


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
        await store.commit([queued(f"r{n}") for n in range(5)])

        assert [f"r{n}" for n in range(5)] == await one_by_one(Desk(store, "w"), 5)

    async def test_keys_take_turns(self, store: Store) -> None:
        """A long line of one key does not keep the others waiting, with or without limits."""
        await limit_queue(store, concurrency=1)
        for queue in ("q", "free"):
            long = [queued(f"{queue}-a{n}", queue, queue_key="a") for n in range(50)]
            short = [queued(f"{queue}-{key}", queue, queue_key=key) for key in "bc"]
            await store.commit([*long, *short])

            order = await one_by_one(Desk(store, "w", wanting(queue)), 5)

            assert {f"{queue}-b", f"{queue}-c"} < set(order[:4]), order

    async def test_keys_share_what_is_taken_at_once(self, store: Store) -> None:
        """Of many that are offered together each key has its part."""
        await store.commit([queued(f"a{n}", queue_key="a") for n in range(50)])
        await store.commit([queued(f"b{n}", queue_key="b") for n in range(50)])

        taken = await Desk(store, "w").take(10)

        assert 5 == sum(run_id.startswith("a") for run_id in taken)
        assert 10 == len(taken)

    async def test_lower_numbers_go_first(self, store: Store) -> None:
        """But nobody is forgotten: one of eight is the one that has waited longest."""
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
        await limit_queue(store, concurrency=1)
        old: dict[str, Any] = {"wake_at": START_MS - 1}
        await store.commit([queued(f"z{n}", queue_key="z", priority=9, **old) for n in range(9)])
        keys = [f"k{n:02}" for n in range(12)]
        await store.commit([queued(f"{k}-{n}", queue_key=k) for k in keys for n in range(9)])

        order = await one_by_one(Desk(store, "w"), 28)

        assert set(keys) <= {each.split("-")[0] for each in order}

    async def test_the_oldest_is_found_behind_a_long_line_of_a_full_key(self, store: Store) -> None:
        """Though more urgent runs keep coming, and hundreds before it may not be held."""
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
                await post_one(store, f"{queue}{number}", "m", b"")
        await store.commit([queued("other", "keys", queue_key="z"), queued("free", "free")])
        await store.commit([entry("plain", 0, epoch=0, header=header(wake_at=START_MS))])

        assert {"other", "free", "plain"} == set(await Desk(store, "v").offered(3))

    async def test_a_worker_of_some_queues_takes_no_other(
        self, store: Store, clock: HandClock
    ) -> None:
        """New or woken, with mail or left by the dead: only what is in its queues."""
        names = ("x", "y", "default")
        for name in names:
            await store.commit([queued(f"{name}-{kind}", name) for kind in ("dead", "old", "new")])
        await store.beat("dead")
        first = Desk(store, "first", wanting(*names))
        for name in names:
            await first.take_these([await offer_of(store, f"{name}-old")])
            await first.leave(f"{name}-old", wake_at=START_MS)
            await post_one(store, f"{name}-new", "m", b"")
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
        kinds = ("dead", "due", "mail", "later")
        wakes = {"due": START_MS, "later": START_MS + 9 * 60_000}
        for flow in ("own", "other"):
            for kind in kinds:
                shown = header(flow=flow, wake_at=wakes.get(kind))
                await store.commit([entry(f"{flow}-{kind}", 0, epoch=0, header=shown)])
            await post_one(store, f"{flow}-mail", "m", b"")
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
        await store.commit([queued("a", "x"), queued("b", "y")])
        desk = Desk(store, "w")
        await desk.take()
        await desk.leave("a", wake_at=START_MS + 5000)
        await desk.leave("b", wake_at=START_MS + 9000)

        claims = await store.claim("w", WANTED, 10)
        of_one = await store.claim("w", wanting("y"), 10)

        assert ([], START_MS + 5000) == (list(claims.offers), claims.next_at)
        assert START_MS + 9000 == of_one.next_at
