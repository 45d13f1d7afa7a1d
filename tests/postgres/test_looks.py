"""What gets due while a worker looks for work is not overlooked; and what a look costs."""

from __future__ import annotations

import time

import psycopg
import pytest

from outlive.stores.postgres.store import PostgresStore
from outlive.testing.suite.entries import (
    FLOW,
    FORMAT,
    VERSION,
    WANTED,
    Desk,
    entry,
    limit_queue,
    parked,
    queued,
)
from tests.harness.postgres_server import PostgresServer

RUNS, LOOKS = 600, 150
#: Runs in a line, and those that a look may read, whatever the length of that.
LINE, READ_MAX = 3000, 600


async def test_what_gets_due_in_the_middle_of_a_look_is_told(url: str) -> None:
    """A look offers a run, or says to look again when the run gets due, if one a millisecond does.

    A worker that heard of neither would sleep until it looks for no reason.
    """
    store = PostgresStore(url)
    begin = time.time_ns() // 1_000_000
    times = {f"r{n}": begin + n for n in range(RUNS)}
    await store.commit([parked(run_id, at) for run_id, at in times.items()])

    for _ in range(LOOKS):
        claims = await store.claim("w", WANTED, RUNS)
        offered = {offer.head.run_id for offer in claims.offers}
        others = [at for run_id, at in times.items() if run_id not in offered]
        assert not others or (claims.next_at is not None and claims.next_at <= min(others))
    await store.close()


@pytest.mark.parametrize("is_full", [True, False])
async def test_a_long_line_costs_no_more_than_a_short_one(
    postgres: PostgresServer, url: str, is_full: bool
) -> None:
    """Neither that of a key of which no more may be held, nor one behind many runs of others."""
    store, schema = PostgresStore(url), url.rpartition("schema=")[2]
    await limit_queue(store, per_key=1, concurrency=50)
    await store.commit([queued("held", queue_key="long")])
    if is_full:
        assert ["held"] == await Desk(store, "v").take()
    await store.commit([entry(f"other-{n}", 0) for n in range(LINE)])
    await store.commit([queued(f"long-{n}", queue_key="long") for n in range(LINE)])
    await store.commit([queued(f"short-{n}", queue_key=f"k{n}") for n in range(20)])

    with psycopg.connect(postgres.url(), autocommit=True) as db:
        db.execute(f"VACUUM ANALYZE {schema}.runs".encode())
        with db.transaction():
            found = db.execute(
                f"SELECT run_id FROM {schema}.queued_v2(%s, %s, %s, NULL, 'w',"
                " '{}', '{}', '{}', NULL, 20)".encode(),
                ([FLOW], [VERSION], FORMAT),
            ).fetchall()
            ((read,),) = db.execute(
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables"
                f" WHERE schemaname = '{schema}' AND relname = 'runs'".encode()
            ).fetchall()
    await store.close()

    assert is_full == all(run_id.startswith("short") for (run_id,) in found)
    assert read <= READ_MAX
