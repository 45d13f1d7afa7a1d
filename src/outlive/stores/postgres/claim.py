"""Which runs may be claimed: those that are due, and those whose holder is gone.

One round trip asks for everything: which holders of runs seem silent, what is taken of queues, own
runs with mail, runs that are due, and when the next one will be. Only if a holder is gone a second
one asks for its runs. Rows that somebody else changes at this moment are passed over (``SKIP
LOCKED``): most likely they are just being claimed. All holders are looked at only now and then:
there may be a thousand.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from outlive.ports import Clock
from outlive.stores.liveness import Silence
from outlive.stores.postgres.connection import Statement
from outlive.stores.postgres.rows import FOUND_COLUMNS, Ask
from outlive.stores.postgres.wire import Parameter, Row, int8, int8s, text, texts
from outlive.stores.queues import Load, Turn, Turns
from outlive.stores.shared import LIMITS, limit_values, limits_of
from outlive.stores.types import (
    DEFAULT_QUEUE,
    Found,
    Header,
    Offer,
    QueueLimits,
    QueueState,
    Standing,
    Wanted,
)

#: Every worker that holds a lease, by jumping from one to the next in the index.
_HOLDERS = """
WITH RECURSIVE held AS (
    (SELECT r.worker FROM {s}.runs r WHERE r.worker IS NOT NULL ORDER BY r.worker LIMIT 1)
    UNION ALL
    SELECT (SELECT r.worker FROM {s}.runs r WHERE r.worker > held.worker
            ORDER BY r.worker LIMIT 1)
    FROM held WHERE held.worker IS NOT NULL
)
SELECT held.worker, w.beats, w.beat_at
FROM held LEFT JOIN {s}.workers w USING (worker) WHERE held.worker IS NOT NULL
"""
_TIME = "SELECT {s}.now_v1($1), 0::int8"
_COUNTED_TIME = "SELECT {s}.now_v1($1), (SELECT count(*) FROM {s}.workers)"
#: Workers that did not beat for a lease, by the server's clock, or were not found alive at the last
#: look at all of them, and hold something.
_LATE = """
SELECT n.worker, w.beats, w.beat_at FROM (
    SELECT l.worker FROM {s}.workers l WHERE l.beat_at <= (SELECT {s}.now_v1($1)) - $2
    UNION SELECT unnest($3::text[])
) AS n LEFT JOIN {s}.workers w USING (worker)
WHERE (SELECT true FROM {s}.runs r WHERE r.worker = n.worker LIMIT 1)
"""
#: One worker, whether or not there is one of that name, by the server's time.
HOLDER = """
SELECT c.now, w.beats, w.beat_at
FROM (SELECT {s}.now_v1($2) AS now) AS c LEFT JOIN {s}.workers w ON w.worker = $1
"""
_HOLDERS_OF = """
SELECT DISTINCT r.worker, w.beats, w.beat_at FROM {s}.runs r LEFT JOIN {s}.workers w USING (worker)
WHERE r.run_id = ANY ($1) AND r.worker IS NOT NULL
"""
# In the words of the index of runs with mail: a worker may hold many, those with mail are few.
_OWN_MAIL = """
SELECT r.run_id FROM {s}.runs r
WHERE coalesce(r.worker, '') = $1 AND r.ended_at IS NULL AND r.posted <> r.consumed ORDER BY r.id
"""
_MARKS = "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10"
_BY_TIME = f"SELECT {FOUND_COLUMNS} FROM {{s}}.due_v2($1, $2, $3, $4, $5) r"
_BY_MAIL = f"SELECT {FOUND_COLUMNS} FROM {{s}}.mailed_v2($1, $2, $3, $4) r"
_BY_HOLDER = f"SELECT {FOUND_COLUMNS} FROM {{s}}.left_v2($1, $2, $3, $4, $5, $6) r"
_NEXT = "SELECT {s}.next_v2($1, $2, $3, $4, $5)"
# The same, and of some flows what is in no queue, though that is none of the wanted ones.
_BY_HOLDER_BESIDE = (
    f"{_BY_HOLDER} UNION ALL SELECT {FOUND_COLUMNS}"
    " FROM {s}.left_v2($7, $8, $3, ARRAY['default'], $5, $6) r"
)
_NEXT_BESIDE = (
    "SELECT least({s}.next_v2($1, $2, $3, $4, $5), {s}.next_v2($6, $7, $3, ARRAY['default'], $5))"
)
_QUEUED = f"SELECT {FOUND_COLUMNS} FROM {{s}}.queued_v2({_MARKS}) r"
_LOADS = "SELECT * FROM {s}.loads_v1($1)"
_BY_ID = (
    f"SELECT {FOUND_COLUMNS} FROM {{s}}.runs r WHERE r.run_id = ANY ($1) AND r.ended_at IS NULL"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSearch:
    """One look for runs to claim."""

    schema: str
    wanted: Wanted
    #: The server's time, if a test gives it.
    now: int | None
    limit: int
    worker: str
    turns: Turns
    lease_ms: int
    #: Look at every holder, not only at those that seem silent.
    is_whole: bool
    #: Who was not found alive when that was done last.
    suspects: Sequence[str]

    def question_of_time(self, beside: str) -> Statement:
        """The server's time, in a whole look also how many workers there are, and more."""
        asked = _COUNTED_TIME if self.is_whole else _TIME
        return self._ask(f"{asked}, {beside}", int8(self.now))

    def questions(self) -> list[Statement]:
        """Holders, queues, own mail, then either the runs that are named or others.

        Those are: next, due, with mail, in queues. Each goes by the time of its own answer, so
        next comes first: what gets due in between is told twice, where it would else be missed.
        """
        loads = self._ask(_LOADS, int8(self.now))
        mail = self._ask(_OWN_MAIL, text(self.worker))
        if self.wanted.run_ids is not None:
            named = texts(sorted(self.wanted.run_ids))
            return [self._ask(_HOLDERS_OF, named), loads, mail, self._ask(_BY_ID, named)]
        late = self._ask(_LATE, int8(self.now), int8(self.lease_ms), texts(self.suspects))
        return [
            self._ask(_HOLDERS) if self.is_whole else late,
            loads,
            mail,
            self._ask(
                _NEXT_BESIDE if self._beside() else _NEXT,
                *(*self._pairs(), self._queues(), int8(self.now), *self._beside()),
            ),
            self._ask(_BY_TIME, *self._unqueued(), int8(self.now), int8(self.limit)),
            self._ask(_BY_MAIL, *self._unqueued(), int8(self.limit)),
            self._queued(),
        ]

    def _queued(self) -> Statement:
        turns = self.turns.all()
        return self._ask(
            _QUEUED,
            *self._pairs(),
            self._queues(),
            text(self.worker),
            texts(list(turns)),
            texts([turn.key for turn in turns.values()]),
            int8s([turn.number for turn in turns.values()]),
            int8(self.now),
            int8(self.limit),
        )

    def _queues(self) -> Parameter:
        names = self.wanted.queues
        return (texts([])[0], None) if names is None else texts(sorted(names))

    def question_of_the_gone(self, gone: Sequence[str]) -> Statement:
        """The runs that these hold."""
        return self._ask(
            _BY_HOLDER_BESIDE if self._beside() else _BY_HOLDER,
            *(*self._pairs(), self._queues(), texts(gone), int8(self.limit), *self._beside()),
        )

    def _ask(self, sql: str, *parameters: Parameter) -> Statement:
        return Statement(sql.replace("{s}", f'"{self.schema}"'), parameters)

    def _pairs(self) -> list[Parameter]:
        return [*_pairs_of(self.wanted.flows), int8(self.wanted.format)]

    def _unqueued(self) -> list[Parameter]:
        flows = self.wanted.flows
        own = {flow: flows[flow] for flow in flows if self.wanted.takes_unqueued(flow)}
        return [*_pairs_of(own), int8(self.wanted.format)]

    def _beside(self) -> list[Parameter]:
        """Flows whose runs are wanted in no queue, though others are not; if there are any."""
        names = self.wanted.queues
        if names is None or DEFAULT_QUEUE in names or not self.wanted.unqueued:
            return []
        return self._unqueued()[:2]

    def is_drivable(self, header: Header) -> bool:
        """Whether the worker that asks wants runs of this kind."""
        versions = self.wanted.flows.get(header.flow, frozenset())
        return header.version in versions and header.format <= self.wanted.format


