"""Many entries in a handful of statements: how a commit reaches the file.

Python lets go of its global lock at every statement it gives to SQLite, and while a flow computes
it may take 5 ms to get it back: a batch of 200 entries, two statements each, was measured to take
1.8 s beside a busy thread. So a batch is not a loop over entries. Each connection has a few
temporary *views*, and triggers that do the work for whatever is inserted into them; a batch is
one INSERT of many rows per view, and a batch of one kind (appends with a node or two at most;
starts; claims and ends) is a single statement in all, which is also its own transaction.

The triggers are the fence: a row whose run is not at the right seq and epoch changes nothing.
Whatever belongs to an entry beside its record (header, nodes, mail) is written only if the run's
head is this very entry, told by seq, epoch and link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from outlive.stores.queues import is_gated
from outlive.stores.shared import header_values, waves
from outlive.stores.sqlite.connections import Connection, Value
from outlive.stores.sqlite.queues import refused_by_queues
from outlive.stores.sqlite.rows import HEADER_COLUMNS, NAMED
from outlive.stores.types import Answers, Conflict, Entry, Header, Mail, Posted, Posting

#: Rows in one INSERT; SQLite has 32,766 parameters, the widest view has 30 columns.
ROWS_MAX = 1000
#: The views that take an entry's record, each row of one of them.
_RECORDING = ("appending", "showing", "leasing", "turning", "creating")
#: Those of which no row has a header.
_BARE = frozenset({"appending", "saving", "taking"})
#: Those in which somebody gets or gives back the right to drive a run.
_TURNING = frozenset({"turning", "creating"})
#: Every accepted entry changes two rows: its record and its run.
_CHANGES_PER_ENTRY = 2
#: Every letter that is consumed: itself and its run's count.
_CHANGES_PER_LETTER = 2

#: How many nodes a row has room for: a snapshot mostly brings a text and its form.
_NODES_SAVED_MAX = 2
_NODES = "address, body, address_next, body_next"
_NO_NODES = (None,) * 2 * _NODES_SAVED_MAX

_IS_HEAD = "run_id = NEW.run_id AND seq = NEW.last AND epoch = NEW.epoch AND link = NEW.link"
#: What a run keeps from its beginning; its version, until a chapter begins. Not set again, for an
#: index is written anew for every column that is set, even to what it was.
_FIXED = frozenset(("flow", "version", "family", "started_at"))
_SET_HEADER = ", ".join(
    f"{name} = NEW.{name}" for name in HEADER_COLUMNS.split(", ") if name not in _FIXED
)
_NEW_HEADER = ", ".join(f"NEW.{name}" for name in HEADER_COLUMNS.split(", "))


def _append(more: str = "") -> str:
    return f"""
        INSERT OR IGNORE INTO records (run, seq, body)
            SELECT id, NEW.after + 1, NEW.record FROM runs
            WHERE run_id = NEW.run_id AND seq = NEW.after AND epoch = NEW.epoch;
        UPDATE runs SET seq = NEW.last, link = NEW.link {more}
            WHERE changes() = 1 AND run_id = NEW.run_id;
        """


def _keep(address: str, body: str) -> str:
    return f"""
        INSERT OR IGNORE INTO nodes (family, address, body)
            SELECT family, NEW.{address}, NEW.{body} FROM runs
            WHERE NEW.{address} IS NOT NULL AND {_IS_HEAD};
        """


_KEEP_ALL = _keep("address", "body") + _keep("address_next", "body_next")
_CONSUME = f"""
        UPDATE mail SET body = NULL
            WHERE mail_id = NEW.mail_id AND body IS NOT NULL
            AND run = (SELECT id FROM runs WHERE {_IS_HEAD});
        UPDATE runs SET consumed = consumed + 1
            WHERE changes() = 1 AND run_id = NEW.run_id AND consumed < posted;
        """

#: view -> its columns, and what happens to a row inserted into it.
VIEWS = {
    "appending": (
        "run_id, after, last, epoch, link, record",
        _append(),
    ),
    "saving": (
        f"run_id, after, last, epoch, link, record, {_NODES}",
        _append() + _KEEP_ALL,
    ),
    "showing": (
        f"run_id, after, last, epoch, link, record, {_NODES}, {HEADER_COLUMNS}",
        _append(f", {_SET_HEADER}") + _KEEP_ALL,
    ),
    "leasing": (
        "run_id, after, last, epoch, link, record, epoch_before, worker",
        """
        INSERT OR IGNORE INTO records (run, seq, body)
            SELECT id, NEW.after + 1, NEW.record FROM runs
            WHERE run_id = NEW.run_id AND seq = NEW.after AND epoch = NEW.epoch_before;
        UPDATE runs SET seq = NEW.last, link = NEW.link, epoch = NEW.epoch, worker = NEW.worker
            WHERE changes() = 1 AND run_id = NEW.run_id;
        """,
    ),
    "turning": (
        f"run_id, after, last, epoch, link, record, epoch_before, worker, {HEADER_COLUMNS}",
        f"""
        INSERT OR IGNORE INTO records (run, seq, body)
            SELECT id, NEW.after + 1, NEW.record FROM runs
            WHERE run_id = NEW.run_id AND seq = NEW.after AND epoch = NEW.epoch_before;
        UPDATE runs SET seq = NEW.last, link = NEW.link, epoch = NEW.epoch, worker = NEW.worker,
            {_SET_HEADER}
            WHERE changes() = 1 AND run_id = NEW.run_id;
        """,
    ),
    "creating": (
        f"run_id, last, epoch, link, record, worker, now, joins, {HEADER_COLUMNS}",
        f"""
        INSERT OR IGNORE INTO runs (run_id, seq, epoch, link, worker, {HEADER_COLUMNS})
            SELECT NEW.run_id, NEW.last, NEW.epoch, NEW.link, NEW.worker, {_NEW_HEADER}
            WHERE NOT EXISTS (SELECT 1 FROM runs WHERE run_id = NEW.run_id)
            AND NOT EXISTS (SELECT 1 FROM runs WHERE run_id || '' = NEW.run_id)
            AND NOT EXISTS (
                SELECT 1 FROM tombstones WHERE run_id = NEW.run_id AND keep_until > NEW.now
            )
            AND NOT EXISTS (
                SELECT 1 FROM tombstones WHERE run_id || '' = NEW.run_id AND keep_until > NEW.now
            )
            AND (NEW.joins IS NULL OR EXISTS (SELECT 1 FROM runs WHERE run_id = NEW.joins));
        INSERT INTO records (run, seq, body)
            SELECT id, 1, NEW.record FROM runs WHERE changes() = 1 AND run_id = NEW.run_id;
        """,
    ),
    "noding": (
        "run_id, last, epoch, link, address, body",
        _keep("address", "body"),
    ),
    "revising": (
        "run_id, last, epoch, link, version",
        f"UPDATE runs SET version = NEW.version WHERE {_IS_HEAD};",
    ),
    "consuming": (
        "run_id, last, epoch, link, mail_id",
        _CONSUME,
    ),
    "taking": (
        "run_id, after, last, epoch, link, record, mail_id",
        _append() + _CONSUME,
    ),
    "posting": (
        "run_id, mail_id, posted_at, body",
        """
        INSERT INTO mail (run, mail_id, posted_at, body)
            SELECT id, NEW.mail_id, NEW.posted_at, NEW.body FROM runs
            WHERE run_id = NEW.run_id AND ended_at IS NULL AND NOT EXISTS (
                SELECT 1 FROM mail WHERE run = runs.id AND mail_id = NEW.mail_id
            );
        UPDATE runs SET posted = posted + 1 WHERE changes() = 1 AND run_id = NEW.run_id;
        """,
    ),
}


class RefusedTogether(Exception):
    """Raised in a transaction of which nothing is to be kept."""

    def __init__(self, answers: Answers) -> None:
        super().__init__("one of the entries was refused")
        self.answers = answers


def create_view(db: Connection, name: str) -> None:
    """Give a connection one of its views. It is temporary: the file holds nothing but data."""
    columns, body = VIEWS[name]
    nothing = ", ".join("NULL" for _ in columns.split(", "))
    db.execute(f"CREATE TEMP VIEW {name} ({columns}) AS SELECT {nothing} WHERE 0")
    db.execute(f"CREATE TEMP TRIGGER on_{name} INSTEAD OF INSERT ON {name} BEGIN {body} END")


def views_for(batch: Sequence[Entry]) -> set[str]:
    """The views that a batch is written through."""
    views = {_view_of(entry) for entry in batch}
    if any(entry.nodes for entry in batch):
        views.add("noding")
    if any(entry.consumed for entry in batch):
        views.add("consuming")
    if any(map(_begins_chapter, batch)):
        views.add("revising")
    return views


def single_view(batch: Sequence[Entry]) -> str | None:
    """The view through which one statement writes the whole batch; None: it takes several."""
    if len(batch) == 1:
        return _own_view(batch[0])
    if len(batch) > ROWS_MAX or len({entry.run_id for entry in batch}) < len(batch):
        return None
    views = set(map(_own_view, batch))
    if views == {"appending", "saving"}:
        return "saving"
    return views.pop() if len(views) == 1 else None


def _own_view(entry: Entry) -> str | None:
    """The view through which one statement writes an entry; None: it takes several.

    Runs that begin, are claimed, let go of or end must come with nothing beside.
    """
    header, nodes = entry.header, len(entry.nodes)
    if nodes > _NODES_SAVED_MAX:
        return None
    if entry.consumed:
        return "taking" if _takes_one(entry) else None
    if header is not None and _begins_chapter(entry):
        return None
    if entry.after and entry.lease == "keep" and (header is None or header.ended_at is None):
        if header is not None:
            return "showing"
        return "saving" if nodes else "appending"
    if nodes or header is None or (entry.lease == "take" and is_gated(entry)):
        return None
    return "turning" if entry.after else "creating"


def _takes_one(entry: Entry) -> bool:
    """Whether an entry is a record that answers one letter, with nothing beside."""
    is_bare = entry.header is None and not entry.nodes and len(entry.consumed) == 1
    return is_bare and entry.lease == "keep" and entry.after > 0


def _begins_chapter(entry: Entry) -> bool:
    return entry.header is not None and entry.after < entry.header.chapter <= entry.last


def _is_tagged(entry: Entry) -> bool:
    """Whether more may be written than two rows: those of its tags."""
    return entry.header is not None and bool(entry.header.tags)


def append_all(
    db: Connection, batch: Sequence[Entry], now: int, *, view: str
) -> list[Conflict | None]:
    """Write a batch through its single view: a single statement."""
    before = db.total_changes
    if len(batch) == 1:
        entry = batch[0]
        row = _row(view, entry, now) if view in _TURNING else _single_row(view, entry)
        db.execute(_inserting(view, len(row), 1), row)
        more = len(entry.nodes) + _CHANGES_PER_LETTER * len(entry.consumed)
    else:
        turns = view in _TURNING
        rows = [_row(view, e, now) if turns else _single_row(view, e) for e in batch]
        _insert(db, view, rows)
        more = sum([len(e.nodes) + _CHANGES_PER_LETTER * len(e.consumed) for e in batch])
    is_counted = db.total_changes - before == _CHANGES_PER_ENTRY * len(batch) + more
    if is_counted and (view in _BARE or not any(map(_is_tagged, batch))):
        return [None] * len(batch)
    # Mostly some node was there already.
    return _answers_by_heads(db, batch, now)


def _answers_by_heads(db: Connection, batch: Sequence[Entry], now: int) -> list[Conflict | None]:
    """One look at all heads tells whose entries are in."""
    heads: dict[str, tuple[Value, ...]] = {}
    for begin in range(0, len(batch), ROWS_MAX):
        heads |= _heads(db, [entry.run_id for entry in batch[begin : begin + ROWS_MAX]])
    return [
        None if heads.get(entry.run_id) == _place(entry) else _look_up(db, entry, now)
        for entry in batch
    ]


def _heads(db: Connection, run_ids: Sequence[str]) -> dict[str, tuple[Value, ...]]:
    marks = ",".join("?" * len(run_ids))
    rows = db.execute(
        f"SELECT run_id, seq, epoch, link FROM runs WHERE run_id IN ({marks})", run_ids
    )
    return {row[0]: row for row in rows.fetchall()}


def _single_row(view: str, entry: Entry) -> tuple[Value, ...]:
    row = _append_row(entry)
    if view == "appending":
        return row
    if view == "taking":
        return (*row, entry.consumed[0])
    nodes: list[Value] = [part for node in entry.nodes for part in (node.address, node.body)]
    saved = (*row, *nodes, *_NO_NODES[len(nodes) :])
    return saved if entry.header is None else saved + header_values(entry.header)


def commit_batch(db: Connection, batch: Sequence[Entry], now: int) -> list[Conflict | None]:
    """Write a batch inside the transaction that is open, and answer for each entry."""
    answers: list[Conflict | None] = [None] * len(batch)
    refused: set[str] = set()
    for wave in waves(batch):
        trying = [position for position in wave if batch[position].run_id not in refused]
        done = commit_wave(db, [batch[position] for position in trying], now)
        for position, answer in zip(trying, done, strict=True):
            answers[position] = answer
            if answer is not None:
                refused.add(batch[position].run_id)
        for position in set(wave).difference(trying):
            answers[position] = _look_up_refusal(db, batch[position].run_id, now)
    return answers


def commit_wave(db: Connection, wave: Sequence[Entry], now: int) -> list[Conflict | None]:
    """Write entries of different runs."""
    full = refused_by_queues(db, wave, now) if any(map(is_gated, wave)) else ()
    rows: dict[str, list[tuple[Value, ...]]] = {"noding": [], "consuming": [], "revising": []}
    for entry in wave:
        if entry.run_id in full:
            continue
        view = _view_of(entry)
        rows.setdefault(view, []).append(_row(view, entry, now))
        rows["noding"] += [(*_place(entry), node.address, node.body) for node in entry.nodes]
        rows["consuming"] += [(*_place(entry), mail) for mail in entry.consumed]
        if entry.header is not None and _begins_chapter(entry):
            rows["revising"].append((*_place(entry), entry.header.version))
    before = db.total_changes
    for view in _RECORDING:
        _insert(db, view, rows.get(view, ()))
    changed = db.total_changes - before
    # Whatever goes with a record is written when all records are.
    for view in ("noding", "consuming", "revising"):
        _insert(db, view, rows[view])
    return _answers(db, wave, now, changed)


def _answers(
    db: Connection, wave: Sequence[Entry], now: int, changed: int
) -> list[Conflict | None]:
    if any(map(_is_tagged, wave)):
        return _answers_by_heads(db, wave, now)
    if changed == _CHANGES_PER_ENTRY * len(wave):
        return [None] * len(wave)
    return [_look_up(db, entry, now) for entry in wave]


def _insert(db: Connection, view: str, rows: Sequence[Sequence[Value]]) -> None:
    for begin in range(0, len(rows), ROWS_MAX):
        part = rows[begin : begin + ROWS_MAX]
        width = len(part[0])
        count = rounded_up(len(part))
        values = [value for row in part for value in row]
        values += [None] * (width * (count - len(part)))
        db.execute(_inserting(view, width, count), values)


@cache
def _inserting(view: str, width: int, count: int) -> str:
    marks = ",".join([f"({','.join('?' * width)})"] * count)
    return f"INSERT INTO {view} VALUES {marks}"


def rounded_up(rows: int) -> int:
    """A count of at least ``rows``, out of few.

    SQLite compiles a statement once per text. NULLs match nothing, so filling up with them to one
    of eight sizes per power of two keeps the texts few at the price of a little idle work.
    """
    step = 1 << max(0, rows.bit_length() - 4)
    return -(-rows // step) * step


def _view_of(entry: Entry) -> str:
    if entry.after == 0:
        return "creating"
    if entry.lease != "keep" or _ends(entry.header):
        return "leasing" if entry.header is None else "turning"
    return "appending" if entry.header is None else "showing"


def _row(view: str, entry: Entry, now: int) -> tuple[Value, ...]:
    worker = entry.worker if entry.lease == "take" and not _ends(entry.header) else None
    if view == "creating":
        assert entry.header is not None
        record = (entry.record, worker, now, entry.joins)
        return (*_place(entry), *record, *header_values(entry.header))
    row = _append_row(entry)
    if view == "appending":
        return row
    if view == "showing":
        assert entry.header is not None
        return (*row, *_NO_NODES, *header_values(entry.header))
    leased = (*row, entry.epoch - 1 if entry.lease == "take" else entry.epoch, worker)
    return leased if entry.header is None else leased + header_values(entry.header)


def _append_row(entry: Entry) -> tuple[Value, ...]:
    return (entry.run_id, entry.after, entry.last, entry.epoch, entry.link, entry.record)


def _place(entry: Entry) -> tuple[Value, ...]:
    return (entry.run_id, entry.last, entry.epoch, entry.link)


def _ends(header: Header | None) -> bool:
    return header is not None and header.ended_at is not None


def _look_up(db: Connection, entry: Entry, now: int) -> Conflict | None:
    """Whether the entry is in, now or from before (a repeat), in an epoch that still stands."""
    row = db.execute(
        "SELECT seq, epoch, worker, (SELECT body FROM records WHERE run = runs.id AND seq = ?)"
        " FROM runs WHERE run_id = ?",
        (entry.after + 1, entry.run_id),
    ).fetchone()
    if row is not None:
        seq, epoch, worker, record = row
        others = entry.lease == "take" and worker not in (None, entry.worker)
        same = seq >= entry.last and epoch == entry.epoch and record == entry.record
        if same and not others:
            return None
    return _look_up_refusal(db, entry.run_id, now)


def _look_up_refusal(db: Connection, run_id: str, now: int) -> Conflict:
    for named in NAMED:
        row = db.execute(f"SELECT seq, epoch FROM runs WHERE {named}", (run_id,)).fetchone()
        if row is not None:
            return Conflict(seq=row[0], epoch=row[1])
    for named in NAMED:
        row = db.execute(
            f"SELECT seq FROM tombstones WHERE {named} AND keep_until > ?", (run_id, now)
        ).fetchone()
        if row is not None:
            break
    return Conflict(seq=row[0] if row else 0, epoch=0, gone=row is not None)


def post_letter(db: Connection, letter: Posting, now: int) -> bool:
    """Leave one letter with a single statement; False: it is not new, or its run is over."""
    before = db.total_changes
    row = (letter.run_id, letter.mail_id, now, letter.body)
    db.execute(_inserting("posting", len(row), 1), row)
    return db.total_changes > before


#: Letters in one statement: four parameters each.
_LETTERS_MAX = 500


def post_letters(db: Connection, batch: Sequence[Posting], now: int) -> list[Posted]:
    """Leave these inside the transaction that is open; an answer for each."""
    answers: list[Posted] = []
    for begin in range(0, len(batch), _LETTERS_MAX):
        answers += _post_some(db, batch[begin : begin + _LETTERS_MAX], now)
    return answers


def _post_some(db: Connection, batch: Sequence[Posting], now: int) -> list[Posted]:
    runs = _runs(db, {letter.run_id for letter in batch})
    numbered = [(runs[x.run_id][0], x.mail_id) for x in batch if x.run_id in runs]
    known = _known(db, numbered)
    new: list[tuple[int, Posting]] = []
    answers: list[Posted] = []
    for letter in batch:
        if letter.run_id not in runs:
            answers.append("ended" if _is_gone(db, letter.run_id, now) else "unknown")
            continue
        run, ended_at = runs[letter.run_id]
        if (run, letter.mail_id) in known:
            answers.append("already")
        elif ended_at is not None:
            answers.append("ended")
        else:
            known.add((run, letter.mail_id))
            new.append((run, letter))
            answers.append("posted")
    if new:
        _insert_mail(db, new, now)
    return answers


def _runs(db: Connection, run_ids: set[str]) -> dict[str, tuple[int, int | None]]:
    marks = ",".join("?" * len(run_ids))
    rows = db.execute(
        f"SELECT run_id, id, ended_at FROM runs WHERE run_id IN ({marks})", sorted(run_ids)
    ).fetchall()
    return {run_id: (run, ended_at) for run_id, run, ended_at in rows}


def _known(db: Connection, letters: Sequence[tuple[int, str]]) -> set[tuple[int, str]]:
    """Which of these were posted ever before."""
    if not letters:
        return set()
    marks = ",".join("(?,?)" for _ in letters)
    values = [value for letter in letters for value in letter]
    return set(
        db.execute(
            f"SELECT run, mail_id FROM mail WHERE (run, mail_id) IN (VALUES {marks})", values
        ).fetchall()
    )


def _insert_mail(db: Connection, new: Sequence[tuple[int, Posting]], now: int) -> None:
    values: list[Value] = []
    for run, letter in new:
        values += (run, letter.mail_id, now, letter.body)
    marks = ",".join("(?,?,?,?)" for _ in new)
    db.execute(f"INSERT INTO mail (run, mail_id, posted_at, body) VALUES {marks}", values)
    counts = Counter(run for run, _ in new)
    for count in set(counts.values()):
        runs = [run for run in counts if counts[run] == count]
        here = ",".join("?" * len(runs))
        db.execute(f"UPDATE runs SET posted = posted + ? WHERE id IN ({here})", (count, *runs))


def _is_gone(db: Connection, run_id: str, now: int) -> bool:
    row = db.execute(
        "SELECT 1 FROM tombstones WHERE run_id = ? AND keep_until > ?", (run_id, now)
    ).fetchone()
    return row is not None


def waiting_mail(db: Connection, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mail]]:
    """What was posted to these and not consumed."""
    found: dict[str, list[Mail]] = {run_id: [] for run_id in run_ids}
    for begin in range(0, len(run_ids), _LETTERS_MAX):
        part = run_ids[begin : begin + _LETTERS_MAX]
        marks = ",".join("?" * len(part))
        rows = db.execute(
            "SELECT run_id, mail_id, mail.body, posted_at FROM runs JOIN mail ON run = runs.id"
            f" WHERE run_id IN ({marks}) AND mail.body IS NOT NULL ORDER BY mail.id",
            part,
        ).fetchall()
        for run_id, mail_id, body, at in rows:
            found[run_id].append(Mail(mail_id=mail_id, body=body, posted_at=at))
    return found
