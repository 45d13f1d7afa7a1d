"""Snapshots of runs in any store: one journal per run, one commit per snapshot.

States are copied in when they are saved and out when they are read. What did not change since the
last snapshot is not stored again. The latest snapshot is the last one in the journal, never the one
with the newest time.

Cleaning up never touches a run that is under way, unless the caller names the age since its last
save: that age is the only sign that the process that held the run is dead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from msgspec.structs import replace

from outlive.app.app import App
from outlive.checkpoints import decide as deciding
from outlive.checkpoints.backends import StorageBackend
from outlive.checkpoints.journals import Journals, snapshot_of, told
from outlive.checkpoints.schema import NOTHING, Schema, decode, encode, json_size, version_in
from outlive.checkpoints.snapshot import (
    RunSnapshot,
    SnapshotInfo,
    created_at,
    id_of,
    instant_of,
    ms_of,
    text_of,
)
from outlive.errors import UsageError, ValueRefused
from outlive.journal.reader import read_first
from outlive.model.checkpoints import Checkpoints, CheckpointsBegan, EndStatus, Saved, SnapshotSaved
from outlive.model.ids import CHECKPOINTS
from outlive.stores.seam import Store
from outlive.stores.types import PAGE_MAX, Found, Query


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointedRun:
    """A summary of a run that has checkpoints."""

    run_id: str
    #: "running", "succeeded", "failed" or "canceled".
    status: str
    #: The time of its first checkpoint.
    started_at: datetime
    #: The time at which its owner ended it; None: it goes on.
    ended_at: datetime | None


async def find_journals(
    store: Store, status: str | None = None, ended_by: int | None = None
) -> AsyncIterator[Found]:
    """The journals of checkpoints, in the order in which they began."""
    after = None
    while True:
        query = Query(prefix=CHECKPOINTS, status=status, ended_by=ended_by)
        page = await store.find(query, after, PAGE_MAX)
        for found in page.items:
            yield found
        after = page.next
        if after is None:
            return


async def find_runs(store: Store, status: str | None) -> list[CheckpointedRun]:
    """All runs that have checkpoints, or those of a status."""
    return [
        await run_of(store, found)
        async for found in find_journals(store, status)
        if found.header.status != "cleared"
    ]


async def run_of(store: Store, found: Found) -> CheckpointedRun:
    """A checkpointed run, from its header."""
    header = found.header
    return CheckpointedRun(
        run_id=await run_id_of(store, found.head.run_id),
        status=header.status,
        started_at=instant_of(header.started_at),
        ended_at=None if header.ended_at is None else instant_of(header.ended_at),
    )


async def run_id_of(store: Store, journal: str) -> str:
    """The run of a journal; a long id is read from the journal itself."""
    if journal.startswith(f"{CHECKPOINTS}/"):
        return journal[len(CHECKPOINTS) + 1 :]
    reading = await store.read(journal, limit=1)
    first = None if reading is None else read_first(reading, restored=False)
    return first.run_id if isinstance(first, CheckpointsBegan) else journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """The ages at which checkpoints may be deleted, in ms; None: they stay."""

    succeeded: int | None = None
    failed: int | None = None
    canceled: int | None = None
    #: Of a run that was never ended: since it last saved.
    unfinished: int | None = None

    def is_over(self, fold: Checkpoints, now: int) -> bool:
        """Whether a run's checkpoints may be deleted."""
        brief = fold.brief
        if brief is None:
            return False
        if brief.status == "cleared":
            return True
        if brief.ended_at is None:
            since, age = brief.started_at + fold.at, self.unfinished
        else:
            since, age = brief.ended_at, getattr(self, brief.status)
        return age is not None and since + age <= now


async def candidates(store: Store, age: Age, now: int) -> list[str]:
    """Runs whose checkpoints may be old enough; the deletion checks again."""
    found = [each async for each in find_journals(store, ended_by=now)]
    if age.unfinished is not None:
        found += [each async for each in find_journals(store, status="running")]
    return [await run_id_of(store, each.head.run_id) for each in found]