def _pairs_of(flows: Mapping[str, frozenset[str]]) -> list[Parameter]:
    pairs = [(flow, version) for flow, some in flows.items() for version in some]
    return [texts([flow for flow, _ in pairs]), texts([version for _, version in pairs])]


def loads_of(rows: Sequence[Row]) -> dict[str, Load]:
    """What is taken of each queue that has limits."""
    loads: dict[str, Load] = {}
    for name, *limits, turn, turn_key, spent, is_waited, key, worker, held in rows:
        if name not in loads:
            loads[name] = Load(
                limits=limits_of(limits),
                turn=Turn(turn, turn_key),
                spent=spent,
                is_waited=is_waited,
            )
        load = loads[name]
        if held is not None:
            load.held += held
            load.by_key[key] += held
            load.by_worker[worker] += held
    return loads


def is_due(run: Found, standing: Mapping[str, Standing], now: int) -> bool:
    """Whether a run may be claimed."""
    if run.head.worker is not None:
        return standing.get(run.head.worker, "alive") != "alive"
    wake_at = run.header.wake_at
    return run.head.posted != run.head.consumed or (wake_at is not None and wake_at <= now)


def offers_of(chosen: Iterable[Found], standing: Mapping[str, Standing]) -> list[Offer]:
    """These runs, offered."""
    return [
        Offer(
            head=run.head,
            header=run.header,
            certain=run.head.worker is None or standing[run.head.worker] == "dead",
        )
        for run in chosen
    ]


