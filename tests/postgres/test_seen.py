"""A server that went back, behind what it acknowledged: nothing is driven from there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest.mock import patch

import psycopg
import pytest

from outlive.errors import StoreFailed
from outlive.ports import Ports
from outlive.stores.postgres import regression as postgres_seen
from outlive.stores.postgres.regression import AGE_SECONDS_MAX, DurableSeqs
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.types import Conflict, Entry
from outlive.testing.suite.entries import (
    START_MS,
    WANTED,
    HandClock,
    delete_one,
    entry,
    header,
    held,
    parked,
    takeover,
)
from tests.harness.postgres_server import PostgresServer

#: Puts run r back to an earlier head; 0: it was never there.
Rewind = Callable[[int], None]

WAITING: dict[str, Any] = {"lease": "free", "header": header(status="waiting", wake_at=START_MS)}
ENDED: dict[str, Any] = {"header": header(status="done", ended_at=START_MS)}


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """The store of a process that drives."""
    store = PostgresStore(url, server_time=lambda: START_MS)
    yield store
    await store.close()


@pytest.fixture
def rewind(postgres: PostgresServer, url: str) -> Rewind:
    """What a standby that was behind, or a backup, would have of run r."""
    schema = url.rpartition("schema=")[2]

    def rewind(seq: int) -> None:
        with psycopg.connect(postgres.url(), autocommit=True) as db:
            db.execute(f"DELETE FROM {schema}.records WHERE run_id = 'r' AND seq > {seq}".encode())
            db.execute(
                f"UPDATE {schema}.runs SET seq = {seq}, worker = NULL, epoch = 1, ended_at = NULL,"
                f" wake_at = {START_MS} WHERE run_id = 'r'".encode()
            )
            if not seq:
                db.execute(f"DELETE FROM {schema}.runs WHERE run_id = 'r'".encode())

    return rewind


@pytest.mark.parametrize("verb", ["commit", "read"])
async def test_a_server_behind_what_it_acknowledged_is_refused(
    url: str, store: PostgresStore, rewind: Rewind, verb: str
) -> None:
    """A standby that lacks the last events took over: no conflict, after which one would go on."""
    await store.commit([held("r", "w")])
    await store.commit([entry("r", 1), entry("r", 2)])
    fresh = PostgresStore(url)
    rewind(2)

    with pytest.raises(StoreFailed, match="was stored up to 3 and now ends at 2"):
        await (store.commit([entry("r", 3)]) if verb == "commit" else store.read("r"))

    assert await fresh.read("r") is not None  # who has seen nothing can't know
    await fresh.close()


@pytest.mark.parametrize("last", [WAITING, ENDED], ids=["waits", "ended"])
async def test_a_run_that_is_not_held_any_more_is_not_driven_again(
    store: PostgresStore, rewind: Rewind, last: dict[str, Any]
) -> None:
    """Not even offered, though nothing but its last event is missing."""
    await store.commit([held("r", "w")])
    await store.commit([entry("r", 1)])
    await store.commit([entry("r", 2, **last)])
    rewind(2)

    with pytest.raises(StoreFailed, match="was stored up to 3 and now ends at 2"):
        await store.claim("w", WANTED, 10)


async def test_a_run_that_is_lost_is_not_begun_again(store: PostgresStore, rewind: Rewind) -> None:
    """Who starts it once more under its id would do again what it did."""
    await store.commit([held("r", "w")])
    await store.commit([entry("r", 1)])
    await store.commit([entry("r", 2, **ENDED)])
    rewind(0)

    with pytest.raises(StoreFailed, match="was stored up to 3 and now ends at 1"):
        await store.commit([held("r", "w")])


async def test_an_id_may_be_used_again(store: PostgresStore) -> None:
    """After a deletion whose tombstone is over: that is another run."""
    await store.commit([held("r", "w")])
    await store.commit([entry("r", 1, **ENDED)])
    assert await delete_one(store, "r", seq=2, digest=b"", keep_until=0)

    assert [None] == list(await store.commit([held("r", "w")]))
    reading = await store.read("r")
    assert reading is not None
    assert 1 == reading.head.seq


@pytest.fixture
async def other(url: str) -> AsyncIterator[PostgresStore]:
    """The store of another process."""
    store = PostgresStore(url, server_time=lambda: START_MS)
    yield store
    await store.close()


@pytest.mark.parametrize("verb", ["read", "claim", "commit", "begin"])
@pytest.mark.parametrize("lives", [1, 2])
async def test_an_id_may_be_used_again_by_others(
    store: PostgresStore, other: PostgresStore, verb: str, lives: int
) -> None:
    """Once or twice, and soon: its tombstone, which is not cleared away yet, tells who it was."""
    await store.commit([held("r", "w")])
    await store.commit([entry("r", number) for number in range(1, 4)])
    await store.commit([entry("r", 4, **ENDED)])
    await _lay_to_rest(other, "r", 5)
    for number in range(1, lives):
        await other.commit([held("r", "v"), entry("r", 1, **ENDED)])
        await _lay_to_rest(other, "r", 2)
        await other.commit([held(f"x{number}", "v"), entry(f"x{number}", 1, **ENDED)])
        await _lay_to_rest(other, f"x{number}", 2)
    if verb != "begin":
        await other.commit([parked("r", wake_at=START_MS)])

    if verb == "read":
        assert await store.read("r") is not None
    elif verb == "claim":
        claims = await store.claim("w", WANTED, 10)
        assert ["r"] == [offer.head.run_id for offer in claims.offers]
        assert [None] == list(await store.commit([takeover("r", 1, "w", epoch=2)]))
        assert [2] == store._seen.known(["r"])
    elif verb == "commit":
        assert [Conflict(seq=1, epoch=1)] == list(await store.commit([entry("r", 5)]))
    else:
        assert [None] == list(await store.commit([held("r", "w")]))
        assert [1] == store._seen.known(["r"])


async def _lay_to_rest(store: PostgresStore, run_id: str, seq: int) -> None:
    assert await delete_one(store, run_id, seq=seq, digest=b"", keep_until=START_MS)


async def test_a_tombstone_of_an_earlier_run_hides_no_loss(
    store: PostgresStore, other: PostgresStore, rewind: Rewind
) -> None:
    """It ended before the run that is missing was seen."""
    await other.commit([held("r", "v"), *(entry("r", number) for number in range(1, 8))])
    await other.commit([entry("r", 8, header=header(status="done", ended_at=START_MS - 1))])
    await _lay_to_rest(other, "r", 9)
    await store.commit([held("r", "w")])
    await store.commit([entry("r", 1)])
    await store.commit([entry("r", 2, **ENDED)])
    rewind(2)

    with pytest.raises(StoreFailed, match="was stored up to 3 and now ends at 2"):
        await store.read("r")


async def test_a_run_that_is_not_there_may_have_been_deleted(
    store: PostgresStore, rewind: Rewind
) -> None:
    """By another process, and its tombstone is over: whoever asks for it is just told."""
    await store.commit([held("r", "w")])
    await store.commit([entry("r", 1, **ENDED)])
    rewind(0)

    assert await store.read("r") is None
    assert [Conflict(seq=0, epoch=0)] == list(await store.commit([entry("r", 7)]))


async def test_an_offer_that_others_were_quicker_to_take_is_no_loss(store: PostgresStore) -> None:
    """Between a look and its answer another thread went on with the run."""
    await store.commit([held("r", "w")])
    await store.commit([entry("r", 1, **WAITING)])
    run, behind = store.pool.run, store._seen.behind

    def later(heads: list[tuple[str, int]]) -> list[str]:
        run("other", store._ask("UPDATE {s}.runs SET seq = 3"))
        store._seen.note(takeover("r", 2, "v", epoch=2), 2, None)
        return behind(heads)

    with patch.object(store._seen, "behind", later):
        claims = await store.claim("w", WANTED, 10)

    assert ["r"] == [offer.head.run_id for offer in claims.offers]


def done(number: int) -> Entry:
    """The end of a run that was driven here."""
    return entry(f"r{number}", 1, lease="free")


def test_what_is_remembered_has_a_bound() -> None:
    """The latest at least, twice as many at most; what is held always."""
    seen, most = DurableSeqs(Ports().clock), 100
    seen.note(held("held", "w"), 0, None)
    with patch.object(postgres_seen, "RUNS_MAX", most):
        for number in range(10 * most):
            seen.known([f"r{number}"])
            seen.note(done(number), 0, None)

    latest = [f"r{number}" for number in range(9 * most, 10 * most)]
    assert [2] * most == seen.known(latest)
    assert 2 * most >= sum(map(bool, seen.known(f"r{number}" for number in range(10 * most))))
    assert [1] == seen.known(["held"])


def test_what_was_seen_long_ago_is_forgotten() -> None:
    """An id may be used again some time after its run was deleted, by another process too."""
    clock = HandClock()
    seen = DurableSeqs(clock)
    seen.note(done(1), 0, None)

    clock.advance(AGE_SECONDS_MAX)
    assert [2] == seen.known(["r1"])
    clock.advance(1)
    assert [2] == seen.known(["r1"])
    clock.advance(AGE_SECONDS_MAX + 1)
    assert [0] == seen.known(["r1"])


def test_what_was_seen_before_a_long_silence_is_forgotten() -> None:
    """Its tombstone may have been cleared away meanwhile."""
    clock = HandClock()
    seen = DurableSeqs(clock)
    seen.note(done(1), 0, None)

    clock.advance(2 * AGE_SECONDS_MAX + 1)
    assert [0] == seen.known(["r1"])
