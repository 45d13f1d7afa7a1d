"""Journals in one SQLite file: the default store, for any number of processes on one machine.

An acknowledged commit is on the disk: WAL with a flush per commit, read back and enforced.
Writers on one file take turns; group commit makes that cheap. Who is alive is told by locked
files beside the database (``presence.py``), never by it: a beat does not wait for a commit.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, overload

from outlive.model.defaults import COUNTED_MAX, FIND_LIMIT, LEASE_SECONDS
from outlive.ports import Clock, Ports, nothing_happens
from outlive.stores.liveness import Presence, introduced
from outlive.stores.queues import Turns
from outlive.stores.seam import Watchable
from outlive.stores.shared import SoundRows, check_headers, check_together, parse_page
from outlive.stores.sqlite import deletion as nodes
from outlive.stores.sqlite.claim import SQLiteSearch, holders, own_mail, runs_by_holder
from outlive.stores.sqlite.commit import (
    RefusedTogether,
    append_all,
    commit_batch,
    create_view,
    post_letter,
    post_letters,
    single_view,
    views_for,
    waiting_mail,
)
from outlive.stores.sqlite.connections import (
    Connect,
    Connection,
    Connections,
    connect_sqlite3,
)
from outlive.stores.sqlite.deletion import delete_runs, read_runs
from outlive.stores.sqlite.files import unavailable
from outlive.stores.sqlite.health import (
    LogRoom,
    beside_journals,
    durability_problems,
    file_problems,
    log_problems,
    make_safe,
)
from outlive.stores.sqlite.queues import find_limits, queue_states, set_limits
from outlive.stores.sqlite.rows import (
    FOUND_COLUMNS,
    check_missing,
    find_journals,
    found_of,
    moved_after,
    records_of,
    search_of,
)
from outlive.stores.sqlite.schema import SCHEMA_VERSION, Making, check_release, is_ready
from outlive.stores.sqlite.transactions import SQLiteTransactions
from outlive.stores.types import (
    LAST_CHAPTER,
    PAGE_MAX,
    Answers,
    Changes,
    Claims,
    Count,
    Deletion,
    Entry,
    Health,
    Mail,
    Node,
    Page,
    Posted,
    Posting,
    Query,
    QueueLimits,
    QueueState,
    Reading,
    Standing,
    Wanted,
    WorkerState,
)

logger = logging.getLogger("outlive")


class SQLiteStore:
    """A store in one file of the local disk. Safe to use from several threads and processes."""

    clock: Clock | None = None
    threads: int | None = None
    watchable: Watchable | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        ports: Ports | None = None,
        lease_seconds: float = LEASE_SECONDS,
        connect: Connect | None = None,
        upgrades: bool = True,
    ) -> None:
        """Unless it ``upgrades``, a file of an earlier release is refused."""
        # Resolved, so that all who open the file by any name look into one folder of workers.
        self._path = os.path.realpath(path)
        self._making = Making(self._path, upgrades=upgrades)
        self._ports = ports or Ports()
        self._making.make_file()
        self._turns = Turns()
        self._rows = SoundRows(found_of)
        self._presence = Presence(self._making.workers, self._ports.clock, lease_seconds)
        self._connections = Connections(
            self._path,
            connect or connect_sqlite3,
            prepare=self._prepare,
            create_view=create_view,
        )
        self._log = LogRoom(self._connections)
        self.transactions = SQLiteTransactions(self._connections, self._ports, self._log)
        try:
            self._look_at_files()
        except BaseException:
            self._connections.close()
            raise

    def _look_at_files(self) -> None:
        with self._connections.reading() as db:
            db.execute("SELECT 1 FROM meta").fetchone()  # SQLite looks at its log
            self._connections.check_files()
            for problem in log_problems(self._path):
                logger.error("%s", problem)
        self._making.mark()

    def _prepare(self, db: Connection) -> None:
        check_release(db)
        if not is_ready(db, self._path):
            self._making.make_tables(db)
        make_safe(db, self._path)

    # ------------------------------------------------------------------ journals

    @overload
    async def commit(self, batch: Sequence[Entry]) -> Answers: ...
    @overload
    async def commit(self, batch: Sequence[Entry], *, wait: bool) -> Answers | None: ...
    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Answers | None:
        if not batch:
            return []
        if len(batch) > 1 or not batch[0].after:
            check_headers(batch)
        now = self._ports.clock.now_ms()
        failpoint = self._ports.failpoint
        if failpoint is not nothing_happens:
            failpoint("commit.before")
        view = single_view(batch)
        answers: Answers | None
        if not wait:
            views = views_for(batch) if view is None else {view}
            write = commit_batch if view is None else partial(append_all, view=view)
            answers = self._connections.write_at_once(
                views, partial(write, batch=batch, now=now), is_single=view is not None
            )
        elif view is not None:
            work = partial(append_all, batch=batch, now=now, view=view)
            answers = self._connections.write_once({view}, work)
        else:
            with self._connections.writing(views_for(batch)) as db:
                # After a wait for other writers, leases are taken now, not when the wait began.
                answers = commit_batch(db, batch, self._ports.clock.now_ms())
        if answers is not None:
            self._log.committed()
        if failpoint is not nothing_happens:
            failpoint("commit.after")
        return answers

    async def commit_together(self, batch: Sequence[Entry]) -> Answers:
        check_together(batch)
        self._ports.failpoint("commit.before")
        try:
            with self._connections.writing(views_for(batch)) as db:
                answers: Answers = commit_batch(db, batch, self._ports.clock.now_ms())
                if any(answers):
                    raise RefusedTogether(answers)
        except RefusedTogether as refused:
            return refused.answers
        self._log.committed()
        self._ports.failpoint("commit.after")
        return answers

    async def read(
        self, run_id: str, after: int = 0, *, limit: int | None = None
    ) -> Reading | None:
        with self._connections.reading() as db:
            row = db.execute(
                f"SELECT id, {FOUND_COLUMNS} FROM runs WHERE run_id = ?", (run_id,)
            ).fetchone()
            if row is None:
                check_missing(db, run_id)
                return None
            found = found_of(row)
            head, header = found.head, found.header
            begin = header.chapter - 1 if after == LAST_CHAPTER else after
            records = _records(db, row[0], begin, limit) if begin < head.seq else []
            mail = _mail(db, row[0]) if head.posted != head.consumed else []
        return Reading(
            head=head,
            header=header,
            records=records_of(run_id, records),
            mail=[Mail(mail_id=mail_id, body=body, posted_at=at) for mail_id, body, at in mail],
        )

    async def find(self, query: Query, after: str | None = None, limit: int = FIND_LIMIT) -> Page:
        size = max(1, min(limit, PAGE_MAX))
        if query.runs:
            with self._connections.reading() as db:
                return search_of(db).page(query, after, size)
        begin = parse_page(after)
        with self._connections.reading() as db:
            found = find_journals(db, query, begin, size + 1)
        more = len(found) > size
        page = found[:size]
        return Page(items=[run for _, run in page], next=str(page[-1][0]) if more else None)

    async def count(self, query: Query, most: int = COUNTED_MAX) -> Count:
        with self._connections.reading() as db:
            return search_of(db).count(query, most)

    async def changes(self, after: str | None = None, limit: int = FIND_LIMIT) -> Changes:
        last = None if after is None else parse_page(after)
        with self._connections.reading() as db:
            items, following = moved_after(db, last, max(1, min(limit, PAGE_MAX)))
        return Changes(items=items, next=str(following))

    async def delete(self, batch: Sequence[Deletion]) -> Sequence[bool]:
        now = self._ports.clock.now_ms()
        with self._connections.writing() as db:
            return delete_runs(db, batch, now)

    async def read_all(self, run_ids: Sequence[str]) -> Mapping[str, Reading]:
        with self._connections.reading() as db:
            return read_runs(db, run_ids)

    # ------------------------------------------------------------------ mail and nodes

    async def post(self, batch: Sequence[Posting]) -> Sequence[Posted]:
        now = self._ports.clock.now_ms()
        if len(batch) == 1:
            work = partial(post_letter, letter=batch[0], now=now)
            if self._connections.write_once({"posting"}, work):
                return ["posted"]
        with self._connections.writing() as db:
            return post_letters(db, batch, now)

    async def mail_of(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mail]]:
        if len(run_ids) == 1:
            return self._connections.look(partial(waiting_mail, run_ids=run_ids))
        with self._connections.reading() as db:
            return waiting_mail(db, run_ids)

    async def put_blob(self, family: str, node: Node) -> None:
        with self._connections.writing() as db:
            nodes.put_node(db, family, node)

    async def get_blobs(self, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
        with self._connections.reading() as db:
            return nodes.get_nodes(db, family, addresses)

    async def drop_blobs(self, family: str, addresses: Sequence[bytes]) -> None:
        with self._connections.writing() as db:
            nodes.drop_nodes(db, family, addresses)

    async def families(self, after: str, limit: int) -> Sequence[str]:
        with self._connections.reading() as db:
            return nodes.families_after(db, after, limit)

    async def without_runs(self, families: Sequence[str]) -> Sequence[str]:
        with self._connections.reading() as db:
            return [family for family in families if not nodes.is_alive(db, family)]

    async def drop_family(self, family: str) -> bool:
        with self._connections.writing() as db:
            return nodes.drop_family(db, family)

    # ------------------------------------------------------------------ leases

    async def claim(self, worker: str, wanted: Wanted, limit: int) -> Claims:
        now = self._ports.clock.now_ms()
        with self._connections.reading() as db:
            standing = {holder: self._judge(holder, worker) for holder in holders(db)}
            search = SQLiteSearch(
                db=db,
                wanted=wanted,
                now=now,
                standing=standing,
                worker=worker,
                turns=self._turns,
                rows=self._rows,
                more=self._rows.begin(),
            )
            offers, full = search.offers(max(0, limit))
            return Claims(
                offers=offers,
                crowded=full,
                mail=own_mail(db, worker),
                now=now,
                next_at=search.next_at(),
            )

    def _judge(self, holder: str, watcher: str) -> Standing:
        return "alive" if holder == watcher else self._presence.judge(holder)

    async def standing(self, holder: str | None) -> Standing:
        return "dead" if holder is None else self._presence.judge(holder)

    async def beat(self, worker: str, about: str = "") -> int:
        self._connections.check_open()
        self._connections.check_files()
        try:
            self._presence.beat(worker, about)
        except OSError as error:
            raise unavailable(str(self._making.workers), error) from error
        return self._ports.clock.now_ms()

    async def workers(self) -> Sequence[WorkerState]:
        with self._connections.reading() as db:
            held = runs_by_holder(db)
        there = {each.worker: each for each in introduced(self._making.workers)}
        return [
            WorkerState(
                worker=name,
                beat_at=there[name].beat_at if name in there else None,
                about=there[name].about if name in there else "",
                held=held.get(name, 0),
            )
            for name in sorted({*there, *held})
        ]

    async def release(self, worker: str) -> None:
        try:
            with self._connections.writing() as db:
                db.execute("UPDATE runs SET worker = NULL WHERE worker = ?", (worker,))
        finally:
            self._presence.release(worker)

    # ------------------------------------------------------------------ queues

    async def set_queue(self, name: str, limits: QueueLimits, *, replace: bool) -> QueueLimits:
        with self._connections.writing() as db:
            return set_limits(db, name, limits, self._ports.clock.now_ms(), replace=replace)

    async def find_queue(self, name: str) -> QueueLimits | None:
        with self._connections.reading() as db:
            return find_limits(db, name)

    async def queues(self) -> Sequence[QueueState]:
        with self._connections.reading() as db:
            return queue_states(db, self._ports.clock.now_ms())

    # ------------------------------------------------------------------ the store itself

    async def health(self) -> Health:
        with self._connections.reading() as db:
            facts = {
                "file": self._path,
                "schema": str(SCHEMA_VERSION),
                "sqlite": db.execute("SELECT sqlite_version()").fetchone()[0],
            }
            for name in ("journal_mode", "synchronous", "page_count", "page_size"):
                facts[name] = str(db.execute(f"PRAGMA {name}").fetchone()[0])
            problems = durability_problems(db) + self._connections.problems() + file_problems(db)
            problems += beside_journals(db, self._ports.clock.now_ms())
            problems += log_problems(self._path)
        return Health(store="sqlite", facts=facts, problems=problems)

    async def loss(self) -> None:
        return None

    async def accept_loss(self, timeline: int) -> bool:
        return False

    async def close(self) -> None:
        self.transactions.close()
        self._connections.close()
        self._presence.close()


def _records(db: Connection, run: int, begin: int, limit: int | None) -> list[Any]:
    if limit is None:
        return db.execute(
            "SELECT seq, body FROM records WHERE run = ? AND seq > ? ORDER BY seq", (run, begin)
        ).fetchall()
    return db.execute(
        "SELECT seq, body FROM records WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?",
        (run, begin, limit),
    ).fetchall()


def _mail(db: Connection, run: int) -> list[Any]:
    return db.execute(
        "SELECT mail_id, body, posted_at FROM mail WHERE run = ? AND body IS NOT NULL ORDER BY id",
        (run,),
    ).fetchall()
