"""Files and foreign databases: exported, imported, round and round, and never half."""

from __future__ import annotations

import json
import re
import sqlite3
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from outlive.checkpoints import (
    DurableRunner,
    FileStorage,
    Imported,
    RunSnapshot,
    SnapshotStore,
    export_snapshots,
    import_snapshots,
)
from outlive.checkpoints.files import file_name
from outlive.errors import CorruptArchive, UsageError, ValueRefused

BEGIN = datetime(2025, 10, 31, 10, 0, 0, 123456, UTC)
#: As MAGSAG's own code made its tables.
MAGSAG = """
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY, agent_slug TEXT NOT NULL,
    status TEXT CHECK (status IN ('running', 'succeeded', 'failed', 'canceled')),
    started_at TEXT
);
CREATE TABLE snapshots (
    snapshot_id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    step_id TEXT NOT NULL,
    created_at TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT '{}',
    metadata TEXT NOT NULL DEFAULT '{}',
    UNIQUE (run_id, step_id)
);
CREATE INDEX idx_snapshots_run ON snapshots (run_id, created_at DESC);
"""
#: And as the document has them.
DOCUMENT = """
CREATE TABLE snapshots (
    snapshot_id TEXT PRIMARY KEY, run_id TEXT NOT NULL, step_id TEXT NOT NULL,
    created_at TEXT NOT NULL, state TEXT NOT NULL, metadata TEXT, UNIQUE (run_id, step_id)
);
CREATE INDEX idx_snapshots_run ON snapshots (run_id);
CREATE INDEX idx_snapshots_created ON snapshots (created_at);
"""


def foreign(run_id: str, count: int) -> list[RunSnapshot]:
    """Snapshots as another system had them."""
    return [
        RunSnapshot(
            snapshot_id=f"{run_id}-id-{number}",
            run_id=run_id,
            step_id=f"step-{number}",
            created_at=BEGIN + timedelta(milliseconds=1.5 * number),
            state={"counter": number, "items": ["a", "b"] * number, "text": "ü" * 600},
            metadata={"agent": "my-agent"} if number % 2 else {},
        )
        for number in range(count)
    ]


def write_database(path: Path, schema: str, snapshots: list[RunSnapshot]) -> None:
    db = sqlite3.connect(path)
    db.executescript(schema)
    if schema is MAGSAG:
        ended = {"r": "succeeded", "q": "running"}
        rows = [(run, "planner", status, "2025") for run, status in ended.items()]
        db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?)", rows)
    for each in snapshots:
        told = each.to_dict()
        state, metadata = json.dumps(each.state), json.dumps(each.metadata)
        row = [told[name] for name in ("snapshot_id", "run_id", "step_id", "created_at")]
        db.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", (*row, state, metadata))
    db.commit()
    db.close()


def write_folder(root: Path, snapshots: list[RunSnapshot]) -> None:
    """As the document has it: ``.magsag/snapshots/{run_id}/{step_id}.json``."""
    for each in snapshots:
        folder = root / each.run_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{each.step_id}.json").write_text(json.dumps(each.to_dict(), indent=2))


def bare(snapshots: list[RunSnapshot]) -> list[dict[str, Any]]:
    return [each.to_dict() for each in snapshots]


@pytest.mark.parametrize("kind", ["folder", "magsag", "document"])
async def test_what_another_system_saved_is_brought_here(
    kind: str, tmp_path: Path, snapshots: SnapshotStore
) -> None:
    """Ids, times, order, states and metadata; a second time brings nothing."""
    wanted = {"r": foreign("r", 12), "q": foreign("q", 3)}
    everything = [each for some in wanted.values() for each in some]
    source = tmp_path / ".magsag"
    if kind == "folder":
        write_folder(source, everything)
    else:
        write_database(source, MAGSAG if kind == "magsag" else DOCUMENT, everything)

    first = await import_snapshots(snapshots, source)
    again = await import_snapshots(snapshots, source)

    assert Imported(runs=2, snapshots=15, found=15) == first
    assert Imported(runs=2, snapshots=0, found=15) == again
    for run_id, some in wanted.items():
        assert bare(some) == bare(await snapshots.list_snapshots(run_id))
    assert some[-1].state == await DurableRunner(snapshots).resume("q")
    ended = "succeeded" if kind == "magsag" else "running"
    assert (ended, "running") == (await snapshots.status("r"), await snapshots.status("q"))
    await snapshots.save_snapshot("q", "next", {"counter": 3})
    latest = await snapshots.get_latest_snapshot("q")
    assert latest is not None
    assert "next" == latest.step_id


async def test_the_latest_is_told_by_instants(tmp_path: Path, snapshots: SnapshotStore) -> None:
    """Texts of times have another order, where their zones or their lengths differ."""
    times = {
        "q": ["2025-10-31T10:00:00Z", "2025-10-31T10:00:00.500Z"],
        "w": ["2025-10-31T12:00:00+02:00", "2025-10-31T11:00:00Z"],
    }
    path = tmp_path / "m.db"
    db = sqlite3.connect(path)
    db.executescript(DOCUMENT)
    for run_id, texts in times.items():
        for number, text in enumerate(texts):
            row = (f"{run_id}{number}", run_id, f"s{number}", text, json.dumps({"n": number}), None)
            db.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", row)
    db.commit()
    db.close()

    await import_snapshots(snapshots, path)

    assert {"n": 1} == await DurableRunner(snapshots).resume("q")
    assert {"n": 1} == await DurableRunner(snapshots).resume("w")


