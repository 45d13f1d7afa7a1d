"""What is imported beside what is here: all of it or nothing, and nothing here is undone by it."""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import replace
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
from outlive.errors import CorruptArchive, LeaseLost, UsageError, ValueRefused
from tests.checkpoints.test_files import MAGSAG, foreign, write_database, write_folder


async def imported(store: SnapshotStore, root: Path, *snapshots: RunSnapshot) -> Imported:
    """What comes of these, brought by a folder."""
    write_folder(root, list(snapshots))
    return await import_snapshots(store, root)


async def test_a_schema_travels_with_its_state(tmp_path: Path, snapshots: SnapshotStore) -> None:
    """So that nothing is brought up to date twice; a state's own word for it counts, too."""

    def in_cents(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "amount": state["amount"] * 100}

    runner = DurableRunner(snapshots, schema_version="2", upcasters={"": ("2", in_cents)})
    await runner.checkpoint("r", "s", {"amount": 500})
    await export_snapshots(snapshots, "r", tmp_path / "files")
    (own,) = foreign("q", 1)
    write_folder(tmp_path / "files", [replace(own, state={"schema_version": "2", "amount": 7})])
    async with SnapshotStore("memory://") as other:
        await import_snapshots(other, tmp_path / "files")
        there = DurableRunner(other, schema_version="2", upcasters={"": ("2", in_cents)})

        assert {"amount": 500} == await there.resume("r")
        assert {"schema_version": "2", "amount": 7} == await there.resume("q")
        assert ["2"] == [each.schema_version for each in await there.history("q")]


async def test_a_folder_holds_what_counts_now(tmp_path: Path, snapshots: SnapshotStore) -> None:
    """Exported again, a run has no files of steps that were taken back; others' files stay."""
    runner, root = DurableRunner(snapshots), tmp_path / "files"
    for number in range(3):
        await runner.checkpoint("r", f"s{number}", {"n": number})
    await runner.checkpoint("q", "s2", {"n": 9})
    for run_id in ("r", "q"):
        await export_snapshots(snapshots, run_id, root)
    (root / "r" / "torn.json").write_text("{")
    (other,) = foreign("other", 1)
    (root / "r" / "other.json").write_text(json.dumps(other.to_dict()))
    await runner.rollback("r", "s0")
    (only,) = await export_snapshots(snapshots, "r", root)

    assert "s0.json" == only.name
    assert ["other.json", "s0.json", "torn.json"] == sorted(p.name for p in (root / "r").iterdir())
    assert (root / "q" / "s2.json").exists()
    await runner.cleanup("q")
    assert [] == await export_snapshots(snapshots, "q", root)
    assert (root / "q" / "s2.json").exists()


async def test_an_export_that_is_refused_changes_no_file(
    tmp_path: Path, snapshots: SnapshotStore
) -> None:
    """Also where only the last of many states holds what JSON does not."""
    await snapshots.save_snapshot("r", "s", {"n": 1})
    (path,) = await export_snapshots(snapshots, "r", tmp_path)
    before = path.read_bytes()
    await snapshots.save_snapshot("r", "s", {"n": 2})
    await snapshots.save_snapshot("r", "t", {"n": b"bytes"})
    with pytest.raises(ValueRefused):
        await export_snapshots(snapshots, "r", tmp_path)

    assert before == path.read_bytes()


async def test_a_run_that_goes_on_here_is_not_ended_by_where_it_came_from(
    tmp_path: Path, snapshots: SnapshotStore
) -> None:
    """Its end is brought with its last snapshot, or after a kill in between, and not again."""
    path, runner = tmp_path / "m.db", DurableRunner(snapshots)
    write_database(path, MAGSAG, foreign("r", 2))
    for snapshot in foreign("r", 2):
        await snapshots.bring(snapshot)
    assert 0 == (await import_snapshots(snapshots, path)).snapshots
    assert "succeeded" == await snapshots.status("r")

    await runner.resume("r")
    for _ in range(2):
        await import_snapshots(snapshots, path)
        assert "running" == await snapshots.status("r")
        await runner.checkpoint("r", "here", {"n": 1})


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"text": "\ud800"}, "$.text: lone surrogate"),
        ({"rate": float("nan")}, "$.rate: nan is not a finite number"),
        ({"schema_version": 1}, "$.schema_version: a version is a text, not 1"),
    ],
)
async def test_what_can_not_be_saved_is_named_and_nothing_is_imported(
    tmp_path: Path, snapshots: SnapshotStore, state: dict[str, Any], why: str
) -> None:
    """Whatever came before it in the folder."""
    (bad,) = foreign("z", 1)
    named = re.escape(f"{tmp_path}: run z, step step-0 can't be saved: {why}")
    with pytest.raises(CorruptArchive, match=named):
        await imported(snapshots, tmp_path, *foreign("a", 2), replace(bad, state=state))

    assert [] == await snapshots.runs()