def next_of(named: Iterable[Found], now: int) -> int | None:
    """When the next of these gets due that nobody holds."""
    free = [run.header.wake_at for run in named if run.head.worker is None]
    return min((at for at in free if at is not None and at > now), default=None)


#: How much further than one's own clock the server's may go between two looks.
_JUMP_SECONDS = 1.0
#: How often all holders are looked at, as long as they are not many.
_WHOLE_LOOKS_PER_LEASE = 4
_MANY = 50

#: Who beats or holds runs.
WORKERS = """
SELECT worker, w.beat_at, coalesce(w.about, ''), coalesce(h.held, 0) FROM {s}.workers w FULL JOIN (
    SELECT r.worker, count(*) AS held FROM {s}.runs r WHERE r.worker IS NOT NULL GROUP BY 1
) AS h USING (worker) ORDER BY 1
"""
#: Frees what a worker holds: in the order of the ids, in which everybody locks heads.
FREE = """
UPDATE {s}.runs r SET worker = NULL FROM (
    SELECT h.run_id FROM {s}.runs h WHERE h.worker = $1 ORDER BY h.run_id FOR NO KEY UPDATE
) AS h WHERE r.run_id = h.run_id
"""


class Beats:
    """What one store object thinks of the workers it sees."""

    def __init__(self, clock: Clock, lease_seconds: float) -> None:
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._silence = Silence(clock, lease_seconds)
        self._lock = threading.Lock()
        #: The server's time and our own before it was asked for, at the last look.
        self._last: tuple[int, float] | None = None
        self._believed_from = float("-inf")
        self._whole_look_at = float("-inf")
        #: Holders that were not found alive at the last look at all of them.
        self.suspects: Sequence[str] = ()

    def is_whole_look_due(self) -> bool:
        """Whether to look at every holder this time."""
        with self._lock:
            return self._clock.monotonic() >= self._whole_look_at

    def looked_at(self, workers: int, holders: Mapping[str, Standing]) -> None:
        """That was done; there are so many workers, and that is what to think of the holders."""
        self.suspects = [holder for holder, each in holders.items() if each != "alive"]
        pause = self._lease_seconds / _WHOLE_LOOKS_PER_LEASE
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._believed_from:
                pause *= max(1.0, workers / _MANY)
            self._whole_look_at = now + pause

    def notice_time(self, server_ms: int, sent_at: float) -> None:
        """The server said what time it is; it was asked at ``sent_at``."""
        with self._lock:
            if self._last is not None:
                theirs = (server_ms - self._last[0]) / 1000
                ours = self._clock.monotonic() - self._last[1]
                if theirs > ours + _JUMP_SECONDS:
                    self._believed_from = self._clock.monotonic() + self._lease_seconds
            self._last = (server_ms, sent_at)

    def judge(self, holder: str, beats: int | None, beat_at: int, now_ms: int) -> Standing:
        """What to think of a holder with this counter, last heard of then; None: no such worker."""
        if beats is None:
            return "dead"
        with self._lock:
            standing = self._silence.judge(holder, beats)
            is_believed = self._clock.monotonic() >= self._believed_from
        if is_believed and now_ms - beat_at >= self._lease_seconds * 1000:
            return "silent"
        return standing

    def forget(self, worker: str) -> None:
        """The worker is gone."""
        with self._lock:
            self._silence.forget(worker)


