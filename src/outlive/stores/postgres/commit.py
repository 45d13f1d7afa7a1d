"""A batch as statements: one for any number of runs, and a lighter one for a run that is alone.

Appends to one run that follow one another are a *chain*, over which its head moves at once. Only
a batch in which a run occurs more than once in other ways takes several statements, one after the
other (*waves*): an entry must not land on a journal that its predecessor did not extend.

Heads are moved, and so locked, in the order of their ids, as by whoever posts mail: of two who want
the same runs one waits for the other, and neither for ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from typing import TypeAlias

from outlive.errors import StoreFailed, ValueRefused
from outlive.stores.postgres.connection import PostgresConnection, Statement
from outlive.stores.postgres.errors import ServerRefused, Unreachable
from outlive.stores.postgres.pool import Pool
from outlive.stores.postgres.rows import header_parameters
from outlive.stores.postgres.wire import Parameter, Row, blob, blobs, int8, int8s, text, texts
from outlive.stores.queues import is_gated
from outlive.stores.shared import bytes_in, is_append, waves
from outlive.stores.types import Conflict, Entry

_KEEP, _TAKE, _FREE = 0, 1, 2
#: A server takes up to a gigabyte in one statement, and needs several times as much for it.
_BYTES_MAX = 64 * 1024 * 1024
_REFUSED = "place, seq, epoch, gone"

#: Sends one statement and answers with its rows.
Run = Callable[[Statement], list[Row]]


#: Runs that have a record where one of these entries would put its own, though their head says that
#: there is none; and their heads.
TAKEN = """
SELECT DISTINCT g.run_id, coalesce(r.seq, 0), coalesce(r.epoch, 0)
FROM unnest($1::text[], $2::int8[]) AS g (run_id, after)
JOIN {s}.records x ON x.run_id = g.run_id AND x.seq = g.after + 1
LEFT JOIN {s}.runs r ON r.run_id = g.run_id WHERE coalesce(r.seq, 0) <= g.after
"""


def commit_batch(
    run: Run, schema: str, batch: Sequence[Entry], now: int | None
) -> list[Conflict | None]:
    """Write a batch and answer for each entry."""
    if len(batch) == 1:
        return _commit_part(run, schema, batch, now)
    if len({entry.run_id for entry in batch}) == len(batch):
        return _commit_wave(run, schema, batch, now)
    chains = _chains(batch)
    if chains is None:
        return _commit_waves(run, schema, batch, now)
    stayed = {run_id for (run_id,) in run(_chain(schema, chains))}
    answers: list[Conflict | None] = [None] * len(batch)
    left = [place for place, entry in enumerate(batch) if entry.run_id in stayed]
    again = _commit_waves(run, schema, [batch[place] for place in left], now)
    for place, answer in zip(left, again, strict=True):
        answers[place] = answer
    return answers


def _chains(batch: Sequence[Entry]) -> list[list[Entry]] | None:
    """By run, appends each of which follows the one before; None: they are not all of that kind."""
    found: dict[str, list[Entry]] = {}
    for entry in batch:
        chain = found.setdefault(entry.run_id, [])
        if not is_append(entry) or (chain and not _follows(chain[-1], entry)):
            return None
        chain.append(entry)
    if sum(len(entry.record) for entry in batch) > _BYTES_MAX:
        return None
    return [found[run_id] for run_id in sorted(found)]


def _follows(before: Entry, entry: Entry) -> bool:
    return entry.after == before.last and entry.epoch == before.epoch


def _chain(schema: str, chains: Sequence[Sequence[Entry]]) -> Statement:
    entries = [entry for chain in chains for entry in chain]
    parameters = [
        texts([chain[0].run_id for chain in chains]),
        int8s([chain[0].after for chain in chains]),
        int8s([chain[-1].last for chain in chains]),
        int8s([chain[0].epoch for chain in chains]),
        blobs([chain[-1].link for chain in chains]),
        texts([entry.run_id for entry in entries]),
        int8s([entry.after + 1 for entry in entries]),
        blobs([entry.record for entry in entries]),
    ]
    sql, name = _asking("run_id", schema, "chain_v1", len(parameters))
    return Statement(sql, parameters, name)


def _commit_waves(
    run: Run, schema: str, batch: Sequence[Entry], now: int | None
) -> list[Conflict | None]:
    answers: list[Conflict | None] = [None] * len(batch)
    refused: dict[str, Conflict] = {}
    for wave in waves(batch):
        trying = [position for position in wave if batch[position].run_id not in refused]
        done = _commit_wave(run, schema, [batch[position] for position in trying], now)
        for position, answer in zip(trying, done, strict=True):
            answers[position] = answer
            if answer is not None:
                refused[batch[position].run_id] = answer
        for position in set(wave).difference(trying):
            answers[position] = refused[batch[position].run_id]
    return answers


def _commit_wave(
    run: Run, schema: str, wave: Sequence[Entry], now: int | None
) -> list[Conflict | None]:
    """Write entries of different runs."""
    order = in_order(wave)
    done: list[Conflict | None] = []
    for part in _parts([wave[place] for place in order]):
        done += _commit_part(run, schema, part, now)
    answers = dict(zip(order, done, strict=True))
    return [answers[place] for place in range(len(wave))]


def in_order(wave: Sequence[Entry]) -> list[int]:
    """New runs first, which are numbered in the order of their coming; others by their ids."""
    ranks = [entry.run_id if entry.after else "" for entry in wave]
    return sorted(range(len(wave)), key=ranks.__getitem__)


#: An error that says what was refused, so that the statement leaves nothing behind.
_STRICTLY = """SELECT 0::int8, 0::int8, 0::int8, false WHERE (
SELECT CASE WHEN count(*) = 0 THEN 0 ELSE ('refused ' || string_agg(
concat_ws(',', r.place, r.seq, r.epoch, coalesce(r.gone, false)::int), ';'))::int END
FROM ({sql}) AS r) > 0"""
_REFUSED_TEXT = re.compile(r"refused ((?:-?\d+,-?\d+,-?\d+,[01];?)+)")
_NO_NUMBER = "22P02"


def check_one_statement(batch: Sequence[Entry]) -> None:
    """Refuse what one statement can't carry."""
    size = sum(map(bytes_in, batch))
    if size > _BYTES_MAX:
        raise ValueRefused(f"{size} bytes in several journals at once; {_BYTES_MAX} are allowed")


