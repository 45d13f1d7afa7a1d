"""Journals copied into another store, record by record, as they were written.

Links, seqs and epochs stay, so a copy verifies as its original does. Copying again goes on where
an earlier try ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outlive.errors import RunIdTaken, UsageError
from outlive.journal.archive import Archived
from outlive.journal.record import unpack_unlinked
from outlive.store import Entry, Store

#: Records that travel in one commit.
RECORDS_AT_ONCE = 500
_COPIER = "copied"


class StoreArchive:
    """Another store, for runs that are about to go."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def keep(self, runs: Sequence[Archived]) -> None:
        for run in runs:
            await copy_run(self._store, run)

    async def close(self) -> None:
        await self._store.close()


async def copy_run(store: Store, run: Archived) -> bool:
    """Put an ended run into a store; False: it is there already.

    Raises:
        RunIdTaken: another run has its id there, or had it not long ago.
        UsageError: its first records are gone, so it can only be looked at where it is.
    """
    run_id = run.head.run_id
    if not run.records or run.records[0].seq != 1:
        raise UsageError(f"run {run_id} begins with a later chapter; it can't be copied")
    there = await store.read(run_id, 1 << 62)
    after = 0 if there is None else there.head.seq
    entries = [entry for entry in _entries(run) if entry.after >= after]
    for begin in range(0, len(entries), RECORDS_AT_ONCE):
        for conflict in await store.commit(entries[begin : begin + RECORDS_AT_ONCE]):
            if conflict is not None:
                why = "it belonged to a run that was deleted not long ago"
                raise RunIdTaken(run_id, why if conflict.gone else "it is another run")
    found = await store.read(run_id, 1 << 62)
    if found is None or (found.head.seq, found.head.link) != (run.head.seq, run.head.link):
        raise RunIdTaken(run_id, "it is another run")
    return bool(entries)


def _entries(run: Archived) -> Iterator[Entry]:
    run_id, epoch = run.head.run_id, 0
    ends = [record.seq - 1 for record in run.records[1:]] + [run.head.seq]
    for record, last in zip(run.records, ends, strict=True):
        envelope = unpack_unlinked(run_id, record.body, record.seq)
        takes, epoch = envelope.epoch > epoch, envelope.epoch
        is_edge = record.seq == 1 or last == run.head.seq
        yield Entry(
            run_id=run_id,
            after=record.seq - 1,
            last=last,
            epoch=epoch,
            record=record.body,
            link=envelope.link,
            # It has ended from the first record on: nobody drives it meanwhile.
            header=run.header if is_edge else None,
            lease="take" if takes else "keep",
            worker=_COPIER if takes else None,
            nodes=tuple(run.nodes) if record.seq == 1 else (),
        )