async def test_snapshots_beside_the_place_are_named(
    tmp_path: Path, snapshots: SnapshotStore
) -> None:
    """A folder above or below the one that is meant is no import of nothing."""
    above = tmp_path / ".magsag"
    root = above / "snapshots"
    write_folder(root, foreign("r", 2))

    for wrong in (above, root / "r"):
        with pytest.raises(UsageError, match=re.escape(f"import {root} instead")):
            await import_snapshots(snapshots, wrong)
    (tmp_path / "empty").mkdir()
    assert 0 == (await import_snapshots(snapshots, tmp_path / "empty")).found
    assert 2 == (await import_snapshots(snapshots, root)).snapshots


async def test_an_export_can_be_imported_elsewhere(
    tmp_path: Path, snapshots: SnapshotStore
) -> None:
    """The same snapshots, in the same order, also those of one instant."""
    names = ["../../x", "a/b", ".hidden", "ä €", "x" * 300, "plain"]
    for number, name in enumerate(names * 2):
        await snapshots.save_snapshot("run/1", name, {"n": number}, {"m": [number]})
    root = tmp_path / "files"
    paths = await export_snapshots(snapshots, "run/1", FileStorage(root))
    async with SnapshotStore("memory://") as other:
        await import_snapshots(other, root)
        copies = await other.list_snapshots("run/1")

    assert bare(await snapshots.list_snapshots("run/1")) == bare(copies)
    assert all(root in path.parents for path in paths)
    assert {"run%2F1"} == {each.name for each in root.iterdir()}
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert 0o700 == stat.S_IMODE(root.stat().st_mode)
    found = FileStorage(root).read("run/1", "a/b")
    assert found is not None
    assert {"n": 7} == found.state
    assert FileStorage(root).read("run/1", "nowhere") is None
    assert ["run/1"] == FileStorage(root).runs()


async def test_a_torn_file_is_reported_and_nothing_is_imported(
    tmp_path: Path, snapshots: SnapshotStore
) -> None:
    """With its name; an older, whole one is not taken for the latest."""
    root = tmp_path / "files"
    write_folder(root, foreign("r", 3))
    torn = root / "r" / "step-2.json"
    torn.write_text(torn.read_text()[:40])
    with pytest.raises(CorruptArchive, match=r"step-2\.json: "):
        await import_snapshots(snapshots, root)
    torn.write_text('{"run_id": "r"}')
    with pytest.raises(CorruptArchive, match="snapshot_id, step_id, created_at, state missing"):
        await import_snapshots(snapshots, root)

    assert [] == await snapshots.runs()


async def test_a_damaged_row_is_reported_and_nothing_is_imported(
    tmp_path: Path, snapshots: SnapshotStore
) -> None:
    """With the snapshot and the run that it is about."""
    path = tmp_path / "storage.db"
    write_database(path, MAGSAG, foreign("r", 3))
    db = sqlite3.connect(path)
    db.execute("UPDATE snapshots SET state = '{' WHERE step_id = 'step-1'")
    db.commit()
    db.close()

    with pytest.raises(CorruptArchive, match="snapshot r-id-1 of run r can't be read"):
        await import_snapshots(snapshots, path)
    with pytest.raises(UsageError, match="is not a file"):
        await import_snapshots(snapshots, tmp_path / "nowhere")
    (tmp_path / "text").write_text("no database")
    with pytest.raises(CorruptArchive):
        await import_snapshots(snapshots, tmp_path / "text")
    assert [] == await snapshots.runs()


@pytest.mark.parametrize(
    ("state", "refusal"),
    [
        ({"a": [(1, 2)]}, r"\$\.state\.a\[0\]: JSON has no tuple"),
        ({"a": b"x"}, r"\$\.state\.a: JSON has no bytes"),
        ({"a": {1: 2}}, r"\$\.state\.a: JSON has no int for a key"),
    ],
)
async def test_what_json_would_change_is_not_exported(
    state: dict[str, Any], refusal: str, tmp_path: Path, snapshots: SnapshotStore
) -> None:
    """With the path to it, and no file is left behind."""
    await snapshots.save_snapshot("r", "s", state)
    with pytest.raises(ValueRefused, match=refusal):
        await export_snapshots(snapshots, "r", FileStorage(tmp_path / "files"))

    assert not (tmp_path / "files").exists()


def test_names_of_files_are_ids_wherever_they_can_be() -> None:
    """So that folders of other systems are found again, and none leads elsewhere."""
    assert "run-123" == file_name("run-123")
    assert "Fetch data (2)" == file_name("Fetch data (2)")
    names = {file_name(name) for name in ("..", ".", "a/b", "a%2Fb", "x" * 300, "x" * 301)}
    assert 6 == len(names)
    assert not any("/" in name or name.startswith(".") for name in names)