def strictly(statement: Statement) -> Statement:
    """A statement that commits all of its entries or fails."""
    sql = _STRICTLY.format(sql=statement.sql)
    name = b"outlive.strictly." + blake2b(sql.encode(), digest_size=8).hexdigest().encode()
    return Statement(sql, statement.parameters, name)


def refused_strictly(error: StoreFailed) -> dict[int, Conflict] | None:
    """By place in the statement, what it refused; None: it failed for another reason."""
    cause = error.__cause__
    if not isinstance(cause, ServerRefused) or cause.state != _NO_NUMBER:
        return None
    found = _REFUSED_TEXT.search(cause.message)
    if found is None:
        return None
    rows = [tuple(map(int, row.split(","))) for row in found[1].rstrip(";").split(";")]
    return {
        place: Conflict(seq=seq, epoch=epoch, gone=bool(gone)) for place, seq, epoch, gone in rows
    }


def _parts(wave: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """The wave in parts that one statement can carry: nearly always one."""
    begin, size = 0, 0
    for place, entry in enumerate(wave):
        more = bytes_in(entry)
        if place > begin and size + more > _BYTES_MAX:
            yield wave[begin:place]
            begin, size = place, 0
        size += more
    if wave:
        yield wave[begin:]


def _commit_part(
    run: Run, schema: str, wave: Sequence[Entry], now: int | None
) -> list[Conflict | None]:
    plain = all(map(is_append, wave))
    statement = _append(schema, wave, now) if plain else _commit(schema, wave, now)
    answers: list[Conflict | None] = [None] * len(wave)
    for place, seq, epoch, gone in run(statement):
        answers[place - 1] = Conflict(seq=seq, epoch=epoch, gone=gone)
    return answers


def _places(wave: Sequence[Entry]) -> list[Parameter]:
    return [
        texts([entry.run_id for entry in wave]),
        int8s([entry.after for entry in wave]),
        int8s([entry.last for entry in wave]),
        int8s([entry.epoch for entry in wave]),
        blobs([entry.link for entry in wave]),
        blobs([entry.record for entry in wave]),
    ]


def _append(schema: str, wave: Sequence[Entry], now: int | None) -> Statement:
    if len(wave) == 1:
        return _append_one(schema, wave[0], now)
    return _call(schema, "append_v1", [*_places(wave), int8(now)])


def _append_one(schema: str, entry: Entry, now: int | None) -> Statement:
    parameters = [
        text(entry.run_id),
        int8(entry.after),
        int8(entry.last),
        int8(entry.epoch),
        blob(entry.link),
        blob(entry.record),
        int8(now),
    ]
    return _call(schema, "append_one_v1", parameters)


def _commit(schema: str, wave: Sequence[Entry], now: int | None) -> Statement:
    nodes = [(entry.run_id, node) for entry in wave for node in entry.nodes]
    mail = [(entry.run_id, mail_id) for entry in wave for mail_id in entry.consumed]
    takes = [entry.lease == "take" for entry in wave]
    parameters = [
        *_places(wave),
        int8s([e.epoch - 1 if take else e.epoch for e, take in zip(wave, takes, strict=True)]),
        int8s([_lease(entry) for entry in wave]),
        texts([e.worker if take else None for e, take in zip(wave, takes, strict=True)]),
        *header_parameters(wave),
        texts([run_id for run_id, _ in nodes]),
        blobs([node.address for _, node in nodes]),
        blobs([node.body for _, node in nodes]),
        texts([run_id for run_id, _ in mail]),
        texts([mail_id for _, mail_id in mail]),
        texts([entry.joins for entry in wave]),
        int8(now),
    ]
    gated = "true" if any(map(is_gated, wave)) else "false"
    return _call(schema, "commit_v5", parameters, gated)


def _lease(entry: Entry) -> int:
    if entry.header is not None and entry.header.ended_at is not None:
        return _FREE
    return {"keep": _KEEP, "take": _TAKE, "free": _FREE}[entry.lease]


def _call(schema: str, function: str, parameters: Sequence[Parameter], *more: str) -> Statement:
    sql, name = _asking(_REFUSED, schema, function, len(parameters), more)
    return Statement(sql, parameters, name)


@cache
def _asking(
    columns: str, schema: str, function: str, count: int, more: tuple[str, ...] = ()
) -> tuple[str, bytes]:
    """What calls a function, and a name for it that is its own, whoever else uses the session."""
    marks = ", ".join([*(f"${number}" for number in range(1, count + 1)), *more])
    sql = f'SELECT {columns} FROM "{schema}".{function}({marks})'
    return sql, f"outlive.{function}.{blake2b(sql.encode(), digest_size=8).hexdigest()}".encode()


def table_statement(
    schema: str, sql: str, values: Sequence[str | int | None], *, entry: Entry | None = None
) -> Statement:
    """What changes a table, together with this entry if its run has come to where it puts it."""
    given = [int8(each) if isinstance(each, int) else text(each) for each in values]
    committed = "true"
    if entry is not None:
        run_id, seq, link = (f"${len(values) + more}" for more in (1, 2, 3))
        given += [text(entry.run_id), int8(entry.last), blob(entry.link)]
        committed = (
            f'EXISTS (SELECT FROM "{schema}".runs'
            f" WHERE run_id = {run_id} AND seq = {seq} AND link = {link})"
        )
    for number in range(1, len(values) + 1):
        sql = sql.replace("?", f"${number}", 1)
    return Statement(sql.format(tables=f'"{schema}".', committed=committed), given)


#: How long a loop waits for a server that was quick each time before.
MOMENT_SECONDS = 0.002
#: What fits into a socket at once.
_PROMPT_BYTES_MAX = 64 * 1024

#: Run, the seq to follow and the epoch: of all that commit only one can mean this place.
Place: TypeAlias = tuple[str, int, int]
#: Brings a statement that commits this batch to the server; its rows.
Ask: TypeAlias = Callable[[Sequence[Entry], Statement], list[Row]]


class TooLate(Exception):
    """It was not asked, or the answer is not there yet: the keeper's thread goes on from here."""


class Commits:
    """How commits get to the server."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        #: Asked and not answered.
        self._late: dict[Place, PostgresConnection] = {}

    def run(self, batch: Sequence[Entry], statement: Statement) -> list[Row]:
        """Ask, however long it takes; first of all for an answer that is on its way."""
        late = self._late.pop(_place(batch), None) if self._late else None
        if late is not None:
            try:
                rows = late.finish()
            except (Unreachable, ServerRefused):
                self._pool.forget(late)
            else:
                self._pool.give_back("commit", late)
                return rows
        return self._pool.run("commit", statement)[0]

    def run_at_once(self, batch: Sequence[Entry], statement: Statement) -> list[Row]:
        """Ask, and wait for a moment.

        Raises:
            TooLate: give the same batch to ``run``.
        """
        db = self._pool.take_kept("commit") if _is_small(batch) else None
        if db is None:
            raise TooLate
        if not db.is_direct:  # a pooler's sessions need more than one statement
            self._pool.keep("commit", db)
            raise TooLate
        try:
            rows = db.run_at_once(statement, MOMENT_SECONDS)
        except (Unreachable, ServerRefused) as error:
            self._pool.forget(db)
            raise TooLate from error
        if rows is None:
            self._late[_place(batch)] = db
            raise TooLate
        self._pool.give_back("commit", db)
        return rows

    def close(self) -> None:
        """Wait for no answer any more."""
        while self._late:
            self._late.popitem()[1].close()


def _place(batch: Sequence[Entry]) -> Place:
    entry = batch[0]
    return entry.run_id, entry.after, entry.epoch


def _is_small(batch: Sequence[Entry]) -> bool:
    return len(batch) == 1 and bytes_in(batch[0]) < _PROMPT_BYTES_MAX