class SnapshotStore:
    """Saves and finds snapshots: in the default store, a storage, a URL, or an app's store."""

    def __init__(self, storage_backend: StorageBackend | App | Store | str | None = None) -> None:
        if isinstance(storage_backend, StorageBackend):
            place, self._closes = storage_backend, False
        elif storage_backend is None or isinstance(storage_backend, str):
            place, self._closes = StorageBackend(storage_backend), True
        else:
            store: Any = getattr(storage_backend, "store", storage_backend)
            if not callable(getattr(store, "commit", None)):
                raise UsageError(
                    f"{storage_backend!r} is not a storage; give a store's URL, a StorageBackend "
                    "or an app (snapshots that are files are brought here by import_snapshots)"
                )
            place, self._closes = StorageBackend.of(store), True
        self._place, self._journals = place, Journals(place)

    # as in the document

    async def save_snapshot(
        self,
        run_id: str,
        step_id: str,
        state: dict[str, Any],
        metadata: dict[str, Any] | None = None,
    ) -> RunSnapshot:
        """Save the state as it is now; durable when this returns. A second save replaces it.

        Raises:
            ValueRefused: a part of it can't be restored exactly; the path says which.
        """
        draft = draft_of(step_id, state, metadata, schema=version_in(state))
        return await self.save(run_id, draft)

    async def get_latest_snapshot(self, run_id: str) -> RunSnapshot | None:
        """The snapshot that was saved last; None: there is none."""
        return await self._one(run_id, lambda fold: fold.latest)

    async def get_snapshot_by_step(self, run_id: str, step_id: str) -> RunSnapshot | None:
        """The snapshot of a step; None: there is none."""
        return await self._one(run_id, lambda fold: fold.at_step(step_id))

    async def list_snapshots(self, run_id: str) -> list[RunSnapshot]:
        """The snapshots, one per step, in the order in which they were saved."""
        return await self._journals.snapshots(run_id, lambda fold: fold.current)

    async def delete_snapshots(self, run_id: str) -> int:
        """Delete all snapshots of a run; return their number.

        Raises:
            LeaseLost: somebody holds the run; the message says how to take it.
        """
        return await self.clear(run_id)

    async def ensure_run_initialized(
        self, run_id: str, metadata: dict[str, Any] | None = None
    ) -> None:
        """Begin the run's checkpoints, unless they have begun."""
        said = encode({} if metadata is None else metadata, "metadata")
        run = self._journals.run(run_id, metadata=said)
        await self._journals.append(run_id, deciding.begin(run), lambda fold: None)

    # beyond it

    async def get_snapshot(self, run_id: str, seq: int) -> RunSnapshot | None:
        """Any snapshot that was ever saved, by its seq, even if it no longer counts."""
        return await self._one(run_id, lambda fold: fold.at_seq(seq))

    async def history(self, run_id: str) -> list[SnapshotInfo]:
        """All snapshots that were ever saved, the last one last, without the states."""

        def view(fold: Checkpoints) -> list[SnapshotInfo]:
            began, current = fold.began, {saved.seq for saved in fold.current}
            return [_info(began, saved, current) for saved in fold.saved if began is not None]

        return await self._journals.look(run_id, view)

    async def status(self, run_id: str) -> str | None:
        """The status that its owner gave: "running", "succeeded", "failed" or "canceled".

        None: it has no checkpoints.
        """
        found = await self._journals.look(run_id, lambda fold: fold.brief)
        return None if found is None or found.status == "cleared" else found.status

    async def runs(self, status: str | None = None) -> list[CheckpointedRun]:
        """The runs that have checkpoints, oldest first; or those of a status.

        Raises:
            UsageError: there is no such status.
        """
        if status is not None:
            deciding.check_status(status, deciding.STATUSES)
        return await self._place.call(lambda store: find_runs(store, status))

    async def events(self, run_id: str, after: int = 0) -> AsyncIterator[dict[str, Any]]:
        """Events of a run's checkpoints after a seq, by name, in order.

        ``run.snapshot.saved`` and ``checkpoint.saved``, ``run.resume`` and ``checkpoint.restored``:
        the journal itself, so there is no state without its event and no event without its state.
        """
        for each in told(await self._journals.events(run_id)):
            if each["seq"] > after:
                yield each

    async def close(self) -> None:
        """Close the storage, if it was opened here."""
        if self._closes:
            await self._place.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    # for runners

    @property
    def journals(self) -> Journals:
        """The journals of this store, for code that decides itself what is appended."""
        return self._journals

    async def save(
        self, run_id: str, draft: SnapshotSaved, holder: str = "", *, takes: bool = False
    ) -> RunSnapshot:
        """Append a snapshot. With a holder: only as long as nobody else took the run.

        With ``takes`` the holder takes a run that nobody has.
        """
        run = self._journals.run(run_id, holder=holder, takes=takes)
        return await self._save(run, draft)

    async def bring(self, snapshot: RunSnapshot) -> RunSnapshot:
        """Append a snapshot from elsewhere, with its id and its time."""
        run = self._journals.run(snapshot.run_id, now=ms_of(snapshot.created_at))
        return await self._save(run, draft_again(snapshot))

    async def _save(self, run: deciding.CheckpointOwner, draft: SnapshotSaved) -> RunSnapshot:
        decide = deciding.save(run, draft)
        began, saved = await self._journals.append(run.run_id, decide, _began_and_latest)
        return snapshot_of(began, saved, draft.state, draft.metadata)

    async def restore(
        self, run_id: str, step: str | None = None, *, holder: str = "", takes: bool = False
    ) -> tuple[RunSnapshot, str] | None:
        """Continue from a snapshot, and record that: return it and its schema; None: there is none.

        With ``takes`` the holder has the run from then on, even if there is no snapshot.
        """
        run = self._journals.run(run_id, holder=holder)
        decide = deciding.restore(run, step, takes=takes)
        found = await self._journals.append(
            run_id, decide, lambda fold: deciding.chosen(fold, step)
        )
        snapshot = None if found is None else await self._one(run_id, lambda fold: found)
        return None if found is None or snapshot is None else (snapshot, found.event.schema)

    async def metadata(self, run_id: str) -> dict[str, dict[str, Any]]:
        """The metadata of each step that counts."""
        found = await self._journals.snapshots(run_id, lambda fold: fold.current, states=False)
        return {each.step_id: each.metadata for each in found}

    async def roll_back(
        self,
        run_id: str,
        step: str,
        *,
        why: str | BaseException = "",
        holder: str = "",
        takes: bool = False,
    ) -> tuple[RunSnapshot, str]:
        """Roll back to a step: later snapshots no longer count. Return its snapshot and schema."""
        run = self._journals.run(run_id, holder=holder, takes=takes)
        decide = deciding.roll_back(run, step, why)
        found = await self._journals.append(run_id, decide, lambda fold: fold.latest)
        snapshot = await self._one(run_id, lambda fold: found)
        assert found is not None, "what is gone back to is there"
        assert snapshot is not None, "what is gone back to is there"
        return snapshot, found.event.schema

    async def end(
        self,
        run_id: str,
        status: EndStatus,
        error: str | BaseException = "",
        *,
        holder: str = "",
        takes: bool = False,
    ) -> None:
        """End the run, until somebody continues it."""
        run = self._journals.run(run_id, holder=holder, takes=takes)
        decide = deciding.end(run, status, error)
        await self._journals.append(run_id, decide, lambda fold: None)

    async def let_go(self, run_id: str, holder: str) -> None:
        """Release the run, unless somebody else has it by now."""
        decide = deciding.let_go(self._journals.run(run_id, holder=holder))
        await self._journals.append(run_id, decide, lambda fold: None)

    async def clear(
        self,
        run_id: str,
        *,
        holder: str = "",
        is_over: Callable[[Checkpoints], bool] | None = None,
    ) -> int:
        """Delete all snapshots of a run; return their number.

        With ``is_over`` only if it returns True, whoever holds the run.
        """
        run = self._journals.run(run_id, holder=holder)
        return await self._journals.clear(run_id, deciding.clear(run, is_over))

    async def clear_old(self, age: Age) -> int:
        """Delete the checkpoints of old ended runs; return the number of snapshots."""
        await self._place.opened()  # its clock counts
        now = self._place.ports.clock.now_ms()
        runs = await self._place.call(lambda store: candidates(store, age, now))
        count = 0
        for run_id in runs:
            count += await self.clear(run_id, is_over=lambda fold: age.is_over(fold, now))
        return count

    async def find(self, run_id: str, step: str | None = None) -> tuple[RunSnapshot, str] | None:
        """The latest snapshot, or that of a step, and its schema; None: there is none."""
        found = await self._journals.look(run_id, lambda fold: deciding.chosen(fold, step))
        snapshot = None if found is None else await self._one(run_id, lambda fold: found)
        return None if found is None or snapshot is None else (snapshot, found.event.schema)

    async def check(self, schema: Schema, run_id: str, step: str | None = None) -> None:
        """Check that code of this schema can read the snapshot that it would continue from.

        Raises:
            WrongVersion: its schema is another, and no upcaster converts it.
        """
        found = None if schema.reads_all else await self.find(run_id, step)
        if found is not None:
            schema.read(found[0].state, found[1], found[0].where)

    async def fork(self, run_id: str, fork_id: str, step: str | None = None) -> RunSnapshot:
        """Make a run with the checkpoints of this one up to a step; states are shared.

        Raises:
            RunIdTaken: that run has checkpoints of its own.
        """
        await self._journals.fork(run_id, self._journals.run(fork_id), step)
        found = await self.get_latest_snapshot(fork_id)
        assert found is not None, "it was just made"
        return found

    async def _one(
        self, run_id: str, choose: Callable[[Checkpoints], Saved | None]
    ) -> RunSnapshot | None:
        def some(fold: Checkpoints) -> list[Saved]:
            saved = choose(fold)
            return [] if saved is None else [saved]

        found = await self._journals.snapshots(run_id, some)
        return found[0] if found else None


