"""Snapshots in files: export and import as JSON, and import of MAGSAG's SQLite files.

A folder has a file per run and step, ``{root}/{run}/{step}.json``. It is a layout for export and
import, not a store: files have no order but their times. Ids are never taken for paths: what a file
name can't hold is written ``%2F``. A file is whole or absent; what JSON would change is refused.

Snapshots are imported in their order, with their ids and times. An import that is repeated, or
continued after a kill, adds only what is missing. What conflicts with the store is refused before
anything is written.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote

from outlive.checkpoints.snapshot import RunSnapshot, text_of
from outlive.checkpoints.store import SnapshotStore, draft_again, snapshots_of
from outlive.errors import CorruptArchive, UsageError, ValueRefused
from outlive.journal.codec.bounds import key_step
from outlive.model.checkpoints import Checkpoints, EndStatus
from outlive.model.ids import check_run_id
from outlive.stores.sqlite.files import FILE_MODE, make_private_folder, sync_folder

SUFFIX = ".json"
#: The length that file systems take, less room for a suffix.
_NAME_BYTES_MAX = 200
_PLAIN = (str, bool, type(None))


class FileStorage:
    """A folder of snapshots."""

    def __init__(self, root: str | os.PathLike[str] = ".outlive/snapshots") -> None:
        self.root = Path(root)

    def write(self, snapshot: RunSnapshot) -> Path:
        """Write a snapshot, over an earlier one of its step; durable when this returns.

        Raises:
            ValueRefused: its state holds what JSON does not; the path says where.
        """
        path = self._path(snapshot.run_id, snapshot.step_id)
        _put(path, render(snapshot))
        return path

    def write_run(self, snapshots: Sequence[RunSnapshot]) -> list[Path]:
        """Write all snapshots of a run, then remove its other files; return the paths.

        If the run has none, nothing is touched.

        Raises:
            ValueRefused: a state holds what JSON does not; nothing is written.
        """
        bodies = {self._path(each.run_id, each.step_id): render(each) for each in snapshots}
        for path, body in bodies.items():
            _put(path, body)
        for run_id in {each.run_id for each in snapshots}:
            folder = self.root / file_name(run_id)
            for path in sorted(set(folder.glob(f"*{SUFFIX}")) - bodies.keys()):
                if _is_of(run_id, path):
                    path.unlink()
            sync_folder(folder)
        return list(bodies)

    def read(self, run_id: str, step_id: str) -> RunSnapshot | None:
        """The snapshot of a step; None: there is no such file.

        Raises:
            CorruptArchive: the file is damaged, or of another snapshot.
        """
        path = self._path(run_id, step_id)
        if not path.exists():
            return None
        found = read_snapshot(path)
        if (found.run_id, found.step_id) != (run_id, step_id):
            why = f"it holds step {found.step_id} of run {found.run_id}; put it where that belongs"
            raise CorruptArchive(str(path), why)
        return found

    def runs(self) -> list[str]:
        """The runs that have files."""
        return sorted({each.run_id for each in self.snapshots()})

    def snapshots(self) -> Iterator[RunSnapshot]:
        """All snapshots: run by run, each in the order of time.

        Raises:
            CorruptArchive: a file is damaged; none is skipped.
            UsageError: there is no such folder.
        """
        if not self.root.is_dir():
            raise UsageError(f"{self.root} is not a folder of snapshots")
        for folder in sorted(path for path in self.root.iterdir() if path.is_dir()):
            found = [read_snapshot(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
            yield from sorted(found, key=lambda each: (each.run_id, each.seq, each.created_at))

    def _path(self, run_id: str, step_id: str) -> Path:
        return self.root / file_name(run_id) / f"{file_name(step_id)}{SUFFIX}"


def _put(path: Path, body: bytes) -> None:
    make_private_folder(path.parent)
    aside = path.with_name(f".{path.name}.part")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    sync_folder(path.parent)


def _is_of(run_id: str, path: Path) -> bool:
    """Whether a file is a snapshot of that run."""
    try:
        return read_snapshot(path).run_id == run_id
    except CorruptArchive:
        return False  # whoever put it there knows what it is


def file_name(text: str) -> str:
    """A file name for an id: the id itself where file systems allow it, and never a path."""
    if not text:
        raise UsageError("an id is a non-empty text")
    name = quote(text, safe=" !#$&'()+,;=@[]{}~^`")
    if name[0] == ".":
        name = "%2E" + name[1:]
    if len(name) > _NAME_BYTES_MAX:
        name = f"{name[:100]}~{blake2b(text.encode(), digest_size=16).hexdigest()}"
    return name


def render(snapshot: RunSnapshot) -> bytes:
    """A snapshot as JSON, with its seq and schema version beside the documented fields."""
    _check_json(snapshot.state, "$.state", 0)
    _check_json(snapshot.metadata, "$.metadata", 0)
    beside = {"seq": snapshot.seq, "schema_version": snapshot.schema_version}
    fields = snapshot.to_dict() | beside
    return json.dumps(fields, ensure_ascii=False, allow_nan=False, indent=2).encode()


def _check_json(value: Any, path: str, depth: int) -> None:
    """Check that JSON preserves a value."""
    kind = type(value)
    if depth > 100:
        raise ValueRefused("too deep for JSON", path)
    if kind in _PLAIN or kind is int or (kind is float and math.isfinite(value)):
        return
    if kind is list:
        for place, part in enumerate(value):
            _check_json(part, f"{path}[{place}]", depth + 1)
    elif kind is dict:
        for key, part in value.items():
            if type(key) is not str:
                raise ValueRefused(f"JSON has no {type(key).__name__} for a key", path)
            _check_json(part, path + key_step(key), depth + 1)
    else:
        shown = repr(value) if kind is float else kind.__name__
        raise ValueRefused(f"JSON has no {shown}; keep it in a store instead", path)


def read_snapshot(path: Path) -> RunSnapshot:
    """Read a snapshot from its file.

    Raises:
        CorruptArchive: it is damaged or cut.
    """
    try:
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict):
            raise UsageError(f"it holds a {type(found).__name__}")
        return RunSnapshot.from_dict(found)
    except (ValueError, RecursionError, UsageError) as error:
        raise CorruptArchive(str(path), f"{error}; take a copy of it, or remove it") from None
    except OSError as error:
        raise CorruptArchive(str(path), error.strerror or str(error)) from error


#: The number of likely folders that an error names.
PLACES_MAX = 4
#: The statuses of MAGSAG that end a run here.
_ENDS: dict[str, EndStatus] = {
    "succeeded": "succeeded",
    "failed": "failed",
    "canceled": "canceled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import."""

    #: Runs that were found.
    runs: int
    #: Snapshots that are new here, of all that were found.
    snapshots: int
    found: int


