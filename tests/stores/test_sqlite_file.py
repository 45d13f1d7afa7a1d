"""One SQLite file: its settings, its rights, what it refuses, and what it does after an error."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from outlive.errors import (
    AppClosed,
    CorruptRecord,
    StoreError,
    StoreFailed,
    StoreUnavailable,
    UnsafeSettings,
    WrongVersion,
)
from outlive.stores.seam import Store
from outlive.stores.sqlite.schema import SCHEMA_VERSION
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Node
from outlive.testing.suite.entries import WANTED, delete_one, entry, held, parked, post_one
from tests.stores.faulty import Faults

Verb = Callable[[Store], Awaitable[object]]

WRITES: dict[str, Verb] = {
    "commit of appends": lambda store: store.commit([entry("r", 1)]),
    "commit of anything": lambda store: store.commit([entry("new", 0)]),
    "post": lambda store: post_one(store, "r", "m", b""),
    "put_blob": lambda store: store.put_blob("f", Node(b"a", b"b")),
    "delete": lambda store: delete_one(store, "r", seq=1, digest=b"", keep_until=0),
    "release": lambda store: store.release("w"),
}


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
async def store(tmp_path: Path, faults: Faults) -> AsyncIterator[Store]:
    store = SQLiteStore(tmp_path / "o.db", connect=faults.connect)
    await store.commit([entry("r", 0)])
    yield store
    await store.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_every_connection_flushes_every_commit(tmp_path: Path, faults: Faults) -> None:
    """WAL and synchronous=FULL are set and read back on each that is opened beside another."""
    store = SQLiteStore(tmp_path / "o.db", connect=faults.connect)
    faults.statements.clear()

    with store._connections.reading():
        await store.read("r")

    for statement in ("journal_mode = WAL", "synchronous = FULL", "journal_mode", "synchronous"):
        assert f"PRAGMA {statement}" in faults.statements
    facts = (await store.health()).facts
    assert ("wal", "2") == (facts["journal_mode"], facts["synchronous"])
    await store.close()


@pytest.mark.parametrize(
    ("setting", "answer"), [("synchronous", 1), ("synchronous", 0), ("journal_mode", "delete")]
)
async def test_unsafe_settings_are_refused(
    tmp_path: Path, faults: Faults, setting: str, answer: str | int
) -> None:
    """A file that would lose acknowledged events is not opened at all."""
    faults.answers[f"PRAGMA {setting}"] = answer

    with pytest.raises(UnsafeSettings, match=setting):
        SQLiteStore(tmp_path / "o.db", connect=faults.connect)


async def test_plain_appends_are_one_statement(store: Store, faults: Faults) -> None:
    """A batch of appends is one statement, one transaction and one flush, for any number."""
    await store.commit([entry(f"r{number}", 0) for number in range(101)])
    await store.commit([entry("r0", 1)])
    faults.statements.clear()

    await store.commit([entry(f"r{number}", 1) for number in range(1, 101)])

    assert 1 == len(faults.statements)


async def test_any_batch_is_one_transaction(store: Store, faults: Faults) -> None:
    """Whatever a batch does, it is begun and flushed once, in statements as few as its kinds."""
    faults.statements.clear()
    nodes = (Node(b"a", b"b"),)

    await store.commit(
        [held(f"n{number}", "w") for number in range(100)]
        + [entry("r", 1, nodes=nodes, consumed=("m",), lease="free", header=parked("x").header)]
    )

    assert 1 == faults.statements.count("BEGIN IMMEDIATE") == faults.statements.count("COMMIT")
    assert len([each for each in faults.statements if "CREATE TEMP" not in each]) <= 8


async def test_a_refused_beginning_writes_nothing(tmp_path: Path) -> None:
    """Who asks for an id in use waits for no flush: the log is not touched."""
    log, store = tmp_path / "o.db-wal", SQLiteStore(tmp_path / "o.db")
    await store.commit([entry("r", 0)])
    before = log.read_bytes()
    assert [None] != await store.commit([entry("r", 0, b"another beginning")])
    assert before == log.read_bytes()
    await store.close()


async def test_files_are_private(tmp_path: Path) -> None:
    """Whatever the umask: files 0600, folders 0700, those of SQLite and of workers too."""
    path = tmp_path / "new" / "folder" / "o.db"
    before = os.umask(0)
    try:
        store = SQLiteStore(path)
        await store.beat("w")
        await store.commit([entry("r", 0)])
    finally:
        os.umask(before)

    files = [found for found in path.parent.rglob("*") if found.is_file()]
    assert {"o.db", "o.db-wal", "o.db-shm", "w.beat", "made"} == {found.name for found in files}
    assert {0o600} == {mode(found) for found in files}
    folders = (path.parent, path.parent.parent, Path(f"{path}-workers"))
    assert {0o700} == {mode(folder) for folder in folders}
    await store.close()


async def test_an_open_file_keeps_its_rights(tmp_path: Path) -> None:
    """A store that was there is not made more private, nor less."""
    path = tmp_path / "o.db"
    await SQLiteStore(path).close()
    path.chmod(0o640)

    await SQLiteStore(path).close()

    assert 0o640 == mode(path)


async def test_links_lead_to_one_store(tmp_path: Path) -> None:
    """Who opens the file by another name sees the same workers."""
    (tmp_path / "link.db").symlink_to(tmp_path / "o.db")
    store, theirs = SQLiteStore(tmp_path / "o.db"), SQLiteStore(tmp_path / "link.db")
    await theirs.beat("w")
    await theirs.commit([held("r", "w")])

    assert [] == list((await store.claim("other", WANTED, 10)).offers)
    await store.close()
    await theirs.close()


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    """The error names both versions; not a byte of the file changes."""
    path = tmp_path / "o.db"
    await SQLiteStore(path).close()
    db = sqlite3.connect(path)
    db.execute("UPDATE meta SET value = '99' WHERE name = 'outlive.schema'")
    db.commit()
    db.close()
    before = path.read_bytes()

    with pytest.raises(WrongVersion, match=rf"schema 99.*schema {SCHEMA_VERSION}\b"):
        SQLiteStore(path)

    assert before == path.read_bytes()


async def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    """No tables are put beside those of others."""
    path = tmp_path / "o.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE runs (mine)")
    db.close()
    before = path.read_bytes()

    with pytest.raises(StoreUnavailable, match="another program"):
        SQLiteStore(path)

    assert before == path.read_bytes()


async def test_what_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Neither a text file nor a folder is a store."""
    path = tmp_path / "o.db"
    path.write_text("Dear diary, " * 1000)

    with pytest.raises(StoreUnavailable, match="not a SQLite database"):
        SQLiteStore(path)
    with pytest.raises(StoreUnavailable, match="can't be opened"):
        SQLiteStore(tmp_path)

    assert path.read_text().startswith("Dear diary")


