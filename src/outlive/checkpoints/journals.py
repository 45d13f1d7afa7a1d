"""The journals of checkpoints in one storage: reading, appending, and their events by name.

The journal is the truth: what memory holds of it is checked by every commit and read on before
every answer.

Events have two names where the document has two: a saved snapshot is ``run.snapshot.saved`` and
``checkpoint.saved``, a restored one ``run.resume`` and ``checkpoint.restored``.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Lock
from typing import Any, TypeVar, assert_never

import msgspec
from msgspec.structs import replace

from outlive.checkpoints import backends as table
from outlive.checkpoints import decide as deciding
from outlive.checkpoints.backends import StorageBackend
from outlive.checkpoints.schema import NOTHING, decode
from outlive.checkpoints.snapshot import RunSnapshot, created_at, id_of, instant_of, text_of
from outlive.errors import CorruptRecord
from outlive.journal.codec.restore import read_values
from outlive.journal.group import Append, GroupCommit
from outlive.journal.lane import Lane
from outlive.journal.reader import read_events
from outlive.journal.shared import SharedJournal
from outlive.model.checkpoints import (
    Checkpoints,
    CheckpointsBegan,
    CheckpointsCleared,
    CheckpointsEnded,
    OfCheckpoints,
    Origin,
    RolledBack,
    Saved,
    SnapshotRestored,
    SnapshotSaved,
)
from outlive.model.ids import checkpoint_journal
from outlive.stores.seam import Store

#: Metadata keys that may hold the agent's name.
_AGENT = ("agent_slug", "agent", "slug", "agent_id")
#: Fields of an event that log lines have: ids, no other text of a user.
_LOGGED = (
    "step_id", "snapshot_id", "state_size_bytes", "created_at", "restored_at", "started_at",
    "status", "count", "at",
)  # fmt: skip


def told(events: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """The events of a whole journal, each under its names."""
    if not events:
        return
    first = next((seq for seq, e in enumerate(events, 1) if isinstance(e, SnapshotSaved)), 0)
    teller = _Teller(events[0])
    if first:
        teller.said = decode(events[first - 1].metadata, teller.began.run_id, first)
    for seq, event in enumerate(events, 1):
        for name, has in teller.tell(seq, event):
            yield {"event_type": name, "run_id": teller.began.run_id, "seq": seq, **has}


def logged(fold: Checkpoints, events: Sequence[Any]) -> list[str]:
    """The newest events of a run's checkpoints, a line of JSON each, without users' values."""
    assert fold.began is not None, "something happened"
    teller, first, lines = _Teller(fold.began), fold.seq - len(events) + 1, []
    teller.saved.update({each.seq: each for each in fold.saved})
    for seq, event in enumerate(events, first):
        name, has = teller.tell(seq, event)[-1]
        facts = {key: fact for key, fact in has.items() if key in _LOGGED}
        line = {"event_type": name, "run_id": fold.began.run_id, "seq": seq, **facts}
        lines.append(msgspec.json.encode(line).decode())
    return lines


class _Teller:
    def __init__(self, began: CheckpointsBegan) -> None:
        self.began = began
        #: Metadata of the first snapshot, which may name the agent.
        self.said: dict[str, Any] = {}
        #: Snapshots by seq.
        self.saved: dict[int, Saved] = {}

    def tell(self, seq: int, event: OfCheckpoints) -> list[tuple[str, dict[str, Any]]]:
        match event:
            case CheckpointsBegan():
                return [("run.started", self._started(event))]
            case SnapshotSaved():
                self.saved[seq] = Saved(seq, event)
                return self._saving(seq, event)
            case SnapshotRestored():
                return self._restoring(event)
            case RolledBack():
                has = self._place(event.seq, event.step) | {"at": self._time(event.at)}
                return [("checkpoint.rolled_back", has | {"why": event.why})]
            case CheckpointsEnded():
                has = {"status": event.status, "error": event.error, "at": self._time(event.at)}
                return [("run.ended", has)]
            case CheckpointsCleared():
                return [("run.cleared", {"count": event.count, "at": self._time(event.at)})]
            case _:
                assert_never(event)

    def _started(self, event: CheckpointsBegan) -> dict[str, Any]:
        metadata = decode(event.metadata, event.run_id, 1)
        places = [said.get(key) for said in (metadata, self.said) for key in _AGENT]
        names = [name for name in places if isinstance(name, str)]
        origin = event.origin
        return {
            "agent_slug": names[0] if names else "unknown",
            "metadata": metadata,
            "started_at": self._time(0),
            "forked_from": None if origin is None else origin.run_id,
        }

    def _saving(self, seq: int, event: SnapshotSaved) -> list[tuple[str, dict[str, Any]]]:
        place = self._place(seq, event.step)
        when = event.created_at or self._time(event.at)
        metadata = decode(event.metadata, self.began.run_id, seq)
        message = f"Saved snapshot for step {event.step}"
        saved = {**place, "state_size_bytes": event.size, "created_at": when}
        run = {**place, "metadata": metadata, "message": message, "created_at": when}
        return [("run.snapshot.saved", run), ("checkpoint.saved", saved)]

    def _restoring(self, event: SnapshotRestored) -> list[tuple[str, dict[str, Any]]]:
        when = self._time(event.at)
        if not event.seq:
            return [("run.taken", {"at": when, "holder": event.holder})]
        place = self._place(event.seq, event.step)
        message = f"Resumed run {self.began.run_id} from step {event.step}"
        run = {**place, "message": message, "restored_at": when}
        return [("run.resume", run), ("checkpoint.restored", {**place, "restored_at": when})]

    def _place(self, seq: int, step: str) -> dict[str, Any]:
        saved = self.saved.get(seq)
        return {"step_id": step, "snapshot_id": "" if saved is None else id_of(self.began, saved)}

    def _time(self, at: int) -> str:
        return text_of(instant_of(self.began.started_at + at))


T = TypeVar("T")
logger = logging.getLogger("outlive.checkpoints")

#: Journals that are kept in memory; others are read again when they are asked for.
JOURNALS_MAX = 256
#: The number of times that a run may be deleted while it is read.
_READS_MAX = 5
_SAID = (CheckpointsBegan, SnapshotSaved)


class Journals:
    """One journal per run, in one storage."""

    def __init__(self, place: StorageBackend) -> None:
        self.place = place
        self._journals: OrderedDict[str, SharedJournal[Checkpoints]] = OrderedDict()
        self._lock = Lock()
        self._group: GroupCommit | None = None

    def run(
        self,
        run_id: str,
        *,
        holder: str = "",
        takes: bool = False,
        metadata: bytes = NOTHING,
        now: int | None = None,
    ) -> deciding.CheckpointOwner:
        """The owner of the checkpoints, for one decision."""
        ports = self.place.ports
        return deciding.CheckpointOwner(
            run_id=run_id,
            now=ports.clock.now_ms() if now is None else now,
            seed=ports.entropy(8),
            metadata=metadata,
            holder=holder,
            takes=takes,
        )

    async def append(
        self, run_id: str, decide: deciding.Decision, answer: Callable[[Checkpoints], T]
    ) -> T:
        """Append what ``decide`` returns, durably, together with what others append just now."""
        store, lane = await self.place.opened()
        journal = self._journal(store, run_id)
        lines: list[str] = []
        decide, answer = _witnessed(decide, answer, lines)
        if journal.rows is not None:
            found = await lane(journal.append(decide, answer))
        else:
            append = Append(
                (journal,), lambda folds: [decide(folds[0])], lambda folds: answer(folds[0])
            )
            found = await self._group_for(store, lane).append(append)
        _log(lines)
        return found

    def _group_for(self, store: Store, lane: Lane) -> GroupCommit:
        group = self._group
        if group is None or group.store is not store:  # it was closed and opened again
            group = self._group = GroupCommit(store, lane, self.place.ports.clock)
        return group

    async def look(self, run_id: str, view: Callable[[Checkpoints], T]) -> T:
        """Return what this view makes of a run's checkpoints as they are now."""
        return await self.place.call(lambda store: self._journal(store, run_id).look(view))

    async def snapshots(
        self,
        run_id: str,
        choose: Callable[[Checkpoints], Sequence[Saved]],
        *,
        states: bool = True,
    ) -> list[RunSnapshot]:
        """These snapshots of a run, with their states or without."""

        async def work(store: Store) -> list[RunSnapshot]:
            return await _read(self._journal(store, run_id), choose, states=states)

        return await self.place.call(work)

    async def events(self, run_id: str) -> list[Any]:
        """All events of a run's checkpoints, with metadata, without the states."""
        name = checkpoint_journal(run_id)

        async def work(store: Store) -> list[Any]:
            reading = await store.read(name)
            events: list[Any] = [] if reading is None else read_events(reading, restored=False)
            places = [(seq, e.metadata) for seq, e in enumerate(events, 1) if isinstance(e, _SAID)]
            family = "" if reading is None else reading.header.family
            said = iter(await read_values(store, family, name, places))
            return [replace(e, metadata=next(said)) if isinstance(e, _SAID) else e for e in events]

        return await self.place.call(work)

    async def clear(self, run_id: str, decide: deciding.Decision) -> int:
        """Delete all snapshots of a run and its journal; return their number."""

        async def work(store: Store) -> int:
            journal = self._journal(store, run_id)
            lines: list[str] = []
            count = await journal.append(*_witnessed(decide, lambda fold: fold.cleared, lines))
            if count is None:
                return 0
            await journal.delete()
            _log(lines)
            return count

        return await self.place.call(work)

    async def fork(self, run_id: str, fork: deciding.CheckpointOwner, step: str | None) -> None:
        """Begin a run with the snapshots of another."""

        async def work(store: Store) -> None:
            source, target = self._journal(store, run_id), self._journal(store, fork.run_id)
            origin, family = await source.look(lambda fold: _origin(fold, run_id, step))
            # The fork joins the family first: then its shared states can't be deleted. Then it is
            # filled with the snapshots that still exist.
            decide = deciding.begin_fork(fork, origin, family)
            begun = await target.append(decide, lambda fold: fold.began)
            self.place.ports.failpoint("checkpoints.fork.begun")
            wanted = origin if begun is None else begun.origin or origin
            snapshots = await source.look(lambda fold: deciding.shared(fold, wanted))
            await target.append(deciding.fill_fork(fork, snapshots), lambda fold: None)

        await self.place.call(work)

    def _journal(self, store: Store, run_id: str) -> SharedJournal[Checkpoints]:
        name = checkpoint_journal(run_id)
        with self._lock:
            journal = self._journals.pop(name, None)
            if journal is None or journal.store is not store:  # it was closed and opened again
                rows = table.rows if self.place.has_table else None
                journal = SharedJournal(store, name, Checkpoints, self.place.ports.entropy, rows)
            self._journals[name] = journal
            while len(self._journals) > JOURNALS_MAX:
                self._journals.popitem(last=False)
            return journal