class MagsagFile:
    """A SQLite file of MAGSAG: its ``snapshots``, and the ends of its ``runs``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def snapshots(self) -> Iterator[RunSnapshot]:
        """All snapshots: run by run, each in the order of time, then of saving.

        Raises:
            CorruptArchive: a row can't be read; none is skipped.
        """
        rows = self._rows(
            "SELECT snapshot_id, run_id, step_id, created_at, state, metadata FROM snapshots"
            " ORDER BY rowid"
        )
        found = [self._snapshot(row) for row in rows]
        # By instant: texts of different zones or lengths sort differently.
        yield from sorted(found, key=lambda each: (each.run_id, each.created_at))

    def _snapshot(self, row: Sequence[Any]) -> RunSnapshot:
        names = ("snapshot_id", "run_id", "step_id", "created_at")
        fields: dict[str, Any] = dict(zip(names, row[:4], strict=True))
        try:
            fields["state"] = json.loads(row[4])
            fields["metadata"] = json.loads(row[5]) if row[5] else {}
            return RunSnapshot.from_dict(fields)
        except (ValueError, TypeError, UsageError) as error:
            why = f"snapshot {row[0]} of run {row[1]} can't be read: {error}"
            raise CorruptArchive(str(self.path), why) from None

    def ends(self) -> dict[str, EndStatus]:
        """The runs that ended, and how."""
        try:
            rows = self._rows("SELECT run_id, status FROM runs")
        except CorruptArchive:
            return {}  # a file with nothing but snapshots
        return {run: _ENDS[status] for run, status in rows if status in _ENDS}

    def _rows(self, query: str) -> list[Any]:
        if not self.path.is_file():
            raise UsageError(f"{self.path} is not a file")
        db = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            return db.execute(query).fetchall()
        except sqlite3.Error as error:
            raise CorruptArchive(str(self.path), str(error)) from error
        finally:
            db.close()


async def import_snapshots(
    store: SnapshotStore, source: FileStorage | MagsagFile | str | os.PathLike[str]
) -> Imported:
    """Import all snapshots of a folder or a SQLite file into a store.

    Everything is read and checked before anything is written: a damaged file imports nothing.

    Raises:
        CorruptArchive: something there can't be read, or could not be saved.
        UsageError: the snapshots are in another folder, which the message names. Or a run was
            continued here since, and the new snapshots would follow later ones.
        LeaseLost: somebody holds a run that would get snapshots.
    """
    store = snapshots_of(store, "store")
    opened = _source(source)
    found = await asyncio.to_thread(list, opened.snapshots())
    if not found and isinstance(opened, FileStorage):
        await asyncio.to_thread(_check_place, opened.root)
    ends = await asyncio.to_thread(opened.ends) if isinstance(opened, MagsagFile) else {}
    by_run: dict[str, list[RunSnapshot]] = {}
    for snapshot in found:
        by_run.setdefault(snapshot.run_id, []).append(snapshot)
    await asyncio.to_thread(_check_savable, found, opened)
    new = {run_id: await _missing(store, some) for run_id, some in by_run.items()}
    for run_id, snapshots in new.items():
        for snapshot in snapshots:
            await store.bring(snapshot)
        if run_id in ends and await _is_over(
            store, by_run[run_id][-1], was_brought=bool(snapshots)
        ):
            await store.end(run_id, ends[run_id])
    return Imported(runs=len(by_run), snapshots=sum(map(len, new.values())), found=len(found))


def _check_savable(snapshots: Sequence[RunSnapshot], source: FileStorage | MagsagFile) -> None:
    """Check that each snapshot could be saved."""
    place = source.root if isinstance(source, FileStorage) else source.path
    for each in snapshots:
        try:
            check_run_id(each.run_id)
            draft_again(each)
        except UsageError as error:
            why = f"run {each.run_id}, step {each.step_id} can't be saved: {error}"
            raise CorruptArchive(str(place), why) from None


async def _missing(store: SnapshotStore, found: Sequence[RunSnapshot]) -> list[RunSnapshot]:
    """The snapshots of a run that are not in the store, if they may follow those that are."""
    run_id = found[0].run_id
    here = {each.snapshot_id: each for each in await store.history(run_id)}
    for each in found:
        if each.snapshot_id in here:
            await _check_same(store, each, here[each.snapshot_id].seq)
    new = [each for each in found if each.snapshot_id not in here]
    theirs = {each.snapshot_id for each in found}
    ours = [each for each in here.values() if each.is_current and each.snapshot_id not in theirs]
    if new and ours and new[0].created_at < ours[-1].created_at:
        raise UsageError(
            f"run {run_id}: step {new[0].step_id}, of {text_of(new[0].created_at)}, would come "
            f"behind step {ours[-1].step_id}, of {text_of(ours[-1].created_at)}, which is only "
            "here; import it into another store, or leave this run out"
        )
    if new:
        await store.journals.look(run_id, lambda fold: fold.check_holder(run_id, ""))
    return new


async def _check_same(store: SnapshotStore, found: RunSnapshot, seq: int) -> None:
    here = await store.get_snapshot(found.run_id, seq)
    if here is not None and (here.state, here.metadata) != (found.state, found.metadata):
        raise UsageError(
            f"run {found.run_id}, step {found.step_id}: snapshot {found.snapshot_id} is here with "
            "another state; give it another snapshot_id, or leave this run out"
        )


async def _is_over(store: SnapshotStore, last: RunSnapshot, *, was_brought: bool) -> bool:
    """Whether a run ends here with this snapshot: nobody continued or ended it here."""

    def view(fold: Checkpoints) -> bool:
        is_untouched = fold.seq == 1 + len(fold.saved)
        return was_brought or is_untouched

    latest = await store.get_latest_snapshot(last.run_id)
    is_last = latest is not None and latest.snapshot_id == last.snapshot_id
    return is_last and await store.journals.look(last.run_id, view)


def _source(given: FileStorage | MagsagFile | str | os.PathLike[str]) -> FileStorage | MagsagFile:
    if isinstance(given, FileStorage | MagsagFile):
        return given
    if not isinstance(given, str | os.PathLike):
        raise UsageError(f"source is a folder or a SQLite file, not {given!r}")
    return FileStorage(given) if Path(given).is_dir() else MagsagFile(given)


def _check_place(root: Path) -> None:
    """Check that a folder without snapshots has none in the folders above or below it."""
    places = {path.parent.parent for path in root.rglob(f"*{SUFFIX}")} | set(root.rglob("*.db"))
    if places:
        named = " or ".join(str(place) for place in sorted(places)[:PLACES_MAX])
        raise UsageError(
            f"{root} has no snapshots as {{run}}/{{step}}{SUFFIX} in it; import {named} instead"
        )


async def export_snapshots(
    store: SnapshotStore, run_id: str, files: FileStorage | str | os.PathLike[str]
) -> list[Path]:
    """Write a run's snapshots as files, one per step; return the paths.

    Older files of that run are removed, so that the folder holds the current snapshots.

    Raises:
        ValueRefused: a state holds what JSON does not; nothing is written.
    """
    folder = files if isinstance(files, FileStorage) else FileStorage(files)
    snapshots = await snapshots_of(store, "store").list_snapshots(run_id)
    return await asyncio.to_thread(folder.write_run, snapshots)