async def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    """The error of the operating system becomes a line with the remedy."""
    (tmp_path / "file").touch()

    with pytest.raises(StoreUnavailable, match="Not a directory"):
        SQLiteStore(tmp_path / "file" / "o.db")


@pytest.mark.parametrize("write", WRITES, ids=WRITES.keys())
async def test_after_a_failed_flush_nothing_is_written(
    store: Store, faults: Faults, write: str
) -> None:
    """An I/O error is never tried again: each later write fails at once, without touching."""
    # What takes a single statement is flushed by it.
    faults.errors = dict.fromkeys(("INSERT", "DELETE", "COMMIT"), sqlite3.SQLITE_IOERR)
    with pytest.raises(StoreFailed):
        await WRITES[write](store)
    faults.errors = {}
    faults.statements.clear()

    for later in WRITES.values():
        with pytest.raises(StoreFailed, match="not written any more"):
            await later(store)

    assert [] == faults.statements
    assert (await store.read("r")) is not None
    assert "injected" in (await store.health()).problems[0]


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB])
async def test_damage_stops_all_writing(store: Store, faults: Faults, code: int) -> None:
    """A damaged file is not made worse."""
    faults.errors = {"INSERT": code}
    with pytest.raises(StoreFailed):
        await store.commit([entry("s", 0)])
    faults.errors = {}

    with pytest.raises(StoreFailed, match="not written any more"):
        await store.commit([entry("s", 0)])


