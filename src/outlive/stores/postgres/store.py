"""Journals in PostgreSQL: for any number of processes on any number of machines.

An acknowledged commit is on the server's disk (and its standby's, if it has one it waits for): the
settings are read back from every connection. A batch is one round trip. Verbs block the thread they
are called from, as those of a local store do; the app calls them from threads of its own. What a
lost connection leaves open is settled by asking again, before anything is acknowledged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import overload

from outlive.errors import CorruptRecord, StoreFailed
from outlive.model.defaults import COUNTED_MAX, FIND_LIMIT, LEASE_SECONDS
from outlive.ports import Ports, RemoteClock, describe_offset
from outlive.stores.postgres import deletion as nodes
from outlive.stores.postgres.claim import (
    FREE,
    HOLDER,
    WORKERS,
    Beats,
    PostgresSearch,
    find_limits,
    is_due,
    loads_of,
    next_of,
    offers_of,
    queue_states,
    set_limits,
)
from outlive.stores.postgres.commit import (
    TAKEN,
    Ask,
    Commits,
    TooLate,
    check_one_statement,
    commit_batch,
    in_order,
    refused_strictly,
    strictly,
)
from outlive.stores.postgres.connection import PostgresConnection, Statement
from outlive.stores.postgres.deletion import delete_runs, read_runs
from outlive.stores.postgres.errors import Moved, is_duplicate
from outlive.stores.postgres.notify import ANYBODY, News, is_offered
from outlive.stores.postgres.pool import Pool
from outlive.stores.postgres.regression import BESIDE, Regression, lost_at
from outlive.stores.postgres.rows import (
    FOUND_COLUMNS,
    find_journals,
    found_of,
    mail_of,
    moved_after,
    post_all,
    search_of,
)
from outlive.stores.postgres.schema import Upgrade, check_schema
from outlive.stores.postgres.transactions import PostgresTransactions
from outlive.stores.postgres.url import parse_place
from outlive.stores.postgres.wire import Parameter, Row, int8, int8s, text, texts
from outlive.stores.queues import Turns, crowded
from outlive.stores.shared import (
    LIMITS,
    SoundRows,
    beside_problems,
    check_headers,
    check_together,
    parse_page,
)
from outlive.stores.types import (
    LAST_CHAPTER,
    PAGE_MAX,
    Answers,
    Changes,
    Claims,
    Conflict,
    Count,
    Deletion,
    Entry,
    Found,
    Health,
    Loss,
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
    StoredRecord,
    Wanted,
    WorkerState,
)

FACTS = (
    "SELECT name, setting FROM pg_settings WHERE name = ANY ('{server_version, fsync,"
    " full_page_writes, synchronous_commit, synchronous_standby_names, data_checksums}'::text[])",
    "SELECT 'read_only', current_setting('transaction_read_only')",
)

#: For a transaction: no table is gone through as a whole.
INDEXED = (
    "SELECT set_config(name, 'off', true) FROM unnest(ARRAY['enable_seqscan', 'jit']) AS x (name)"
)
_SHOWN_MAX = 10
#: Tombstones of runs that are there, outcomes of runs that are not, limits of queues.
BESIDE_JOURNALS = (
    "SELECT t.run_id FROM {s}.tombstones t JOIN {s}.runs r USING (run_id)"
    f" WHERE t.keep_until > {{s}}.now_v1(NULL) ORDER BY 1 LIMIT {_SHOWN_MAX}",
    "SELECT o.run_id, o.step FROM {s}.outcomes o WHERE NOT EXISTS"
    f" (SELECT FROM {{s}}.runs r WHERE r.run_id = o.run_id) ORDER BY 1, 2 LIMIT {_SHOWN_MAX}",
    f"SELECT q.name, {', '.join(f'q.{name}' for name in LIMITS)} FROM {{s}}.queues q ORDER BY 1",
)


def facts_of(answers: Sequence[Sequence[Row]]) -> dict[str, str]:
    """By name."""
    return {str(name): str(value) for rows in answers for name, value in rows}


_NO_LIMIT = (1 << 63) - 1
#: Workers that were silent for so many leases and hold nothing are forgotten.
_FORGOTTEN_AFTER_LEASES = 100


class PostgresStore:
    """A store in a PostgreSQL database. Safe to use from several threads and processes."""

    #: Verbs under way at once that pay: each has a connection of its own, and the server works
    #: while this process does.
    threads: int | None = 8

    def __init__(
        self,
        url: str,
        *,
        ports: Ports | None = None,
        lease_seconds: float = LEASE_SECONDS,
        server_time: Callable[[], int] | None = None,
        upgrades: bool = True,
    ) -> None:
        """``server_time`` replaces the server's clock, for tests.

        Unless it ``upgrades``, tables of an earlier release are refused.
        """
        self._place = parse_place(url)
        self._schema = self._place.schema
        self._ports = ports or Ports()
        self._lease_ms = round(lease_seconds * 1000)
        self._server_time = server_time
        #: The server's.
        self.clock = RemoteClock(self._ports.clock, self._place.name)
        self._beats = Beats(self._ports.clock, lease_seconds)
        self.pool = Pool(self._place, self._ports)
        self._regression = Regression(self.pool, self.clock, lease_seconds, self._now)
        self._seen = self._regression.seen
        self._commits = Commits(self.pool)
        first = self.pool.open_first()
        try:
            upgrade = Upgrade(self._ports.failpoint, upgrades, self._lease_ms)
            self._id = check_schema(first, self._place, upgrade)
            self._ask_time(first)
            self._regression.opened(first.timeline)
        except BaseException:
            first.close()
            raise
        self.pool.keep("other", first)
        self.watchable = News(self.pool)
        self._turns = Turns()
        self._rows = SoundRows(found_of)
        #: Runs that somebody wanted to begin here, and that have records and no head.
        self._headless: set[str] = set()
        self.transactions = PostgresTransactions(
            self.pool, self._ports, self._regression, self._id, self._commit_settled
        )

    def _now(self) -> int | None:
        return None if self._server_time is None else self._server_time()

    def _ask_time(self, db: PostgresConnection) -> None:
        sent_at = self.clock.monotonic()
        ((row,),) = db.run(self._ask("SELECT {s}.now_v1($1)", int8(self._now())))
        self.clock.notice(row[0], sent_at)

    def _notice_time(self, now: int, sent_at: float) -> None:
        self.clock.notice(now, sent_at)
        self._beats.notice_time(now, sent_at)

    def _ask(self, sql: str, *parameters: Parameter) -> Statement:
        return Statement(sql.replace("{s}", f'"{self._schema}"'), parameters)

    def _other(self, sql: str, *parameters: Parameter) -> list[Row]:
        return self.pool.run("other", self._ask(sql, *parameters))[0]

    def _by_index_only(self, sql: str, *parameters: Parameter) -> list[Row]:
        """The same; tables are reached by their indexes, whatever the server knows of them."""
        begin = Statement("BEGIN READ ONLY")
        asked = self._ask(sql, *parameters)
        return self.pool.run("other", begin, Statement(INDEXED), asked, Statement("COMMIT"))[2]

    # ------------------------------------------------------------------ journals

    @overload
    async def commit(self, batch: Sequence[Entry]) -> Answers: ...
    @overload
    async def commit(self, batch: Sequence[Entry], *, wait: bool) -> Answers | None: ...
    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Answers | None:
        if not wait:
            if self._regression.is_settled:
                with suppress(TooLate, Moved):
                    return self._commit(batch, self._commits.run_at_once)
            return None
        try:
            return self._commit_settled(batch) if batch else []
        except StoreFailed as error:
            taken = self._taken(batch) if is_duplicate(error) else {}
            if not taken:
                raise
        # Records stand where a head says that there are none: only such runs are refused.
        rest = [entry for entry in batch if entry.run_id not in taken]
        answers = iter(await self.commit(rest))
        return [taken[x.run_id] if x.run_id in taken else next(answers) for x in batch]

    async def commit_together(self, batch: Sequence[Entry]) -> Answers:
        check_together(batch)
        check_one_statement(batch)

        def run(_: Sequence[Entry], statement: Statement) -> list[Row]:
            return self._commits.run(batch, strictly(statement))

        try:
            return self._commit_settled(batch, run) if batch else []
        except StoreFailed as error:
            refused = refused_strictly(error)
            if refused is None:
                raise
        order = in_order(batch)
        return [refused.get(order.index(place) + 1) for place in range(len(batch))]

    def _commit_settled(self, batch: Sequence[Entry], run: Ask | None = None) -> Answers:
        """To a server that is known to have all that it acknowledged."""
        while True:
            self._regression.admit()
            try:
                return self._commit(batch, run or self._commits.run)
            except Moved:
                self._regression.compare()

    def _taken(self, batch: Sequence[Entry]) -> dict[str, Conflict]:
        afters = int8s([entry.after for entry in batch])
        rows = self._other(TAKEN, texts([entry.run_id for entry in batch]), afters)
        self._headless.update(run_id for run_id, seq, _ in rows if not seq)
        return {run_id: Conflict(seq=seq, epoch=epoch) for run_id, seq, epoch in rows}

    def _commit(self, batch: Sequence[Entry], run: Ask) -> Answers:
        check_headers(batch)
        self._ports.failpoint("commit.before")
        known = self._seen.known([entry.run_id for entry in batch])
        answers = commit_batch(partial(run, batch), self._schema, batch, self._now())
        noted = zip(batch, known, answers, strict=True)
        doubtful = [each[0].run_id for each in noted if self._seen.note(*each)]
        self._regression.look_again(doubtful)
        self._ports.failpoint("commit.after")
        if is_offered(batch, self.clock):
            self.watchable.tell([ANYBODY])
        return answers

    async def read(
        self, run_id: str, after: int = 0, *, limit: int | None = None
    ) -> Reading | None:
        (known,) = self._seen.known([run_id])
        # Three looks at one instant, in one round trip.
        _, runs, records, mail, _ = self.pool.run(
            "other",
            Statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
            self._ask(f"SELECT {FOUND_COLUMNS} FROM {{s}}.runs r WHERE run_id = $1", text(run_id)),
            self._records(run_id, after, limit),
            self._ask(
                "SELECT mail_id, body, posted_at FROM {s}.mail"
                " WHERE run_id = $1 AND body IS NOT NULL ORDER BY number",
                text(run_id),
            ),
            Statement("COMMIT"),
        )
        if not runs and run_id in self._headless:
            raise CorruptRecord(run_id, 1, "its head is gone, its records are there")
        if not runs:
            return None
        found = found_of(runs[0])
        if found.head.seq < known:
            self._regression.look_again([run_id])
        return Reading(
            head=found.head,
            header=found.header,
            records=[StoredRecord(seq, body) for seq, body in records],
            mail=[Mail(mail_id=mail_id, body=body, posted_at=at) for mail_id, body, at in mail],
        )

    def _records(self, run_id: str, after: int, limit: int | None) -> Statement:
        begin = "$2"
        if after == LAST_CHAPTER:
            begin = "(SELECT r.chapter FROM {s}.runs r WHERE r.run_id = $1) + $2"
        return self._ask(
            f"SELECT seq, body FROM {{s}}.records WHERE run_id = $1 AND seq > {begin}"
            " ORDER BY seq LIMIT $3",
            text(run_id),
            int8(after),
            int8(_NO_LIMIT if limit is None else limit),
        )

    async def find(self, query: Query, after: str | None = None, limit: int = FIND_LIMIT) -> Page:
        size = max(1, min(limit, PAGE_MAX))
        if query.runs:
            return search_of(self._by_index_only).page(query, after, size)
        found = find_journals(self._other, query, parse_page(after), size + 1)
        more = len(found) > size
        page = found[:size]
        return Page(items=[run for _, run in page], next=str(page[-1][0]) if more else None)

    async def count(self, query: Query, most: int = COUNTED_MAX) -> Count:
        return search_of(self._by_index_only).count(query, most)

    async def changes(self, after: str | None = None, limit: int = FIND_LIMIT) -> Changes:
        return moved_after(self._other, after, max(1, min(limit, PAGE_MAX)))

    async def delete(self, batch: Sequence[Deletion]) -> Sequence[bool]:
        answers = delete_runs(self._other, batch, self._now()) if batch else []
        for each, is_gone in zip(batch, answers, strict=True):
            if is_gone:
                self._seen.forget(each.run_id)
        return answers

    async def read_all(self, run_ids: Sequence[str]) -> Mapping[str, Reading]:
        return read_runs(partial(self.pool.run, "other"), self._ask, run_ids) if run_ids else {}

    # ------------------------------------------------------------------ mail and nodes

    async def post(self, batch: Sequence[Posting]) -> Sequence[Posted]:
        if not batch:
            return []
        answers, holders = post_all(self._other, batch, self._ports.entropy, self._now())
        self.watchable.tell(holder or ANYBODY for holder in holders)
        return answers

    async def mail_of(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mail]]:
        return mail_of(self._other, run_ids) if run_ids else {}

    async def put_blob(self, family: str, node: Node) -> None:
        nodes.put_node(self._other, family, node)

    async def get_blobs(self, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return nodes.get_nodes(self._other, family, addresses)

    async def drop_blobs(self, family: str, addresses: Sequence[bytes]) -> None:
        nodes.drop_nodes(self._other, family, addresses)

    async def families(self, after: str, limit: int) -> Sequence[str]:
        return nodes.families_after(self._other, after, limit)

    async def without_runs(self, families: Sequence[str]) -> Sequence[str]:
        return nodes.without_runs(self._other, families)

    async def drop_family(self, family: str) -> bool:
        return nodes.drop_family(self._other, family)

    # ------------------------------------------------------------------ leases

    async def claim(self, worker: str, wanted: Wanted, limit: int) -> Claims:
        more = self._rows.begin()
        search = PostgresSearch(
            schema=self._schema,
            wanted=wanted,
            now=self._now(),
            limit=max(0, limit) + more,
            worker=worker,
            turns=self._turns,
            lease_ms=self._lease_ms,
            is_whole=wanted.run_ids is None and self._beats.is_whole_look_due(),
            suspects=self._beats.suspects,
        )
        if self._regression.pause:
            now = self.clock.now_ms()
            later = now + math.ceil(1000 * self._regression.pause)
            return Claims(offers=(), mail=(), now=now, next_at=later)
        self._regression.admit()
        sent_at = self._ports.clock.monotonic()
        clock, held, loads, mail, *asked = self.pool.run(
            "other", search.question_of_time(self._regression.words(BESIDE)), *search.questions()
        )
        now, workers, *beside = clock[0]
        self._notice_time(now, sent_at)
        self._regression.notice(*beside)
        if not self._regression.is_settled:  # another server has answered
            return Claims(offers=(), mail=(), now=now, next_at=now)
        standing = {row[0]: self._judge(row, worker, now) for row in held}
        if search.is_whole:
            self._beats.looked_at(workers, standing)
            self.watchable.pace.count(workers)
        if wanted.run_ids is None:
            found, next_at = self._by_index(search, asked, standing)
        else:
            named = [run for run in self._rows.found(asked[0]) if search.is_drivable(run.header)]
            found = [run for run in named if is_due(run, standing, now)]
            next_at = next_of(named, now)
        due = {run.head.run_id: run for run in found}.values()
        taken = loads_of(loads)
        chosen = self._turns.arrange(due, taken, worker, max(0, limit))
        behind = self._seen.behind([(run.head.run_id, run.head.seq) for run in chosen])
        self._regression.look_again(behind)
        return Claims(
            crowded=crowded(taken, worker),  # before more is taken
            offers=offers_of(chosen, standing),
            mail=[run_id for (run_id,) in mail],
            now=now,
            next_at=next_at,
        )

    def _judge(self, row: Row, watcher: str, now: int) -> Standing:
        holder, beats, beat_at = row
        return "alive" if holder == watcher else self._beats.judge(holder, beats, beat_at, now)

    def _by_index(
        self, search: PostgresSearch, asked: Sequence[list[Row]], standing: Mapping[str, Standing]
    ) -> tuple[list[Found], int | None]:
        ((next_at,),), by_time, by_mail, queued = asked
        found = [*self._rows.found([*by_time, *by_mail, *queued])]
        gone = [holder for holder, each in standing.items() if each != "alive"]
        if gone:
            (left,) = self.pool.run("other", search.question_of_the_gone(gone))
            found += self._rows.found(left)
        return found, next_at

    async def standing(self, holder: str | None) -> Standing:
        if self._regression.pause:
            return "alive"
        self._regression.admit()
        sent_at = self._ports.clock.monotonic()
        asked = self._ask(HOLDER, text(holder or ""), int8(self._now()))
        beside = self._ask(f"SELECT {self._regression.words(BESIDE)}")
        ((row,), (seen,)) = self.pool.run("other", asked, beside)
        now, beats, beat_at = row
        self._notice_time(now, sent_at)
        self._regression.notice(*seen)
        if not self._regression.is_settled:  # another server has answered
            return "alive"
        return "dead" if holder is None else self._beats.judge(holder, beats, beat_at, now)

    async def beat(self, worker: str, about: str = "") -> int:
        sent_at = self._ports.clock.monotonic()
        ((now, *beside),) = self.pool.run("beat", self._beat(worker, about))[0]
        self.transactions.close_idle()
        self._notice_time(now, sent_at)
        self._regression.notice(*beside)
        return int(now)

    def _beat(self, worker: str, about: str) -> Statement:
        return self._ask(
            "INSERT INTO {s}.workers AS w VALUES ($1, 1, {s}.now_v1($2), $3) ON CONFLICT (worker)"
            " DO UPDATE SET beats = w.beats + 1, beat_at = excluded.beat_at,"
            " about = excluded.about RETURNING beat_at, " + self._regression.words(BESIDE),
            text(worker),
            int8(self._now()),
            text(about),
        )

    async def workers(self) -> Sequence[WorkerState]:
        rows = self._other(WORKERS)
        return [
            WorkerState(worker=worker, beat_at=beat_at, about=about, held=held)
            for worker, beat_at, about, held in rows
        ]

    async def release(self, worker: str) -> None:
        old = _FORGOTTEN_AFTER_LEASES * self._lease_ms
        self.pool.run(
            "other",
            self._ask(FREE, text(worker)),
            self._ask("DELETE FROM {s}.workers WHERE worker = $1", text(worker)),
            self._ask(
                "DELETE FROM {s}.workers w WHERE w.beat_at < {s}.now_v1($1) - $2"
                " AND NOT EXISTS (SELECT 1 FROM {s}.runs r WHERE r.worker = w.worker)",
                int8(self._now()),
                int8(old),
            ),
            outage_seconds=self._lease_ms / 1000,  # by then the others know anyway
        )
        self._beats.forget(worker)
        self.watchable.tell([ANYBODY])

    # ------------------------------------------------------------------ queues

    async def set_queue(self, name: str, limits: QueueLimits, *, replace: bool) -> QueueLimits:
        return set_limits(self._other, name, limits, self._now(), replace=replace)

    async def find_queue(self, name: str) -> QueueLimits | None:
        return find_limits(self._other, name)

    async def queues(self) -> Sequence[QueueState]:
        return queue_states(self._other, self._now())

    # ------------------------------------------------------------------ the store itself

    async def loss(self) -> Loss | None:
        return self._regression.loss()

    async def accept_loss(self, timeline: int) -> bool:
        return self._regression.accept(timeline)

    async def health(self) -> Health:
        db = self.pool.open_first()
        try:
            facts = facts_of(db.run(*(Statement(sql) for sql in FACTS)))
            self._ask_time(db)
            problems = list(db.problems)
            problems += beside_problems(*db.run(*(self._ask(sql) for sql in BESIDE_JOURNALS)))
            if (loss := self._regression.loss()) is not None:
                problems.append(str(lost_at(self._place.name, loss)))
            timeline = "not told" if db.timeline is None else str(db.timeline)
            pooled = "no" if db.is_direct else "yes"
        finally:
            db.close()
        return Health(
            store="postgresql",
            facts=facts
            | {"place": self._place.name, "pooler": pooled}
            | {"timeline": timeline, "clock": describe_offset(self.clock.offset_ms)},
            problems=problems,
        )

    async def close(self) -> None:
        if self.pool.is_ours:
            self.pool.close()
            self._commits.close()
            self.transactions.close()
            self.watchable.close()
