"""Snapshots as JSON files, ``{root}/{run}/{step}.json``: to look at, to carry away, to bring back.

A layout for export and import, not a store: files know no order but their times. Ids are never
taken for paths: what a file name can't hold is written ``%2F``. A file is whole or not there, and
what JSON would change is refused.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote

from outlive.checkpoints.snapshot import RunSnapshot
from outlive.errors import CorruptArchive, UsageError, ValueRefused
from outlive.journal.codec.bounds import key_step
from outlive.stores.sqlite.files import FILE_MODE, make_private_folder, sync_folder

SUFFIX = ".json"
#: What file systems take, less room for a suffix.
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
        """Write all snapshots of a run, and then remove what else there is of it; where they are.

        Where the run has none, nothing is touched.

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
            CorruptArchive: the file is damaged, or another's.
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
        """The runs of which there are files."""
        return sorted({each.run_id for each in self.snapshots()})

    def snapshots(self) -> Iterator[RunSnapshot]:
        """All of them: run by run, each in the order of time.

        Raises:
            CorruptArchive: a file is damaged; none is passed over.
            UsageError: there is no such folder.
        """
        if not self.root.is_dir():
            raise UsageError(f"{self.root} is no folder of snapshots")
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
    """A name for an id: the id itself wherever a file system takes it, and never a path."""
    if not text:
        raise UsageError("an id is a non-empty text")
    name = quote(text, safe=" !#$&'()+,;=@[]{}~^`")
    if name[0] == ".":
        name = "%2E" + name[1:]
    if len(name) > _NAME_BYTES_MAX:
        name = f"{name[:100]}~{blake2b(text.encode(), digest_size=16).hexdigest()}"
    return name


def render(snapshot: RunSnapshot) -> bytes:
    """A snapshot as JSON, with its place and its schema's version beside the documented fields."""
    _check(snapshot.state, "$.state", 0)
    _check(snapshot.metadata, "$.metadata", 0)
    beside = {"seq": snapshot.seq, "schema_version": snapshot.schema_version}
    fields = snapshot.to_dict() | beside
    return json.dumps(fields, ensure_ascii=False, allow_nan=False, indent=2).encode()


def _check(value: Any, path: str, depth: int) -> None:
    """Whether JSON gives back what it is given."""
    kind = type(value)
    if depth > 100:
        raise ValueRefused("too deep for JSON", path)
    if kind in _PLAIN or kind is int or (kind is float and math.isfinite(value)):
        return
    if kind is list:
        for place, part in enumerate(value):
            _check(part, f"{path}[{place}]", depth + 1)
    elif kind is dict:
        for key, part in value.items():
            if type(key) is not str:
                raise ValueRefused(f"JSON has no {type(key).__name__} for a key", path)
            _check(part, path + key_step(key), depth + 1)
    else:
        shown = repr(value) if kind is float else kind.__name__
        raise ValueRefused(f"JSON has no {shown}; keep it in a store, which has", path)


def read_snapshot(path: Path) -> RunSnapshot:
    """A snapshot from its file.

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