async def test_any_error_of_a_flush_is_fatal(store: Store, faults: Faults) -> None:
    """Also one that would be harmless elsewhere."""
    faults.errors = {"COMMIT": sqlite3.SQLITE_BUSY}
    with pytest.raises(StoreError):
        await store.commit([entry("s", 0, nodes=(Node(b"a", b"b"),))])
    faults.errors = {}

    with pytest.raises(StoreFailed, match="not written any more"):
        await store.commit([entry("s", 0)])


async def test_a_refused_statement_is_not_fatal(store: Store, faults: Faults) -> None:
    """What fails before the flush, by no fault of the disk, is rolled back and forgotten."""
    faults.errors = {"INSERT INTO noding": sqlite3.SQLITE_TOOBIG}
    with pytest.raises(StoreFailed):
        await store.commit([entry("s", 0, nodes=(Node(b"a", b"b"),))])
    faults.errors = {}

    assert await store.read("s") is None
    assert [None] == list(await store.commit([entry("s", 0)]))


async def test_a_full_disk_is_told_and_survived(tmp_path: Path) -> None:
    """Nothing of the batch is there; when there is room again, the store goes on."""
    pages = 100

    def connect(path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        db.execute(f"PRAGMA max_page_count = {pages}")
        return db

    store = SQLiteStore(tmp_path / "o.db", connect=connect)
    await store.commit([entry("r", 0)])

    for batch in ([entry("r", 1, bytes(1_000_000))], [entry("s", 0, bytes(1_000_000))]):
        with pytest.raises(StoreFailed, match="disk is full"):
            await store.commit(batch)

    assert await store.read("s") is None
    assert [None] == list(await store.commit([entry("r", 1, b"small")]))
    await store.close()


async def test_a_locked_file_is_unavailable(tmp_path: Path, faults: Faults) -> None:
    """After the wait for it; and when it is free, the store goes on."""
    faults.answers["PRAGMA busy_timeout = 30000"] = 0
    store = SQLiteStore(tmp_path / "o.db", connect=faults.connect)
    db = sqlite3.connect(tmp_path / "o.db", isolation_level=None, timeout=0)
    db.execute("BEGIN IMMEDIATE")

    for batch in ([entry("r", 0)], [entry("r", 1)]):
        with pytest.raises(StoreUnavailable, match="locked"):
            await store.commit(batch)
    db.execute("ROLLBACK")
    db.close()

    assert [None] == list(await store.commit([entry("r", 0)]))
    await store.close()


async def test_a_closed_store_is_closed(store: Store) -> None:
    """Every verb says so."""
    await store.close()

    others: list[Verb] = [
        lambda store: store.read("r"),
        lambda store: store.beat("w"),
        lambda store: store.health(),
    ]

    for verb in (*WRITES.values(), *others):
        with pytest.raises(AppClosed):
            await verb(store)


async def test_a_record_beyond_the_head_is_not_written_over(store: Store, tmp_path: Path) -> None:
    """In a file whose head went back, an append is refused, and its neighbours are done."""
    await store.commit([entry("r", 1, b"there"), entry("s", 0)])
    db = sqlite3.connect(tmp_path / "o.db", isolation_level=None)
    db.execute("UPDATE runs SET seq = 1 WHERE run_id = 'r'")
    db.close()

    (refused, done) = await store.commit([entry("r", 1, b"other"), entry("s", 1)])
    (again,) = await store.commit([entry("r", 1, b"there")])

    assert (None, True, True) == (done, refused is not None, again is not None)
    reading = await store.read("r")
    assert reading is not None
    assert [b"there"] == [record.body for record in reading.records[1:]]


async def test_a_damaged_row_is_told_and_others_go_on(store: Store, tmp_path: Path) -> None:
    """Reading the damaged run raises and names it; other runs can still be claimed."""
    await store.commit([parked("bad", 0), parked("good", 0)])
    db = sqlite3.connect(tmp_path / "o.db", isolation_level=None)
    db.execute("UPDATE runs SET tags = 'no tags' WHERE run_id = 'bad'")
    db.execute("UPDATE records SET body = 'text' WHERE run = 1")
    db.close()

    for damaged in ("bad", "r"):
        with pytest.raises(CorruptRecord, match=f"run {damaged}"):
            await store.read(damaged)
    claims = await store.claim("w", WANTED, 10)
    assert ["good"] == [offer.head.run_id for offer in claims.offers]


async def test_a_sqlite_that_is_too_old_is_refused(tmp_path: Path, faults: Faults) -> None:
    """The error names both versions."""
    faults.answers["SELECT sqlite_version()"] = "3.31.1"

    with pytest.raises(WrongVersion, match=r"3\.31\.1.*3\.32\.0"):
        SQLiteStore(tmp_path / "o.db", connect=faults.connect)


async def test_a_connection_is_left_to_the_next_thread(tmp_path: Path, faults: Faults) -> None:
    """A process that uses many threads, one after the other, opens one connection."""
    store = SQLiteStore(tmp_path / "o.db", connect=faults.connect)
    for _ in range(20):
        thread = threading.Thread(target=lambda: run(store.read("r")))
        thread.start()
        thread.join()

    descriptors = [os.readlink(f"/proc/self/fd/{fd}") for fd in listed_descriptors()]

    assert 1 == descriptors.count(str(tmp_path / "o.db"))
    await store.close()


async def test_what_only_writers_need_is_made_when_it_is_needed(
    tmp_path: Path, faults: Faults
) -> None:
    """A connection that only reads has no views; one that writes gets each of them once."""
    store = SQLiteStore(tmp_path / "o.db", connect=faults.connect)
    await store.read("r")
    made = [sum("CREATE TEMP VIEW" in each for each in faults.statements)]

    for seq in range(3):
        await store.commit([entry("r", seq)])
        made.append(sum("CREATE TEMP VIEW" in each for each in faults.statements))

    assert made == [0, 1, 2, 2]
    await store.close()


def listed_descriptors() -> list[str]:
    found = os.listdir("/proc/self/fd")
    return [fd for fd in found if os.path.lexists(f"/proc/self/fd/{fd}")]


def run(verb: Coroutine[Any, Any, Any]) -> None:
    """Drive a verb of a local store, which never suspends."""
    with suppress(StopIteration):
        verb.send(None)


async def test_a_folder_of_workers_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """Whoever writes there decides which workers count as alive."""
    path = tmp_path / "o.db"
    await SQLiteStore(path).close()
    workers = tmp_path / "o.db-workers"
    for mode in (0o770, 0o707, 0o1777):
        workers.chmod(mode)
        with pytest.raises(StoreUnavailable, match="others may write to"):
            SQLiteStore(path)
    descriptors = [os.readlink(f"/proc/self/fd/{fd}") for fd in listed_descriptors()]
    assert str(path) not in descriptors, "what is refused is not kept open"
    workers.chmod(0o700)
    await SQLiteStore(path).close()


async def test_a_folder_of_workers_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    """A link there may have been made by anybody."""
    path, elsewhere = tmp_path / "o.db", tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / "o.db-workers").symlink_to(elsewhere)

    with pytest.raises(StoreUnavailable, match="is a symbolic link"):
        SQLiteStore(path)
    assert not list(elsewhere.iterdir())
