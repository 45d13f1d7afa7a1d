"""Mail in SQLite: posted and fetched for many runs at once, with a handful of statements.

Python lets go of its global lock at every statement, and beside a busy loop it is long in getting
it back; so neither is a loop over letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from outlive.store import Mail, Posted, Posting
from outlive.stores.sqlite_connections import Connection, Value

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
        _insert(db, new, now)
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


def _insert(db: Connection, new: Sequence[tuple[int, Posting]], now: int) -> None:
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