_LIMITS = ", ".join(f"q.{name}" for name in LIMITS)
_STATES = f"""
WITH waiting AS (
    SELECT r.queue, count(*) AS runs, min(coalesce(nullif(r.wake_at, 0), c.now)) AS oldest
    FROM {{s}}.runs r, (SELECT {{s}}.now_v1($1) AS now) AS c
    WHERE r.worker IS NULL AND r.ended_at IS NULL AND r.queue <> 'default'
        AND (r.wake_at <= c.now OR r.posted <> r.consumed) GROUP BY r.queue
), held AS (
    SELECT r.queue, count(*) AS runs FROM {{s}}.runs r
    WHERE r.worker IS NOT NULL AND r.queue <> 'default' GROUP BY r.queue
), names AS (
    SELECT name FROM {{s}}.queues UNION SELECT queue FROM waiting UNION SELECT queue FROM held
)
SELECT n.name, q.name IS NOT NULL, {_LIMITS}, coalesce(w.runs, 0), coalesce(h.runs, 0),
    CASE WHEN q.rate IS NULL THEN 0
        ELSE {{s}}.spent_v1(q.name, q.rate_ms, {{s}}.now_v1($1)) END, w.oldest
FROM names n LEFT JOIN {{s}}.queues q ON q.name = n.name
    LEFT JOIN waiting w ON w.queue = n.name LEFT JOIN held h ON h.queue = n.name ORDER BY n.name
"""


def set_limits(
    ask: Ask, name: str, limits: QueueLimits, now: int | None, *, replace: bool
) -> QueueLimits:
    """Put limits in force; answer with those that are."""
    is_new = "true" if replace else "false"
    (row,) = ask(
        f"SELECT {_LIMITS} FROM {{s}}.set_queue_v1($1, $2, $3, $4, $5, $6, {is_new}, $7) q",
        text(name),
        *(int8(value) for value in limit_values(limits)),
        int8(now),
    )
    return limits_of(row)


def find_limits(ask: Ask, name: str) -> QueueLimits | None:
    """The limits of a queue, if any are set."""
    rows = ask(f"SELECT {_LIMITS} FROM {{s}}.queues q WHERE q.name = $1", text(name))
    return limits_of(rows[0]) if rows else None


def queue_states(ask: Ask, now: int | None) -> list[QueueState]:
    """All queues that have limits or runs."""
    return [
        QueueState(
            name=name,
            limits=limits_of(limits) if is_limited else None,
            waiting=waiting,
            held=held,
            spent=spent,
            oldest_at=oldest,
        )
        for name, is_limited, *limits, waiting, held, spent, oldest in ask(_STATES, int8(now))
    ]
