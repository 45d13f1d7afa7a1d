"""Which index a query goes by, for stores that keep their headers in a table ``runs``.

Runs are listed in the order of their starts (``started_at``, then ``id``, the number of creation),
oldest or newest first. Every index that ``find`` uses ends with these two, so an *arm*, the entries
of one index with the same leading values, is in that order already, and a page of several arms is
merged from their beginnings. A query goes by one index (of several it might go by, the one with the
fewest entries); what else it asks is compared row by row, over so many rows at most: then the page
is short, and its cursor goes on from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from outlive.model.defaults import COUNTED_MAX
from outlive.stores.shared import end_of_prefix, has_tags, not_a_page, read_tags
from outlive.stores.types import DEFAULT_QUEUE, Count, Found, Page, Query

#: Characters of a tag's name, and of its value, that are indexed.
INDEXED_CHARS_MAX = 200

#: The conditions of partial indexes. A query repeats them to the letter, or no index is used.
IS_RUN = "flow <> ''"
#: Rows whose status no index of statuses has: most runs are never in it.
UNLISTED = "({row}status = 'completed' OR {row}status = 'running')"
IS_LISTED = f"{IS_RUN} AND status <> 'completed' AND (status <> 'running' OR worker IS NULL)"
IS_HELD = "worker IS NOT NULL"
HAS_PARENT = f"{IS_RUN} AND parent IS NOT NULL"
IS_QUEUED = f"{IS_RUN} AND queue <> 'default'"
HAS_ERROR = f"{IS_RUN} AND error <> ''"
IS_ASKING = f"{IS_RUN} AND questions <> ''"

#: Rows that a search looks at, at most, where no index knows all that it asks.
LOOKED_AT_MAX = 10_000

_ORDER = ("started_at", "id")
_CURSOR = re.compile(r"(-?\d{1,19})\.(\d{1,19})", re.ASCII)

#: SQL with a "?" for each of the values; "{tables}" stands before the name of a table.
Asking: TypeAlias = tuple[str, tuple["str | int | None", ...]]


#: The pairs of flow and version that there are, with this flow or this version; None: too many.
Lanes: TypeAlias = Callable[["str | None", "str | None"], "list[tuple[str, str]] | None"]
#: Arms of one search.
LANES_MAX = 50


class IndexedText(str):
    """Text that is in an index as it is, whatever a store does to other text."""

    __slots__ = ()


class Arm(NamedTuple):
    """The entries of one index that a query goes by."""

    by: str
    where: str
    values: tuple[str | int | None, ...]
    table: Literal["runs", "tags"] = "runs"
    #: Its entries are in the order of the starts; others are few, and sorted.
    is_ordered: bool = True


class Way(NamedTuple):
    """The arms of an index, and which parts of a query they answer."""

    arms: tuple[Arm, ...]
    answers: frozenset[str]


class StartPlace(NamedTuple):
    """The place of a run in the order of the starts."""

    started_at: int
    id: int

    def __str__(self) -> str:
        return f"{self.started_at}.{self.id}"


def parse_cursor(after: str | None) -> StartPlace | None:
    """Where a page of runs begins; refuses what is no cursor."""
    if after is None:
        return None
    found = _CURSOR.fullmatch(after)
    if found is None:
        raise not_a_page(after)
    started_at, number = int(found[1]), int(found[2])
    if max(abs(started_at), number) >= 1 << 63:
        raise not_a_page(after)
    return StartPlace(started_at, number)


def indexed_tag(name: str, value: str) -> tuple[IndexedText, IndexedText]:
    """A tag as the index has it; several may look the same."""
    written = msgspec.json.encode([name, value]).replace(b"\\u0000", b"\\ufffd")
    first, second = msgspec.json.decode(written, type=list[str])
    return IndexedText(first[:INDEXED_CHARS_MAX]), IndexedText(second[:INDEXED_CHARS_MAX])


def _prefixed(prefix: str) -> Asking:
    """Two bounds, so that an index finds them."""
    end = end_of_prefix(prefix)
    if not end:
        return "run_id >= ?", (prefix,)
    return "run_id >= ? AND run_id < ?", (prefix, end)


def tags_in(written: object) -> dict[str, str]:
    """The tags of a row; those of a damaged one count as none."""
    try:
        return read_tags(written)  # type: ignore[arg-type]  # whatever a row holds
    except (msgspec.MsgspecError, TypeError):
        return {}


# ---------------------------------------------------------------- ways


def ways(query: Query, lanes: Lanes | None = None) -> list[Way]:
    """The indexes that a query may go by, the best guess first; the last one always does."""
    found = [*_rare(query), *_tagged(query), *_by_status(query), *_common(query, lanes)]
    return [*found, Way((Arm("runs_by_start", IS_RUN, ()),), frozenset())]


def _rare(query: Query) -> Iterator[Way]:
    if query.worker is not None:
        where = f"{IS_RUN} AND worker = ?"
        yield _way("worker", Arm("runs_held", where, (query.worker,), is_ordered=False))
    if query.prefix:
        where, bounds = _prefixed(query.prefix)
        yield _way("prefix", Arm("", f"{IS_RUN} AND {where}", bounds, is_ordered=False))
    if query.parent is not None:
        yield _way("parent", Arm("runs_of_parent", f"{HAS_PARENT} AND parent = ?", (query.parent,)))
    if query.error:
        yield _way("error", Arm("runs_of_error", f"{HAS_ERROR} AND error = ?", (query.error,)))
    if query.is_asking:
        yield _way("is_asking", Arm("runs_asking", IS_ASKING, ()))
    if query.queue is not None and query.queue != DEFAULT_QUEUE:
        yield _way("queue", Arm("runs_of_queue", f"{IS_QUEUED} AND queue = ?", (query.queue,)))


def _tagged(query: Query) -> Iterator[Way]:
    listed = _are_listed(query) and "running" not in query.statuses
    for tag in query.all_tags:
        pair = indexed_tag(*tag)
        if listed:
            arms = [
                Arm(
                    "tags_by_status",
                    "status <> '' AND name = ? AND value = ? AND status = ?",
                    (*pair, status),
                    "tags",
                )
                for status in query.statuses
            ]
            yield Way(tuple(arms), frozenset({"status"}))
        else:
            yield Way((Arm("", "name = ? AND value = ?", pair, "tags"),), frozenset())


def _by_status(query: Query) -> Iterator[Way]:
    if not _are_listed(query):
        return
    arms: list[Arm] = []
    for status in query.statuses:
        if query.flow is None:
            arms.append(Arm("runs_of_status", f"{IS_LISTED} AND status = ?", (status,)))
        else:
            where = f"{IS_LISTED} AND flow = ? AND status = ?"
            arms.append(Arm("runs_of_flow_by_status", where, (query.flow, status)))
    if "running" in query.statuses:
        held = f"{IS_RUN} AND {IS_HELD} AND status = 'running'"
        if query.flow is None:
            arms.append(Arm("runs_held", held, (), is_ordered=False))
        else:
            arms.append(Arm("runs_held", f"{held} AND flow = ?", (query.flow,), is_ordered=False))
    answers = {"status"} if query.flow is None else {"status", "flow"}
    yield Way(tuple(arms), frozenset(answers))


def _common(query: Query, lanes: Lanes | None) -> Iterator[Way]:
    if lanes is not None:
        yield from _by_lane(query, lanes)
    elif query.flow is not None:
        yield _way("flow", Arm("runs_of_flow", f"{IS_RUN} AND flow = ?", (query.flow,)))
    if lanes is None and query.version is not None:
        where = f"{IS_RUN} AND version = ?"
        yield _way("version", Arm("runs_of_version", where, (query.version,)))
    if query.ended_by is not None or query.ended_since is not None:
        rest = _ended(query)
        where = " AND ".join([IS_RUN, *(sql for sql, _ in rest)])
        values = tuple(value for _, each in rest for value in each)
        yield _way("ended", Arm("runs_by_end", where, values, is_ordered=False))


def _by_lane(query: Query, lanes: Lanes) -> Iterator[Way]:
    """Where one index has flows and versions: an arm for each pair that is asked for."""
    if query.flow is None and query.version is None:
        return
    pairs = lanes(query.flow, query.version)
    if pairs is not None:
        where = f"{IS_RUN} AND flow = ? AND version = ?"
        arms = [Arm("runs_of_flow", where, pair) for pair in pairs or [("", "")]]
        asked = {"flow": query.flow, "version": query.version}
        yield Way(tuple(arms), frozenset(name for name in asked if asked[name] is not None))


def _way(answers: str, arm: Arm) -> Way:
    return Way((arm,), frozenset({answers}))


def _are_listed(query: Query) -> bool:
    return bool(query.statuses) and "completed" not in query.statuses


def _ended(query: Query) -> list[Asking]:
    asked: list[Asking] = [("ended_at IS NOT NULL", ())]
    if query.ended_since is not None:
        asked.append(("ended_at >= ?", (query.ended_since,)))
    if query.ended_by is not None:
        asked.append(("ended_at <= ?", (query.ended_by,)))
    return asked


def rest_of(query: Query, way: Way | None = None) -> list[Asking]:
    """What is asked and not answered by the index. Tags are compared by who reads the rows."""
    way = way or Way((), frozenset())
    asked: list[Asking] = []
    if query.statuses and "status" not in way.answers:
        marks = ", ".join("?" for _ in query.statuses)
        asked.append((f"status IN ({marks})", query.statuses))
    for name in ("flow", "version", "parent", "queue", "worker"):
        value = getattr(query, name)
        if value is not None and name not in way.answers:
            asked.append((f"{name} = ?", (value,)))
    if query.error and "error" not in way.answers:
        asked.append(("error = ?", (query.error,)))
    if query.is_asking and "is_asking" not in way.answers:
        asked.append(("questions <> ''", ()))
    if query.prefix and "prefix" not in way.answers:
        asked.append(_prefixed(query.prefix))
    if (query.ended_by is not None or query.ended_since is not None) and "ended" not in way.answers:
        asked += _ended(query)
    return asked


def journals(query: Query, columns: Sequence[str], number: str, *, lateral: bool) -> Asking:
    """A page of journals of any kind, after the first value, the number of the one before.

    With a tag it goes by the table of tags: what it finds may have another one (``has_tags``).
    """
    asked = conditions(query)
    values = tuple(value for _, each in asked for value in each)
    shown = ", ".join(f"r.{name}" for name in ("id", *columns))
    where = [sql for sql, _ in asked]
    if not query.all_tags:
        where = [f"{number} > ?", *where]
        source, order = "{tables}runs r", number
    else:
        values = (*indexed_tag(*query.all_tags[0]), *values)
        tagged = "SELECT run FROM {tables}tags WHERE run > ? AND name = ? AND value = ?"
        row = "{tables}runs r ON r.id = t.run"
        if lateral:  # a server that guesses wrong would go through all runs for each tag
            row = "LATERAL (SELECT * FROM {tables}runs x WHERE x.id = t.run LIMIT 1) AS r"
        source, order = f"({tagged} ORDER BY run) AS t CROSS JOIN {row}", "t.run"
    sql = f"SELECT {shown} FROM {source} WHERE {' AND '.join(where) or '1 = 1'}"
    return f"{sql} ORDER BY {order} LIMIT ?", values


def conditions(query: Query) -> list[Asking]:
    """All that is asked but for tags, for who looks for journals of any kind."""
    asked = rest_of(query)
    if query.started_since is not None:
        asked.append(("started_at >= ?", (query.started_since,)))
    if query.started_before is not None:
        asked.append(("started_at < ?", (query.started_before,)))
    return asked


# ---------------------------------------------------------------- SQL


class Search:
    """A query, the way it goes, and the SQL that goes it."""

    def __init__(self, query: Query, way: Way, columns: Sequence[str], *, lateral: bool) -> None:
        """``columns``: what is read of a run; ``lateral``: how a server joins row by row."""
        self._query, self.way, self._columns, self._lateral = query, way, columns, lateral
        self.rest = rest_of(query, way)
        self._direction = " DESC" if query.newest else ""

    def page(self, after: StartPlace | None, count: int) -> Asking:
        """The rows of a page, each behind its number."""
        if not self.rest:
            return self._merged(after, count, self._columns)
        inner, values = self._merged(after, LOOKED_AT_MAX, self._columns)
        where = " AND ".join(sql for sql, _ in self.rest)
        more = tuple(value for _, each in self.rest for value in each)
        sql = f"SELECT * FROM ({inner}) AS found WHERE {where} {self._ordered()} LIMIT ?"
        return sql, (*values, *more, count)

    def last_looked_at(self, after: StartPlace | None) -> Asking:
        """The place of the last row that may be looked at; nothing if there are fewer."""
        inner, values = self._merged(after, LOOKED_AT_MAX, _ORDER[:1])
        sql = f"SELECT started_at, id FROM ({inner}) AS found {self._ordered()} LIMIT 1 OFFSET ?"
        return sql, (*values, LOOKED_AT_MAX - 1)

    def entries(self, most: int) -> Asking:
        """How many entries the arms have, up to so many."""
        arms = [self._arm(arm, None, most, None) for arm in self.way.arms]
        inner = " UNION ALL ".join(f"SELECT id FROM ({sql}) AS arm" for sql, _ in arms)
        sql = f"SELECT count(*) FROM (SELECT id FROM ({inner}) AS found LIMIT ?) AS counted"
        return sql, (*(value for _, values in arms for value in values), most)

    def _merged(self, after: StartPlace | None, count: int, columns: Sequence[str]) -> Asking:
        arms = [self._arm(arm, after, count, columns) for arm in self.way.arms]
        values = tuple(value for _, each in arms for value in each)
        if len(arms) == 1 and self.way.arms[0].table == "runs":
            return arms[0][0], values
        inner = " UNION ALL ".join(f"SELECT * FROM ({sql}) AS arm" for sql, _ in arms)
        return f"SELECT * FROM ({inner}) AS arms {self._ordered()} LIMIT ?", (*values, count)

    def _arm(
        self, arm: Arm, after: StartPlace | None, count: int, columns: Sequence[str] | None
    ) -> Asking:
        """The entries of an arm with these columns; None: only numbers, in any order."""
        number = "run" if arm.table == "tags" else "id"
        order = [name if arm.is_ordered else f"{name} + 0" for name in ("started_at", number)]
        where, values = [arm.where], [*arm.values]
        for sql, value in self._range(order, after):
            where.append(sql)
            values += value
        direction = self._direction
        # SQLite goes by this index or not at all; a server knows what its tables hold.
        by = f" INDEXED BY {arm.by}" if arm.by and not self._lateral else ""
        tail, asked = (
            f"FROM {{tables}}{arm.table}{by} WHERE {' AND '.join(where)}",
            (*values, count),
        )
        if columns is None:
            return f"SELECT {number} AS id {tail} LIMIT ?", asked
        tail += f" ORDER BY {order[0]}{direction}, {order[1]}{direction} LIMIT ?"
        if arm.table == "runs":
            shown = "".join(f", {name}" for name in columns)
            return f"SELECT id{shown} {tail}", asked
        return self._joined(f"SELECT run {tail}", columns), asked

    def _joined(self, tagged: str, columns: Sequence[str]) -> str:
        shown = "".join(f", r.{name}" for name in columns)
        if self._lateral:
            row = f"(SELECT r.id{shown} FROM {{tables}}runs r WHERE r.id = t.run LIMIT 1)"
            return f"SELECT r.* FROM ({tagged}) AS t CROSS JOIN LATERAL {row} AS r"
        joined = "CROSS JOIN {tables}runs r ON r.id = t.run"
        return f"SELECT r.id{shown} FROM ({tagged}) AS t {joined}"

    def _range(self, order: Sequence[str], after: StartPlace | None) -> Iterator[Asking]:
        query = self._query
        if query.started_since is not None:
            yield f"{order[0]} >= ?", (query.started_since,)
        if query.started_before is not None:
            yield f"{order[0]} < ?", (query.started_before,)
        if after is not None:
            beyond = "<" if query.newest else ">"
            yield f"({order[0]}, {order[1]}) {beyond} (?, ?)", tuple(after)

    def _ordered(self) -> str:
        return f"ORDER BY started_at{self._direction}, id{self._direction}"


# ---------------------------------------------------------------- going it


class SendSQL(Protocol):
    """Sends SQL with its values, answers with the rows."""

    def __call__(self, sql: str, values: Sequence[Any], /) -> Sequence[Sequence[Any]]: ...


class RunSearch:
    """Finds and counts runs; only SQL's dialect is a store's own."""

    def __init__(
        self,
        ask: SendSQL,
        columns: Sequence[str],
        read: Callable[[Sequence[Any]], Found],
        *,
        lateral: bool,
    ) -> None:
        """``read`` makes a run of a row of the columns."""
        self._ask, self._columns, self._read, self._lateral = ask, columns, read, lateral

    def page(self, query: Query, after: str | None, size: int) -> Page:
        """A page of runs; a short one says where to go on."""
        begin, search = parse_cursor(after), self._search(query)
        rows = self._ask(*search.page(begin, size + 1))
        if len(rows) > size:
            rows = rows[:size]
            following: StartPlace | None = self._place(rows[-1])
        else:
            following = self._last(search, begin) if search.rest else None
        found = [self._read(row[1:]) for row in rows]
        items = [run for run in found if has_tags(query, run.header.tags)]
        return Page(items=items, next=None if following is None else str(following))

    def count(self, query: Query, most: int = COUNTED_MAX) -> Count:
        """How many there are, as far as they are counted."""
        search = self._search(query)
        if not search.rest and not query.all_tags:
            ((count,),) = self._ask(*search.entries(most + 1))
            return Count(value=min(count, most), is_capped=count > most)
        narrow = Search(query, search.way, self._narrow(), lateral=self._lateral)
        rows = self._ask(*narrow.page(None, most + 1))
        tags = 1 + self._narrow().index("tags")
        value = sum(has_tags(query, tags_in(row[tags])) for row in rows)
        is_capped = len(rows) > most or (bool(search.rest) and self._last(search, None) is not None)
        return Count(value=min(value, most), is_capped=is_capped)

    def _narrow(self) -> Sequence[str]:
        wide = ("reason", "published", "link", "chapter_link")
        return [name for name in self._columns if name not in wide]

    def _place(self, row: Sequence[Any]) -> StartPlace:
        return StartPlace(row[1 + self._columns.index("started_at")], row[0])

    def _last(self, search: Search, begin: StartPlace | None) -> StartPlace | None:
        rows = self._ask(*search.last_looked_at(begin))
        return StartPlace(*rows[0]) if rows else None

    def _lanes(self, flow: str | None, version: str | None) -> list[tuple[str, str]] | None:
        """By jumps through the index, from one flow, or one version, to the next."""
        if flow is not None and version is not None:
            return [(flow, version)]
        known, name = (
            (f"{IS_RUN}", "flow") if flow is None else (f"{IS_RUN} AND flow = ?", "version")
        )
        given = () if flow is None else (flow,)
        sql = (
            f"SELECT {name} FROM {{tables}}runs INDEXED BY runs_of_flow"
            f" WHERE {known} AND {name} {{beyond}} ? ORDER BY {name} LIMIT 1"
        )
        found: list[tuple[str, str]] = []
        last, beyond = "", ">="
        while rows := self._ask(sql.replace("{beyond}", beyond), (*given, last)):
            last, beyond = rows[0][0], ">"
            found.append((last, version or "") if flow is None else (flow, last))
            if len(found) > LANES_MAX:
                return None
        return found

    def _search(self, query: Query) -> Search:
        """By the index with the fewest entries."""
        able = ways(query, None if self._lateral else self._lanes)
        best, fewest = able[-1], LOOKED_AT_MAX + 1
        for way in able[:-1]:
            search = Search(query, way, self._columns, lateral=self._lateral)
            is_only = len(able) == 2 or not search.rest
            if is_only and all(arm.is_ordered for arm in way.arms):
                return search
            ((count,),) = self._ask(*search.entries(LOOKED_AT_MAX + 1))
            is_able = count <= LOOKED_AT_MAX or all(arm.is_ordered for arm in way.arms)
            if is_able and (count < fewest or best is able[-1]):
                best, fewest = way, count
        return Search(query, best, self._columns, lateral=self._lateral)
