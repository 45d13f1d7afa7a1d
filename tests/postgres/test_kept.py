"""What is asked all the time is kept by a session of our own, which may forget it."""

from __future__ import annotations

import pytest

from bench.round_trips import RoundTrips
from outlive.stores.postgres import commit as postgres_prompt
from outlive.stores.postgres.connection import Statement
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.postgres.wire import Row
from outlive.testing.suite.entries import entry, held
from tests.harness.postgres_server import PostgresServer

PATIENT_SECONDS = 30.0
NAMES = "SELECT name FROM pg_prepared_statements ORDER BY name"


def ask(store: PostgresStore, sql: str) -> list[Row]:
    """Of the session that commits."""
    db = store.pool.take_kept("commit")
    assert db is not None
    (rows,) = db.run(Statement(sql))
    store.pool.give_back("commit", db)
    return rows


def kept(store: PostgresStore) -> list[str]:
    return [str(name).rpartition(".")[0] for (name,) in ask(store, NAMES)]


async def seqs(store: PostgresStore) -> list[int]:
    reading = await store.read("r")
    assert reading is not None
    return [record.seq for record in reading.records]


async def test_what_is_asked_a_second_time_is_kept(url: str) -> None:
    store = PostgresStore(url)
    await store.commit([held("r", "w"), held("s", "w")])
    await store.commit([entry("r", 1)])
    assert [] == kept(store)

    for seq in (2, 3, 4):
        assert [None] == await store.commit([entry("r", seq)])
    for seq in (5, 6):
        assert [None, None] == await store.commit([entry("r", seq), entry("s", seq - 4)])

    assert ["outlive.append_one_v1", "outlive.append_v1"] == kept(store)
    assert [1, 2, 3, 4, 5, 6, 7] == await seqs(store)
    await store.close()


async def test_to_have_it_kept_takes_no_round_trip(postgres: PostgresServer, url: str) -> None:
    with RoundTrips(postgres.port) as wire:
        store = PostgresStore(url.replace(f":{postgres.port}/", f":{wire.port}/"))
        await store.commit([held("r", "w")])
        before = wire.count
        for seq in (1, 2, 3, 4):
            await store.commit([entry("r", seq)])
        assert 4 == wire.count - before
        assert ["outlive.append_one_v1"] == kept(store)
        await store.close()


async def test_a_refusal_is_a_refusal(url: str) -> None:
    store = PostgresStore(url)
    await store.commit([held("r", "w")])
    for seq in (1, 2, 3):
        await store.commit([entry("r", seq)])

    (conflict,) = await store.commit([entry("r", 2, record=b"another")])

    assert conflict is not None
    assert 4 == conflict.seq
    assert ["outlive.append_one_v1"] == kept(store)
    await store.close()


async def test_a_session_may_forget(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked in full then, by whoever waits, and keeps it again."""
    monkeypatch.setattr(postgres_prompt, "MOMENT_SECONDS", PATIENT_SECONDS)
    store = PostgresStore(url)
    await store.commit([held("r", "w")])
    for seq in (1, 2, 3):
        await store.commit([entry("r", seq)])
    ask(store, "DEALLOCATE ALL")

    assert [None] == await store.commit([entry("r", 4)])
    assert [None] == await store.commit([entry("r", 5)])

    assert ["outlive.append_one_v1"] == kept(store)
    ask(store, "DEALLOCATE ALL")
    assert await store.commit([entry("r", 6)], wait=False) is None
    assert [None] == await store.commit([entry("r", 6)])
    assert [1, 2, 3, 4, 5, 6, 7] == await seqs(store)
    await store.close()


async def test_it_may_forget_a_part(url: str) -> None:
    """What it has kept is not what is believed here: nothing is lost, and nothing done twice."""
    store = PostgresStore(url)
    await store.commit([held("r", "w"), held("s", "w")])
    for seq in (1, 2, 3):
        await store.commit([entry("r", seq)])
        await store.commit([entry("r", seq), entry("s", seq)])
    (name,) = [name for (name,) in ask(store, NAMES) if ".append_one_v1." in name]
    ask(store, f'DEALLOCATE "{name}"')
    db = store.pool.take_kept("commit")
    assert db is not None
    db._kept.difference_update([each for each in db._kept if b".append_v1." in each])
    store.pool.give_back("commit", db)

    for seq in (4, 5):
        assert [None] == await store.commit([entry("r", seq)])
        assert [None, None] == await store.commit([entry("r", seq), entry("s", seq)])

    assert ["outlive.append_one_v1", "outlive.append_v1"] == kept(store)
    assert [1, 2, 3, 4, 5, 6] == await seqs(store)
    await store.close()


async def test_two_schemas_mean_two_statements(url: str) -> None:
    """A name stands for one text, whoever shares a session with whom."""
    stores = [PostgresStore(url), PostgresStore(f"{url}_too")]
    names = []
    for store in stores:
        await store.commit([held("r", "w")])
        for seq in (1, 2, 3):
            await store.commit([entry("r", seq)])
        names += ask(store, NAMES)
        await store.close()

    assert 2 == len(set(names))