async def test_a_damaged_id_is_named(tmp_path: Path, snapshots: SnapshotStore) -> None:
    """As what can't be saved is."""
    path = tmp_path / "m.db"
    write_database(path, MAGSAG, foreign("r", 2))
    db = sqlite3.connect(path)
    db.execute("UPDATE snapshots SET run_id = 'outlive/x' WHERE step_id = 'step-1'")
    db.commit()
    db.close()
    with pytest.raises(CorruptArchive, match="run outlive/x, step step-1 can't be saved: a run id"):
        await import_snapshots(snapshots, path)

    assert [] == await snapshots.runs()


async def test_what_is_older_does_not_become_the_latest(
    tmp_path: Path, snapshots: SnapshotStore
) -> None:
    """Where a run went on here, only what came later is brought; else nothing of any run."""
    await snapshots.save_snapshot("r", "here", {"n": 1})
    older, newer = foreign("r", 2)
    with pytest.raises(UsageError, match=r"run r: step step-0, of 2025-.*behind step here, of 20"):
        await imported(snapshots, tmp_path / "old", *foreign("a", 2), older)
    assert ["r"] == [run.run_id for run in await snapshots.runs()]
    assert {"n": 1} == await DurableRunner(snapshots).resume("r")

    late = replace(newer, created_at=datetime.now(UTC) + timedelta(days=1))
    assert 1 == (await imported(snapshots, tmp_path / "new", late)).snapshots
    assert newer.state == await DurableRunner(snapshots).resume("r")


async def test_what_went_on_there_is_brought(tmp_path: Path, snapshots: SnapshotStore) -> None:
    """Also where a step was saved there again, under another id."""
    first, second, third = foreign("r", 3)
    await imported(snapshots, tmp_path, first, second)
    again = replace(second, snapshot_id="another", created_at=third.created_at)

    assert 2 == (await imported(snapshots, tmp_path, third, again)).snapshots
    steps = [each.step_id for each in await snapshots.list_snapshots("r")]
    assert {"step-0", "step-1", "step-2"} == set(steps)


async def test_one_id_has_one_state(tmp_path: Path, snapshots: SnapshotStore) -> None:
    """A snapshot that was changed there since is not passed over."""
    (snapshot,) = foreign("r", 1)
    await imported(snapshots, tmp_path, snapshot)
    changed = replace(snapshot, state={"counter": 2})
    with pytest.raises(UsageError, match="run r, step step-0: snapshot r-id-0 is here with anoth"):
        await imported(snapshots, tmp_path, changed)

    assert snapshot.state == await DurableRunner(snapshots).resume("r")


async def test_what_somebody_has_is_left_alone(tmp_path: Path, snapshots: SnapshotStore) -> None:
    """And nothing else is imported beside it."""
    held = DurableRunner(snapshots).auto("r")
    await held.begin()
    with pytest.raises(LeaseLost, match="run r is driven by another worker now"):
        await imported(snapshots, tmp_path, *foreign("a", 1), *foreign("r", 1))

    assert ["r"] == [run.run_id for run in await snapshots.runs()]


def test_a_file_of_another_run_is_named(tmp_path: Path) -> None:
    """Not taken for the one that was asked for."""
    (snapshot,) = foreign("other", 1)
    path = FileStorage(tmp_path).write(replace(snapshot, run_id="r", step_id="s"))
    path.write_text(json.dumps(snapshot.to_dict()))

    with pytest.raises(CorruptArchive, match="it holds step step-0 of run other"):
        FileStorage(tmp_path).read("r", "s")