def _witnessed(
    decide: deciding.Decision, answer: Callable[[Checkpoints], T], lines: list[str]
) -> tuple[deciding.Decision, Callable[[Checkpoints], T]]:
    """Wrap a decision: what it appends is added to these lines, if INFO is logged."""
    if not logger.isEnabledFor(logging.INFO):
        return decide, answer
    decided: Sequence[Any] = ()

    def noted(fold: Checkpoints) -> Sequence[Any]:
        nonlocal decided
        decided = ()
        decided = decide(fold)
        return decided

    def answering(fold: Checkpoints) -> T:
        lines[:] = logged(fold, decided) if decided else ()
        return answer(fold)

    return noted, answering


def _log(lines: Sequence[str]) -> None:
    for line in lines:
        logger.info("%s", line)


async def _read(
    journal: SharedJournal[Checkpoints],
    choose: Callable[[Checkpoints], Sequence[Saved]],
    *,
    states: bool,
) -> list[RunSnapshot]:
    """Read snapshots; again, if the run is deleted meanwhile."""
    for attempt in range(1, _READS_MAX + 1):
        began, found = await journal.look(lambda fold: (fold.began, list(choose(fold))))
        if began is None or not found:
            return []
        places = [(s.seq, s.event.metadata) for s in found]
        places += [(s.seq, s.event.state if states else NOTHING) for s in found]
        try:
            raws = await journal.values(places)
        except CorruptRecord:
            if attempt == _READS_MAX or began == await journal.look(lambda fold: fold.began):
                raise
            continue
        count = len(found)
        return [
            snapshot_of(began, saved, state, metadata)
            for saved, state, metadata in zip(found, raws[count:], raws[:count], strict=True)
        ]
    raise AssertionError("unreachable")


def snapshot_of(
    began: CheckpointsBegan, saved: Saved, state: bytes, metadata: bytes
) -> RunSnapshot:
    """A snapshot from its event and its restored values."""
    return RunSnapshot.unread(
        {
            "state": partial(decode, state, began.run_id, saved.seq),
            "snapshot_id": partial(id_of, began, saved),
            "created_at": partial(created_at, began, saved),
        },
        run_id=began.run_id,
        step_id=saved.event.step,
        metadata={} if metadata == NOTHING else decode(metadata, began.run_id, saved.seq),
        seq=saved.seq,
        schema_version=saved.event.schema,
    )


def _origin(fold: Checkpoints, run_id: str, step: str | None) -> tuple[Origin, str]:
    """The origin of a new fork, and the family that it joins."""
    upto = deciding.get_step(fold, run_id, step)
    assert fold.began is not None, "it has a snapshot"
    return Origin(run_id, upto.seq), fold.began.family
