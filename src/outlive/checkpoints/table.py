"""The table ``snapshots`` of the document, for SQL of one's own: a copy of what counts.

It is written in the transaction of each checkpoint, and read by nobody here: the journal is the
truth. Its columns are the document's, the state as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from outlive.checkpoints.codec import decode
from outlive.checkpoints.snapshot import created_at, id_of, text_of
from outlive.errors import UsageError, ValueRefused
from outlive.journal.restored import is_stored
from outlive.journal.shared import SharedJournal
from outlive.model.checkpoint_events import (
    CheckpointsBegan,
    CheckpointsCleared,
    RolledBack,
    SnapshotSaved,
)
from outlive.model.checkpoints import Checkpoints, Saved
from outlive.store import Statement, Store, Tabling

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS snapshots (
    snapshot_id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    step_id TEXT NOT NULL,
    created_at TEXT NOT NULL,
    state TEXT NOT NULL,
    metadata TEXT,
    UNIQUE(run_id, step_id)
)""",
    "CREATE INDEX IF NOT EXISTS idx_snapshots_run ON snapshots(run_id)",
    "CREATE INDEX IF NOT EXISTS idx_snapshots_created ON snapshots(created_at)",
)
_PUT = "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?)"
_DROP = "DELETE FROM snapshots WHERE run_id = ? AND step_id = ?"
_CLEAR = "DELETE FROM snapshots WHERE run_id = ?"


async def make(store: Store) -> None:
    """Have the table in a store.

    Raises:
        UsageError: the store is sealed, or can't have one.
    """
    if not isinstance(store, Tabling):
        raise UsageError(
            "table=True needs a SQLite file that is not sealed: states would stand in the table "
            "as plain JSON; leave it out, or open the storage without a key"
        )
    await store.commit_with(None, [(sql, ()) for sql in SCHEMA])


async def rows(
    journal: SharedJournal[Checkpoints], fold: Checkpoints, events: Sequence[Any]
) -> list[Statement]:
    """What becomes of the table when these happen."""
    began, found = fold.began, list[Statement]()
    for seq, event in enumerate(events, fold.seq + 1):
        match event:
            case CheckpointsBegan():
                began = event
            case SnapshotSaved():
                assert began is not None, "a journal begins with that"
                found.append(await _put(journal, began, Saved(seq, event)))
            case RolledBack():
                assert began is not None, "a journal begins with that"
                found += await _cut(journal, began, fold, event.seq)
            case CheckpointsCleared():
                assert began is not None, "a journal begins with that"
                found.append((_CLEAR, (began.run_id,)))
            case _:
                pass
    return found


async def _cut(
    journal: SharedJournal[Checkpoints], began: CheckpointsBegan, fold: Checkpoints, seq: int
) -> list[Statement]:
    """Each step has what counted behind that seq, or nothing."""
    kept = {saved.event.step: saved for saved in fold.line if saved.seq <= seq}
    gone = [saved for saved in fold.current if saved.seq > seq]
    found: list[Statement] = [(_DROP, (began.run_id, saved.event.step)) for saved in gone]
    steps = [saved.event.step for saved in gone if saved.event.step in kept]
    return found + [await _put(journal, began, kept[step]) for step in steps]


async def _put(
    journal: SharedJournal[Checkpoints], began: CheckpointsBegan, saved: Saved
) -> Statement:
    state, metadata = [
        _json(began, saved, await _whole(journal, saved.seq, raw))
        for raw in (saved.event.state, saved.event.metadata)
    ]
    when = text_of(created_at(began, saved))
    place = (id_of(began, saved), began.run_id, saved.event.step, when)
    return _PUT, (*place, state, metadata)


async def _whole(journal: SharedJournal[Checkpoints], seq: int, raw: bytes) -> bytes:
    return (await journal.values([(seq, raw)]))[0] if is_stored(raw) else raw


def _json(began: CheckpointsBegan, saved: Saved, raw: bytes) -> str:
    value: Any = decode(raw, began.run_id, saved.seq)
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueRefused(
            f"the table `snapshots` has states as JSON, and this one can't be: {error}"
        ) from error
