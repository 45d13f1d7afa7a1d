"""A SQLite file that is written at once, or not at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Conflict, Node
from outlive.testing.suite.entries import entry, header, post_one
from tests.stores.faulty import Faults


async def test_at_once_or_not_at_all(tmp_path: Path) -> None:
    """Whoever must not wait is told that somebody writes; nothing is written, and later it is."""
    store = SQLiteStore(tmp_path / "o.db")
    await store.commit([entry("r", 0)])
    writer = sqlite3.connect(tmp_path / "o.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")

    assert await store.commit([entry("r", 1)], wait=False) is None

    with store._connections.reading() as db:
        assert db.execute("PRAGMA busy_timeout").fetchone()[0] > 0, "the others still wait"
    writer.execute("ROLLBACK")
    writer.close()
    reading = await store.read("r")
    assert reading is not None
    assert 1 == reading.head.seq
    assert [None] == await store.commit([entry("r", 1)], wait=False)
    (conflict,) = await store.commit([entry("r", 1, record=b"another")], wait=False) or ()
    assert conflict is not None
    await store.close()


async def test_whatever_goes_with_a_record_goes_at_once_with_it(tmp_path: Path) -> None:
    """Header, nodes and mail: all of it or, while somebody writes, nothing."""
    store = SQLiteStore(tmp_path / "o.db")
    await store.commit([entry("r", 0)])
    await post_one(store, "r", "m", b"letter")
    node = Node(b"a" * 16, b"\0node")
    whole = entry("r", 1, header=header(status="waiting"), nodes=(node,), consumed=("m",))
    writer = sqlite3.connect(tmp_path / "o.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert await store.commit([whole], wait=False) is None
    writer.execute("ROLLBACK")
    writer.close()

    late = entry("r", 7, header=header(status="failed"), nodes=(Node(b"b" * 16, b"\0"),))
    (conflict,) = await store.commit([late], wait=False) or ()
    assert conflict is not None
    assert [None] == await store.commit([whole], wait=False)

    reading = await store.read("r")
    assert reading is not None
    assert ("waiting", 2, []) == (reading.header.status, reading.head.seq, list(reading.mail))
    found = await store.get_blobs(reading.header.family, [b"a" * 16, b"b" * 16])
    assert {node.address: node.body} == found
    await store.close()


async def test_records_with_a_node_or_two_are_one_statement(tmp_path: Path) -> None:
    """Behind the same fence: who is refused leaves nothing, and who repeats is told so."""
    faults = Faults()
    store = SQLiteStore(tmp_path / "o.db", connect=faults.connect)
    await store.commit([entry("r", 0), entry("s", 0)])
    await store.commit([entry("s", 1, nodes=(Node(b"there", b"\0first"),))])
    faults.statements.clear()
    batch = [
        entry("r", 1, nodes=(Node(b"a", b"\0a"), Node(b"b", b"\0b"))),
        entry("s", 2, nodes=(Node(b"c", b"\0c"),)),
    ]
    assert [None, None] == await store.commit(batch)
    assert 1 == len(faults.statements)

    late = entry("r", 1, b"late", nodes=(Node(b"d", b"\0d"),))
    again = entry("s", 3, nodes=(Node(b"there", b"\0second"),))
    assert [Conflict(seq=2, epoch=1), None] == await store.commit([late, again])
    assert [None, None] == await store.commit([batch[0], again])
    found = await store.get_blobs("family-1", [b"a", b"b", b"c", b"d", b"there"])
    assert {b"a": b"\0a", b"b": b"\0b", b"c": b"\0c", b"there": b"\0first"} == found
    await store.close()


async def test_nodes_that_are_there_already_are_told_by_one_more(tmp_path: Path) -> None:
    """However many runs bring them: a batch is not a loop over its entries."""
    faults = Faults()
    store = SQLiteStore(tmp_path / "o.db", connect=faults.connect)
    runs, node = [f"r{number}" for number in range(20)], Node(b"there", b"\0there")
    await store.commit([entry(run, 0) for run in runs])
    assert not any(await store.commit([entry(run, 1, nodes=(node,)) for run in runs]))
    faults.statements.clear()

    assert not any(await store.commit([entry(run, 2, nodes=(node,)) for run in runs]))
    assert 2 == len(faults.statements)
    await store.close()