def draft_of(
    step_id: str,
    state: dict[str, Any],
    metadata: Mapping[str, Any] | None = None,
    *,
    schema: str = "",
) -> SnapshotSaved:
    """A snapshot to be saved: the state as it is at this moment."""
    raw = encode(state, "a state")
    return SnapshotSaved(
        at=0,
        step=deciding.check_step(step_id),
        state=raw,
        metadata=NOTHING if metadata is None else encode(metadata_of(metadata), "metadata"),
        size=json_size(state, raw),
        schema=schema,
    )


def draft_again(snapshot: RunSnapshot) -> SnapshotSaved:
    """A snapshot to be saved with its original id, time and version."""
    version = snapshot.schema_version or version_in(snapshot.state)
    draft = draft_of(snapshot.step_id, snapshot.state, snapshot.metadata, schema=version)
    return replace(draft, snapshot_id=snapshot.snapshot_id, created_at=text_of(snapshot.created_at))


def metadata_of(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Check metadata.

    Raises:
        ValueRefused: it is not a dict.
    """
    if given is not None and not isinstance(given, Mapping):
        raise ValueRefused(f"metadata is a dict, not {type(given).__name__}")
    return dict(given or {})


def snapshots_of(given: object, name: str) -> SnapshotStore:
    """The store that an argument means: a store itself, or that of a runner."""
    found = given if isinstance(given, SnapshotStore) else getattr(given, "store", None)
    if not isinstance(found, SnapshotStore):
        remedy = f"write SnapshotStore({given!r})" if isinstance(given, str) else "give one"
        raise UsageError(f"{name} is a SnapshotStore or a runner, not {given!r}; {remedy}")
    return found


def unsaved(run_id: str, draft: SnapshotSaved, now: int) -> RunSnapshot:
    """A snapshot that was not saved, for runners that are switched off."""
    return RunSnapshot(
        snapshot_id="",
        run_id=run_id,
        step_id=draft.step,
        created_at=instant_of(now),
        state=decode(draft.state, run_id, 0),
        metadata=decode(draft.metadata, run_id, 0),
        schema_version=draft.schema,
    )


def _began_and_latest(fold: Checkpoints) -> tuple[CheckpointsBegan, Saved]:
    assert fold.began is not None, "something was just saved"
    assert fold.latest is not None, "something was just saved"
    return fold.began, fold.latest


def _info(began: CheckpointsBegan, saved: Saved, current: set[int]) -> SnapshotInfo:
    return SnapshotInfo(
        snapshot_id=id_of(began, saved),
        step_id=saved.event.step,
        created_at=created_at(began, saved),
        seq=saved.seq,
        state_size_bytes=saved.event.size,
        schema_version=saved.event.schema,
        is_current=saved.seq in current,
    )
