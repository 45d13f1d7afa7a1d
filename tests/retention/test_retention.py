"""Retention on the stores of one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

import outlive
from outlive import Retention
from outlive.errors import UsageError
from outlive.journal.master_keys import new_key
from outlive.ports import Ports
from outlive.store import Store
from outlive.stores.memory import MemoryStore
from outlive.stores.sqlite import SQLiteStore
from tests.retention.flows import double
from tests.retention.rules import RetentionRules, runs_of


class TestMemory(RetentionRules):
    """In memory."""

    @pytest.fixture
    def store(self, ports: Ports) -> Store:
        return MemoryStore(ports=ports, lease_seconds=30.0)


class TestSQLite(RetentionRules):
    """In a file."""

    @pytest.fixture
    def store(self, ports: Ports, tmp_path: Path) -> Store:
        return SQLiteStore(tmp_path / "o.db", ports=ports, lease_seconds=30.0)


@pytest.mark.parametrize("key", ["", new_key(lambda size: bytes(size))], ids=["plain", "sealed"])
@pytest.mark.parametrize(
    ("archive", "why"),
    [
        ("sqlite:///o.db", "archive=sqlite:///o.db is the store itself; name another"),
        ("sqlite:///./o.db", "is the store itself"),
        ("memory://", "archive=memory:// would be gone with the process; name a folder"),
        ("a file", "archive=.*/a file can't be a folder: File exists; name a folder, or the URL"),
        ("a file/old", "can't be a folder: Not a directory"),
    ],
)
async def test_an_archive_that_would_keep_nothing_is_refused(
    archive: str, why: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is deleted."""
    monkeypatch.chdir(tmp_path)
    Path("a file").touch()
    async with outlive.open("sqlite:///o.db", key=key) as app:
        await (await app.start(double, 1, id="r"))

        with pytest.raises(UsageError, match=why):
            await app.retain(Retention(completed=0, archive=archive))

        assert ["r"] == await runs_of(app)


async def test_each_archive_gets_what_goes_by_its_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An app that has cleared into one folder may clear into another."""
    monkeypatch.chdir(tmp_path)
    async with outlive.open("sqlite:///o.db") as app:
        for archive in ("first", "second", "sqlite:///third.db"):
            await (await app.start(double, 1, id=f"of {archive}"))
            await app.retain(Retention(completed=0, archive=archive))
        found = {
            folder: [
                run.head.run_id
                for path in Path(folder).rglob("*")
                if path.is_file()
                for run in app.archived(path)
            ]
            for folder in ("first", "second")
        }

    assert {"first": ["of first"], "second": ["of second"]} == found
    async with outlive.open("sqlite:///third.db", drive=False) as there:
        assert ["of sqlite:///third.db"] == await runs_of(there)
