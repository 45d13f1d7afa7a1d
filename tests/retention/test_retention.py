"""Retention on the stores of one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive import Retention
from outlive.errors import DefinitionRefused, UsageError
from outlive.journal.seal.keys import new_key
from outlive.model.retention import parse_retention
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
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


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"keep_last": "5"}, "keep_last is a number up to"),
        ({"keep_last": True}, "keep_last is a number up to"),
        ({"completed": ["1d"]}, r"\['1d'\] is not a duration"),
        ({"archive": 5}, "archive is a folder, or the URL of a store, as text"),
        ({"flows": ["a"]}, "flows has rules by the names of flows"),
        ({"flows": {"a": {"completed": "1d"}}}, r"rules of flow 'a' are a dict; write Retention\("),
    ],
)
def test_rules_that_make_no_sense_are_refused(given: Any, why: str) -> None:
    """When they are made, in words."""
    with pytest.raises(DefinitionRefused, match=why):
        Retention(**given)


async def test_an_app_takes_no_text_for_rules(tmp_path: Path) -> None:
    """Nor anything else that is none of them; and then there is no store, either."""
    url = f"sqlite:///{tmp_path}/o.db"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"retention": "completed=1d"}, r"retention is a Retention, not str; .*completed='30d'"),
        ({"redaction": "password"}, r"redaction is a Redaction, not str; write .*names="),
        ({"key": 5}, r"key is a text, not int; `outlive key` makes one"),
    ]
    for given, why in wrong:
        with pytest.raises(UsageError, match=why):
            outlive.open(url, **given)

    assert [] == list(tmp_path.iterdir())
    rules: Any = "completed=1d"
    async with outlive.open(url, drive=False) as app:
        with pytest.raises(UsageError, match="retention is a Retention, not str"):
            await app.retain(rules)


def test_rules_of_the_command_line_are_named_as_such() -> None:
    """And those of the environment by their variable."""
    for text in ("complete=1d", "completed=soon", "keep_last=x"):
        for where in ("--rules", "OUTLIVE_RETENTION"):
            with pytest.raises(UsageError, match=f"^{where}: "):
                parse_retention(text, where)
