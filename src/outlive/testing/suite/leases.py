"""What every store owes leases: one holder, a fence, and takeover from the dead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from outlive.stores.seam import Store
from outlive.stores.types import Claims, Conflict
from outlive.testing.suite.entries import (
    LEASE_SECONDS,
    START_MS,
    WANTED,
    HandClock,
    entry,
    header,
    held,
    parked,
    post_one,
    takeover,
)


class LeaseRules:
    """Claim, beat, release, and what a commit does to a lease."""

    #: Whether the store can tell a dead worker from a silent one; over a network nobody can.
    deaths_are_certain = True

    async def kill(self, store: Store, worker: str) -> None:
        """Let a worker die that lives in its own store object; a store that can't closes it."""
        await store.close()

    async def test_taking_and_freeing(self, store: Store) -> None:
        """The head names the holder from the take to the free."""
        await store.commit([held("r", "w")])
        assert "w" == await holder_of(store, "r")

        await store.commit([entry("r", 1)])
        assert "w" == await holder_of(store, "r")

        await store.commit([entry("r", 2, lease="free", header=header(status="waiting"))])
        assert await holder_of(store, "r") is None

    async def test_freeing_without_a_header(self, store: Store) -> None:
        """A lease may move while the header stays."""
        await store.commit([held("r", "w")])

        await store.commit([entry("r", 1, lease="free")])

        assert await holder_of(store, "r") is None

    @pytest.mark.parametrize("lease", ["keep", "take", "free"])
    async def test_an_ended_run_is_held_by_nobody(self, store: Store, lease: str) -> None:
        """The last commit frees the lease, whatever else it says."""
        done = header(status="done", ended_at=START_MS)
        epoch = 2 if lease == "take" else 1
        await store.commit([held("r", "w")])

        await store.commit(
            [entry("r", 1, header=done, lease=lease, worker="w", epoch=epoch)],
        )

        assert await holder_of(store, "r") is None

    async def test_a_run_that_ends_as_it_begins_is_held_by_nobody(self, store: Store) -> None:
        """Creating and ending in one entry takes no lease."""
        await store.commit([held("r", "w", header=header(status="done", ended_at=START_MS))])

        assert await holder_of(store, "r") is None
        assert [] == offered(await store.claim("w2", WANTED, 10))

    async def test_a_due_run_is_offered(self, store: Store, clock: HandClock) -> None:
        """Not before its time, then until it is taken; next_at says when to ask again."""
        await store.commit([parked("r", START_MS + 5_000)])
        early = await store.claim("w", WANTED, 10)
        assert ([], START_MS + 5_000) == (offered(early), early.next_at)

        clock.advance(5)
        claims = await store.claim("w", WANTED, 10)

        (offer,) = claims.offers
        reading = await store.read("r")
        assert reading is not None
        assert (reading.head, reading.header, True) == (offer.head, offer.header, offer.certain)
        assert claims.next_at is None

    async def test_a_claim_is_an_append(self, store: Store, clock: HandClock) -> None:
        """Of two workers that got the same offer, the first to append has the run."""
        await store.commit([parked("r", START_MS)])
        for worker in ("a", "b"):
            await store.beat(worker)
            assert ["r"] == offered(await store.claim(worker, WANTED, 10))

        first = await store.commit([takeover("r", 1, "a", epoch=2)])
        second = await store.commit([takeover("r", 1, "b", epoch=2)])

        assert [None, Conflict(seq=2, epoch=2)] == [*first, *second]
        assert "a" == await holder_of(store, "r")
        assert [] == offered(await store.claim("b", WANTED, 10))

    async def test_a_held_run_is_not_offered(self, store: Store, clock: HandClock) -> None:
        """However due it is, while its holder lives and beats."""
        await store.beat("w")
        await store.commit([held("r", "w", header=header(wake_at=START_MS - 1))])

        for _ in range(5):
            assert [] == offered(await store.claim("other", WANTED, 10))
            clock.advance(LEASE_SECONDS * 0.9)
            await store.beat("w")

    async def test_a_dead_workers_run_is_offered(
        self, make_store: Callable[[], Store], clock: HandClock
    ) -> None:
        """At once if the store knows its deaths for certain; else after a lease of silence."""
        store, theirs = make_store(), make_store()
        await theirs.beat("w")
        await theirs.commit([held("r", "w")])
        assert [] == offered(await store.claim("other", WANTED, 10))

        await self.kill(theirs, "w")

        certain = self.deaths_are_certain
        if not certain:
            assert [] == offered(await store.claim("other", WANTED, 10))
            clock.advance(LEASE_SECONDS)
        (offer,) = (await store.claim("other", WANTED, 10)).offers
        assert ("r", "w", certain) == (offer.head.run_id, offer.head.worker, offer.certain)
        assert ["r"] == offered(await store.claim("third", WANTED, 10))

    async def test_a_worker_that_never_beat_is_dead(self, store: Store) -> None:
        """Who holds a lease and was never seen will not be seen."""
        await store.commit([held("r", "ghost")])

        (offer,) = (await store.claim("w", WANTED, 10)).offers

        assert offer.certain

    async def test_a_silent_workers_run_is_offered_after_a_lease(
        self, make_store: Callable[[], Store], clock: HandClock
    ) -> None:
        """It still has its lock, so its death is only supposed."""
        store, theirs = make_store(), make_store()
        await theirs.beat("w")
        await theirs.commit([held("r", "w")])
        assert [] == offered(await store.claim("other", WANTED, 10))
        clock.advance(LEASE_SECONDS - 0.001)
        assert [] == offered(await store.claim("other", WANTED, 10))

        clock.advance(0.001)

        (offer,) = (await store.claim("other", WANTED, 10)).offers
        assert ("r", False) == (offer.head.run_id, offer.certain)

    async def test_a_holder_is_judged_as_when_its_runs_are_offered(
        self, make_store: Callable[[], Store], clock: HandClock
    ) -> None:
        """Alive while it beats, silent after a lease, dead if it never beat or is nobody."""
        store, theirs = make_store(), make_store()
        await theirs.beat("w")
        await theirs.commit([held("r", "w")])

        assert "alive" == await store.standing("w")
        assert "alive" == await theirs.standing("w")
        clock.advance(LEASE_SECONDS)
        assert "silent" == await store.standing("w")
        await theirs.beat("w")
        assert "alive" == await store.standing("w")
        assert ["dead", "dead"] == [await store.standing(None), await store.standing("ghost")]

    async def test_a_dead_holder_is_known_to_be_dead(
        self, make_store: Callable[[], Store], clock: HandClock
    ) -> None:
        """At once if the store knows its deaths for certain; else it is silent after a lease."""
        store, theirs = make_store(), make_store()
        await theirs.beat("w")
        assert "alive" == await store.standing("w")

        await self.kill(theirs, "w")

        if self.deaths_are_certain:
            assert "dead" == await store.standing("w")
        else:
            assert "alive" == await store.standing("w")
            clock.advance(LEASE_SECONDS)
            assert "silent" == await store.standing("w")

    async def test_a_beat_ends_the_silence(
        self, make_store: Callable[[], Store], clock: HandClock
    ) -> None:
        """The lease begins anew with the watcher's first sight of every beat."""
        store, theirs = make_store(), make_store()
        await theirs.beat("w")
        await theirs.commit([held("r", "w")])
        await store.claim("other", WANTED, 10)
        clock.advance(LEASE_SECONDS)
        await theirs.beat("w")

        assert [] == offered(await store.claim("other", WANTED, 10))
        clock.advance(LEASE_SECONDS)
        assert ["r"] == offered(await store.claim("other", WANTED, 10))

    async def test_wall_time_does_not_matter_to_leases(
        self, make_store: Callable[[], Store], clock: HandClock
    ) -> None:
        """A clock that jumps a month ahead makes nobody silent."""
        store, theirs = make_store(), make_store()
        await theirs.beat("w")
        await theirs.commit([held("r", "w")])
        await store.claim("other", WANTED, 10)

        clock.wall_ms += 30 * 86_400_000

        assert [] == offered(await store.claim("other", WANTED, 10))

    async def test_a_zombie_is_refused(
        self, make_store: Callable[[], Store], clock: HandClock
    ) -> None:
        """A worker that wakes after its run was taken over adds no event, by any commit."""
        store, theirs = make_store(), make_store()
        await theirs.beat("zombie")
        await theirs.commit([held("r", "zombie")])
        await store.claim("w", WANTED, 10)
        clock.advance(LEASE_SECONDS)
        await store.beat("w")
        assert [None] == list(await store.commit([takeover("r", 1, "w", epoch=2)]))
        await theirs.beat("zombie")

        tries = [
            entry("r", 1, b"late"),
            entry("r", 2, b"late"),
            entry("r", 2, b"late", lease="free"),
            entry("r", 2, b"late", header=header(status="done", ended_at=1)),
            takeover("r", 1, "zombie", epoch=2),
            takeover("r", 2, "zombie", epoch=2),
        ]
        answers = [answer for late in tries for answer in await theirs.commit([late])]

        assert [Conflict(seq=2, epoch=2)] * len(tries) == answers
        assert "w" == await holder_of(store, "r")

    async def test_own_runs_are_never_offered(self, store: Store, clock: HandClock) -> None:
        """A worker that asks is alive, whatever its beats say."""
        await store.beat("w")
        await store.commit([held("r", "w")])
        await store.claim("w", WANTED, 10)
        clock.advance(LEASE_SECONDS * 2)

        assert [] == offered(await store.claim("w", WANTED, 10))

    async def test_a_released_worker_holds_nothing(self, store: Store) -> None:
        """Its runs are free at once: those that are due are offered, those that wait wait on."""
        await store.beat("w")
        await store.commit([held("due", "w", header=header(wake_at=START_MS))])
        await store.commit([held("waits", "w"), held("other", "v")])
        await store.beat("v")

        await store.release("w")
        await store.release("w")

        claims = await store.claim("next", WANTED, 10)
        assert ["due"] == offered(claims)
        assert [None, None, "v"] == [
            await holder_of(store, run_id) for run_id in ("due", "waits", "other")
        ]

    async def test_a_beat_tells_the_stores_time(self, store: Store, clock: HandClock) -> None:
        """Timers go by the store's clock."""
        clock.advance(3)

        assert START_MS + 3_000 == await store.beat("w")

    async def test_mail_makes_a_waiting_run_due(self, store: Store) -> None:
        """Until it is consumed; and it does not show as mail of one's own."""
        await store.commit([parked("r", START_MS + 5_000)])
        await post_one(store, "r", "m", b"")

        claims = await store.claim("w", WANTED, 10)
        assert (["r"], []) == (offered(claims), list(claims.mail))

        await store.commit([entry("r", 1, consumed=("m",))])
        assert [] == offered(await store.claim("w", WANTED, 10))

    async def test_mail_for_a_held_run_is_told_to_its_holder(self, store: Store) -> None:
        """And to nobody else."""
        await store.beat("w")
        await store.commit([held("r", "w"), held("s", "w")])
        await post_one(store, "r", "m", b"")

        assert ["r"] == list((await store.claim("w", WANTED, 10)).mail)
        assert [] == list((await store.claim("v", WANTED, 10)).mail)

        await store.commit([entry("r", 1, consumed=("m",))])
        assert [] == list((await store.claim("w", WANTED, 10)).mail)

    async def test_an_ended_run_is_never_due(self, store: Store) -> None:
        """Neither by time nor by mail."""
        await store.commit([parked("r", START_MS)])
        await post_one(store, "r", "m", b"")
        done = header(status="done", wake_at=START_MS, ended_at=START_MS)
        await store.commit([entry("r", 1, header=done)])

        claims = await store.claim("w", WANTED, 10)

        assert ([], None) == (offered(claims), claims.next_at)

    @pytest.mark.parametrize(
        "change",
        [
            {"flows": {}},
            {"flows": {"other": frozenset({"1"})}},
            {"flows": {"support": frozenset({"2"})}},
            {"flows": {"support": frozenset[str]()}},
            {"format": 2},
            {"run_ids": frozenset({"someone"})},
            {"run_ids": frozenset[str]()},
        ],
    )
    async def test_only_what_is_wanted_is_offered(
        self, store: Store, change: dict[str, Any]
    ) -> None:
        """A worker gets no run that it can't or won't drive, by time, by mail or by death."""
        await store.commit([parked("time", START_MS), parked("mail"), held("dead", "ghost")])
        await store.commit([parked("later", START_MS + 1)])
        await post_one(store, "mail", "m", b"")
        everything = await store.claim("w", WANTED, 10)
        assert {"time", "mail", "dead"} == set(offered(everything))

        nothing = await store.claim("w", msgspec.structs.replace(WANTED, **change), 10)

        assert ([], None) == (offered(nothing), nothing.next_at)

    async def test_certain_runs_can_be_asked_for(self, store: Store) -> None:
        """By id: due by time, by mail or by death, and when the next of them is due."""
        await store.commit([parked("time", START_MS), parked("mail"), held("dead", "ghost")])
        await store.commit([parked("later", START_MS + 9), parked("no", START_MS)])
        await post_one(store, "mail", "m", b"")
        ids = frozenset({"time", "mail", "dead", "later", "nobody"})

        claims = await store.claim("w", msgspec.structs.replace(WANTED, run_ids=ids), 10)

        assert {"time", "mail", "dead"} == set(offered(claims))
        assert START_MS + 9 == claims.next_at

    async def test_many_certain_runs_can_be_asked_for(self, store: Store) -> None:
        """However many of them sleep, and however many of others are due or sleep before them."""
        await store.commit([parked("time", START_MS), parked("mail"), held("dead", "ghost")])
        await store.commit([parked(f"sleeps{n}", START_MS + 1_000 + n) for n in range(200)])
        await store.commit([parked(f"other{n}", START_MS + 5 + n) for n in range(150)])
        await store.commit([parked(f"due{n}", START_MS - n) for n in range(50)])
        await post_one(store, "mail", "m", b"")
        ids = frozenset({"time", "mail", "dead", "nobody", *(f"sleeps{n}" for n in range(200))})

        claims = await store.claim("w", msgspec.structs.replace(WANTED, run_ids=ids), 10)

        assert {"time", "mail", "dead"} == set(offered(claims))
        assert claims.next_at is not None
        assert START_MS < claims.next_at <= START_MS + 1_000

    async def test_more_due_runs_of_others_hide_none(self, store: Store) -> None:
        """Ours is offered though many that nobody here wants have waited for longer."""
        await store.commit([parked(f"due{n}", START_MS - 100 - n) for n in range(200)])
        await store.commit([parked(f"own{n}", START_MS + 1_000) for n in range(99)])
        await store.commit([parked("own", START_MS - 1)])
        ids = frozenset({"own", *(f"own{n}" for n in range(99))})

        claims = await store.claim("w", msgspec.structs.replace(WANTED, run_ids=ids), 10)

        assert ["own"] == offered(claims)

    async def test_who_waited_longest_is_offered_first(self, store: Store) -> None:
        """At most as many as asked for, those with the earliest time."""
        await store.commit([parked(f"r{at}", START_MS - at) for at in (3, 9, 1, 7, 5)])

        assert ["r9", "r7", "r5"] == offered(await store.claim("w", WANTED, 3))
        assert [] == offered(await store.claim("w", WANTED, 0))

    async def test_several_flows_and_versions(self, store: Store) -> None:
        """A worker may drive many kinds of runs."""
        await store.commit(
            [
                parked("a1", START_MS - 2, flow="a", version="1"),
                parked("a2", START_MS - 1, flow="a", version="2"),
                parked("b1", START_MS - 3, flow="b", version="1"),
                parked("b2", START_MS + 4, flow="b", version="2"),
            ]
        )
        flows = {"a": frozenset({"1", "2"}), "b": frozenset({"2"})}

        claims = await store.claim("w", msgspec.structs.replace(WANTED, flows=flows), 10)

        assert (["a1", "a2"], START_MS + 4) == (offered(claims), claims.next_at)

    async def test_odd_worker_ids(self, make_store: Callable[[], Store]) -> None:
        """A worker's id is opaque too."""
        store = make_store()
        for worker in ("../../tmp/x", "a b/c", "\u00fc" * 200, "a\0b", "."):
            theirs = make_store()
            run_id = f"run of {worker}"
            await theirs.beat(worker)
            await theirs.commit([held(run_id, worker)])
            assert [] == offered(await store.claim("w", WANTED, 10))

            await theirs.release(worker)
            assert await holder_of(store, run_id) is None


def offered(claims: Claims) -> Sequence[str]:
    """The ids of the runs on offer."""
    return [offer.head.run_id for offer in claims.offers]


async def holder_of(store: Store, run_id: str) -> str | None:
    """Who holds the run's lease."""
    reading = await store.read(run_id)
    assert reading is not None
    return reading.head.worker
