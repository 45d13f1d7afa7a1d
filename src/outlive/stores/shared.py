"""What stores that keep their journals in tables share: what is in columns, batches as waves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from outlive.errors import CorruptRecord, StoreUnavailable, UsageError, WrongVersion
from outlive.stores.types import (
    DAMAGED,
    DEFAULT_QUEUE,
    Entry,
    Found,
    Head,
    Header,
    Query,
    QueueLimits,
)

#: What a header's columns hold.
Value: TypeAlias = str | bytes | int | None

logger = logging.getLogger("outlive")
#: Damaged rows of one look that are logged one by one.
_LOGGED_MAX = 20
#: So many more are asked for at most than are known, to get past others.
_MORE_MAX = 5_000

#: The columns of a queue's limits.
LIMITS = ("concurrency", "per_key", "per_worker", "rate", "rate_ms")

#: No number in a row is larger: seqs, epochs, counters, instants.
NUMBER_MAX = 1 << 60
#: What counts where the limits of a queue can't be read.
CLOSED = QueueLimits(concurrency=0)

read_tags = msgspec.json.Decoder(dict[str, str]).decode
_write_tags = msgspec.json.Encoder().encode


def header_values(header: Header) -> tuple[Value, ...]:
    """A header as the values of its columns."""
    return (
        header.flow,
        header.version,
        header.format,
        header.status,
        header.family,
        header.started_at,
        header.wake_at,
        header.ended_at,
        header.queue,
        header.queue_key,
        header.priority,
        header.units,
        header.parent,
        _write_tags(header.tags).decode() if header.tags else "{}",
        header.reason,
        header.chapter,
        header.chapter_link,
        header.error,
        header.published,
        header.questions,
    )


def limits_of(row: Sequence[Any]) -> QueueLimits:
    """Limits from the values of their columns; those that nobody can have set let nothing begin."""
    *some, rate_ms = row
    if not (_is_limit(rate_ms) and all(each is None or _is_limit(each) for each in some)):
        return CLOSED
    concurrency, per_key, per_worker, rate = some
    return QueueLimits(
        concurrency=concurrency,
        per_key=per_key,
        per_worker=per_worker,
        rate=rate,
        rate_ms=rate_ms,
    )


def beside_problems(
    stones: Iterable[Sequence[Any]],
    outcomes: Iterable[Sequence[Any]],
    queues: Iterable[Sequence[Any]],
) -> list[str]:
    """What is wrong beside journals: tombstones of runs that are there, outcomes of runs that are
    not, and limits that nobody can have set."""
    return [
        *(f"run {run_id!r} is there, and so is its tombstone" for (run_id,) in stones),
        *(
            f"there is an outcome of step {step!r} of run {run_id!r}, and no such run"
            for run_id, step in outcomes
        ),
        *(
            f"the limits of queue {name!r} are none that can be set, so nothing of it begins: "
            "set them again"
            for name, *limits in queues
            if limits_of(limits) is CLOSED
        ),
    ]


def _is_limit(value: object) -> bool:
    return type(value) is int and 0 < value <= NUMBER_MAX


def limit_values(limits: QueueLimits) -> tuple[int | None, ...]:
    """Limits as the values of their columns."""
    return (limits.concurrency, limits.per_key, limits.per_worker, limits.rate, limits.rate_ms)


def check_numbers(found: Found) -> Found:
    """A row as it was read, if its numbers can be those of a run.

    Raises:
        CorruptRecord: one of them can't.
    """
    head, header = found.head, found.header
    counted = (head.epoch, head.posted, head.consumed, header.chapter, header.units)
    instants = (header.started_at, header.wake_at or 0, header.ended_at or 0)
    is_sound = 0 < head.seq <= NUMBER_MAX and all(0 <= each <= NUMBER_MAX for each in counted)
    if not is_sound or any(abs(each) > NUMBER_MAX for each in instants):
        numbers = f"seq {head.seq}, epoch {head.epoch}, chapter {header.chapter}"
        raise CorruptRecord(head.run_id, 0, f"its row is damaged (it has {numbers})")
    return found


class SoundRows:
    """Reads rows of runs that may be claimed, and passes over those that can't be read.

    Whoever reads or lists a damaged run is told, and it is logged once; others must not wait for
    that to be mended. Such rows are remembered, so that each look may ask for as many more.
    """

    def __init__(self, read: Callable[[Any], Found]) -> None:
        self._read = read
        #: By id: the row that can't be read, as it was at this look and at the last one.
        self._damaged: dict[Any, Sequence[Any]] = {}
        self._known: dict[Any, Sequence[Any]] = {}

    def begin(self) -> int:
        """A new look; how many rows more than it wants it has to ask for."""
        self._known, self._damaged = self._damaged, {}
        # More than are known: there may be others behind them, and each look is to get further.
        known = len(self._known)
        return known + min(3 * known, _MORE_MAX)

    def found(self, rows: Iterable[Sequence[Any]]) -> Iterator[Found]:
        """The runs in these rows that can be read."""
        for row in rows:
            run_id = row[0]
            if run_id in self._known and self._known[run_id] == row:
                self._damaged[run_id] = row
                continue
            try:
                yield self._read(row)
            except CorruptRecord as error:
                self._damaged[run_id] = row
                if len(self._damaged) <= _LOGGED_MAX:
                    logger.error("not driven: %s", error)


def check_upgrade(place: str, found: int, wanted: int, *, upgrades: bool) -> None:
    """A store of an earlier release: only those who drive may bring it up to date.

    Raises:
        WrongVersion: this one only looks or posts.
    """
    if not upgrades:
        raise WrongVersion(
            f"{place} has schema {found}, this release of outlive has schema {wanted}: "
            "`outlive worker` brings it up to date, when no worker of an earlier release is alive"
        )


def workers_alive(place: str, workers: Sequence[str]) -> StoreUnavailable:
    """What is refused to who would change the tables under others."""
    return StoreUnavailable(
        f"{place} was made by an earlier release, and workers of it are alive "
        f"({', '.join(workers)}); stop them, then start one of this release"
    )


def damaged_run(error: CorruptRecord) -> Found:
    """A row that can't be read, for a list: it must not hide its neighbours."""
    head = Head(run_id=error.run_id, seq=0, epoch=0, link=b"")
    header = Header(
        flow="", version="", format=0, status=DAMAGED, family="", started_at=0, reason=error.why
    )
    return Found(head=head, header=header)


