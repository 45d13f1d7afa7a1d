"""Changes on a server, where transactions end in another order than they began."""

from __future__ import annotations

import psycopg

from outlive.stores.postgres.store import PostgresStore
from outlive.testing.suite.entries import entry


async def test_the_lower_number_that_commits_last_is_told(url: str) -> None:
    """A run of a transaction that began first and ends last is not skipped, and comes once."""
    store = PostgresStore(url)
    await store.commit([entry("first", 0), entry("second", 0)])
    begin = (await store.changes()).next
    slow = psycopg.connect(url.partition("?")[0])
    schema = store.pool.place.schema
    # The same as a commit does, by hand: it has its number, and is not over.
    slow.execute(f"UPDATE \"{schema}\".runs SET seq = 2 WHERE run_id = 'first'".encode())
    slow.execute(
        f"INSERT INTO \"{schema}\".records (run_id, seq, body) VALUES ('first', 2, 'x')".encode()
    )
    ((lower,),) = slow.execute("SELECT txid_current()").fetchall()
    await store.commit([entry("second", 1)])
    with psycopg.connect(url.partition("?")[0]) as other:
        ((higher,),) = other.execute(
            f'SELECT max(written_by) FROM "{schema}".records'.encode()
        ).fetchall()
    assert lower < higher

    early = await store.changes(begin)
    nothing = await store.changes(early.next)
    slow.commit()
    slow.close()
    late = await store.changes(nothing.next)
    over = await store.changes(late.next)

    assert [("second", 2)] == [(run.id, run.head.seq) for run in early.items]
    assert [] == list(nothing.items)
    assert [("first", 2)] == [(run.id, run.head.seq) for run in late.items]
    assert [] == list(over.items)
    await store.close()