def is_append(entry: Entry) -> bool:
    """Whether an entry is a record and nothing else."""
    return (
        entry.header is None
        and entry.lease == "keep"
        and entry.after > 0
        and not entry.nodes
        and not entry.consumed
    )


def bytes_in(entry: Entry) -> int:
    """What an entry weighs, its record and its nodes."""
    size = len(entry.record)
    for node in entry.nodes:
        size += len(node.body)
    return size


def waves(batch: Sequence[Entry]) -> list[list[int]]:
    """The batch's positions, in waves in which no run occurs twice."""
    found: list[list[int]] = []
    times: dict[str, int] = {}
    for position, entry in enumerate(batch):
        wave = times.get(entry.run_id, 0)
        times[entry.run_id] = wave + 1
        if wave == len(found):
            found.append([])
        found[wave].append(position)
    return found


_PAGE_DIGITS_MAX = 18
_LAST_CHARACTER = "\U0010ffff"


def parse_page(after: str | None) -> int:
    """The number that a page begins after: numbers are given in the order of creation."""
    if after is None:
        return 0
    if not (after.isascii() and after.isdigit() and len(after) <= _PAGE_DIGITS_MAX):
        raise not_a_page(after)
    return int(after)


def not_a_page(after: str) -> UsageError:
    """What is given as a cursor is none of this store's."""
    return UsageError(f"{after!r} is no page of this store; use the `next` of the page before")


def has_tags(query: Query, tags: Mapping[str, str]) -> bool:
    """Whether these are tags as the query asks for."""
    return all(tags.get(name) == value for name, value in query.all_tags)


def check_headers(batch: Sequence[Entry]) -> None:
    """Refuse the whole batch, before anything is touched, if a new run would have no header.

    Or if it would be held at once though it is in a queue: only what waits can have its turn.
    """
    for entry in batch:
        if entry.after:
            continue
        if entry.header is None:
            raise ValueError(f"the entry that creates run {entry.run_id!r} has no header")
        if entry.lease == "take" and entry.header.queue != DEFAULT_QUEUE:
            raise ValueError(f"the entry that creates run {entry.run_id!r} jumps its queue")


def check_together(batch: Sequence[Entry]) -> None:
    """Refuse what can't be committed together: a run twice, or one that somebody drives."""
    check_headers(batch)
    if len({entry.run_id for entry in batch}) < len(batch):
        raise ValueError("a run may be in what is committed together only once")
    if any(entry.lease != "keep" or entry.consumed for entry in batch):
        raise ValueError("what is committed together takes no lease and no mail")


def not_one_database(store: str) -> UsageError:
    """The error of ``commit_together`` where journals are kept one by one."""
    return UsageError(
        f"{store} can't commit several journals as one: that takes a store that is one database, "
        "sqlite://, postgresql:// or memory://"
    )


def end_of_prefix(prefix: str) -> str:
    """The first text after all that begin with the prefix; empty if there is none."""
    stem = prefix.rstrip(_LAST_CHARACTER)
    if not stem:
        return ""
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
