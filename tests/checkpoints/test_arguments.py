"""What can't be an argument is refused by its name, before anything is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from outlive import Retry
from outlive.checkpoints import (
    DurableAgentRunner,
    DurableRunner,
    FileStorage,
    PostgresStorageBackend,
    SnapshotStore,
    SQLiteStorageBackend,
    StorageBackend,
    export_snapshots,
    import_snapshots,
    restore_cut,
)
from outlive.errors import (
    CutRefused,
    DefinitionRefused,
    ExchangeRefused,
    UsageError,
    ValueRefused,
    WrongVersion,
)
from outlive.stores.memory import MemoryStore

Call = Callable[[DurableRunner], Coroutine[Any, Any, Any]]

REFUSED: dict[str, tuple[Call, type[UsageError], str]] = {
    "status": (
        lambda r: r.finish("r", "success"),
        UsageError,
        "status='success' is not a status; use succeeded, failed or canceled",
    ),
    "no status": (lambda r: r.finish("r", None), UsageError, "status=None"),
    "error": (
        lambda r: r.finish("r", "failed", 5),
        UsageError,
        "error is a text or an exception, not 5",
    ),
    "why": (
        lambda r: r.rollback("r", "one", None),
        UsageError,
        "why is a text or an exception, not None",
    ),
    "from_step": (lambda r: r.resume("r", 5), UsageError, "a step id is"),
    "metadata": (
        lambda r: r.checkpoint("r", "three", {}, [1]),
        ValueRefused,
        "metadata is a dict, not list",
    ),
    "runs": (
        lambda r: r.store.runs("sucess"),
        UsageError,
        "status='sucess' is not a status; use running",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_could_not_be_read_again_is_not_written(
    name: str, runner: DurableRunner
) -> None:
    """The run is as it was, for this process and for the next."""
    call, kind, message = REFUSED[name]
    await runner.checkpoint("r", "one", {"n": 1})
    await runner.checkpoint("r", "two", {"n": 2})
    before = [event async for event in runner.events("r")]

    with pytest.raises(kind, match=re.escape(message)):
        await call(runner)

    assert before == [event async for event in runner.events("r")]


async def test_an_error_is_taken_as_its_text(runner: DurableRunner, path: Path) -> None:
    """Also one whose text no journal could hold."""
    await runner.checkpoint("r", "one", {"n": 1})
    await runner.checkpoint("r", "two", {"n": 2})
    await runner.rollback("r", "one", ValueError("wrong"))
    await runner.finish("r", "failed", OSError("no file \udcff"))

    told = [event async for event in DurableRunner(f"sqlite:///{path}").events("r")]
    assert "ValueError: wrong" == told[-2]["why"]
    assert "OSError: no file \\udcff" == told[-1]["error"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema_version": 1}, "schema_version is a text, not 1, write schema_version='1'"),
        ({"schema_version": b"1"}, "schema_version is a text, not b'1'"),
        ({"schema_version": "2", "upcasters": {"1": dict}}, "upcasters has '1'"),
        ({"schema_version": "2", "upcasters": {1: ("2", dict)}}, "upcasters has 1"),
        ({"schema_version": "2", "upcasters": {"1": ("2", "dict")}}, "upcasters has '1'"),
        ({"schema_version": "2", "upcasters": [dict]}, "upcasters is a dict"),
        ({"retry": 3}, "retry=3: write outlive.Retry(attempts=3)"),
    ],
)
def test_a_runner_says_what_it_can_not_be_made_of(options: Any, message: str) -> None:
    """At once, and not where a state is saved or read."""
    with pytest.raises(DefinitionRefused, match=re.escape(message)):
        DurableRunner(SnapshotStore(MemoryStore()), **options)


def plain(n: int = 1) -> int:
    """Not awaited by anybody."""
    return n + 1


async def test_plain_functions_are_steps_as_well(runner: DurableRunner) -> None:
    """Their outcome is saved as that of async ones, and they are called once."""
    ran: list[str] = []

    @runner.step(retry=Retry(attempts=3, delay=0))
    def charge() -> str:
        ran.append("charged")
        return "paid"

    for _ in range(2):
        async with runner.auto("r") as run:
            assert "paid" == await charge()
            assert 6 == await run.step("plain", plain, 5)
            assert 3 == await run.step("late", lambda: _later(3))
    agents = DurableAgentRunner(plain, runner)
    twin: Any = runner.step(plain)

    assert ["charged"] == ran
    assert 2 == await twin()
    assert 8 == await agents.invoke_durable("agent", 7)


async def _later(n: int) -> int:
    return n


async def test_what_is_no_step_is_refused_where_it_is_made_one(runner: DurableRunner) -> None:
    """Before a body has run."""
    wrong: Any = runner.step
    with pytest.raises(DefinitionRefused, match="a name is given by name="):
        wrong("name")
    with pytest.raises(DefinitionRefused, match="Retry"):
        wrong(retry=3)(plain)
    with pytest.raises(TypeError, match="retries"):
        wrong(retries=3)
    for name in (5, "", "x" * 2000):
        with pytest.raises(UsageError, match="a step id"):
            wrong(name=name)(plain)
    ran: list[int] = []
    async with runner.auto("r") as run:
        with pytest.raises(UsageError, match="a step id"):
            await run.step("", lambda: ran.append(1))
    assert [] == ran


async def test_a_run_that_was_not_entered_is_not_begun(runner: DurableRunner) -> None:
    """It says how, instead of being nobody's run."""
    run = runner.auto("r")
    with pytest.raises(UsageError, match="async with"):
        await run.step("plain", _later, 1)
    with pytest.raises(UsageError, match="async with"):
        await run.checkpoint("one")

    assert [] == await runner.store.runs()


async def test_a_fork_is_read_as_its_run_is(
    snapshots: SnapshotStore, runner: DurableRunner
) -> None:
    """Brought up to date, or refused before there is one."""
    await runner.checkpoint("r", "one", {"n": 1})
    newer = DurableRunner(
        snapshots, schema_version="2", upcasters={"": ("2", lambda state: {**state, "up": True})}
    )
    with pytest.raises(WrongVersion, match="run r, step one"):
        await DurableRunner(snapshots, schema_version="3").fork("r", "f")

    assert ["r"] == [run.run_id for run in await snapshots.runs()]
    assert {"n": 1, "up": True} == await newer.fork("r", "f")
    assert {"n": 1, "up": True} == await newer.fork("r", "g", at="one")


@pytest.mark.parametrize("wrong", [5, object(), FileStorage("x"), SnapshotStore(MemoryStore())])
def test_what_is_no_storage_is_refused(wrong: Any) -> None:
    """At once, and not by what is done with it."""
    with pytest.raises(UsageError, match="is not a storage; give a store's URL"):
        SnapshotStore(wrong)


def test_a_storage_says_what_it_is_given() -> None:
    """A URL is no path, and no file is a server."""
    with pytest.raises(UsageError, match="not a sqlite:// URL"):
        SQLiteStorageBackend("sqlite:///z.db")
    wrong: Any = 5
    with pytest.raises(UsageError, match="db_path is a file's path, not 5"):
        SQLiteStorageBackend(wrong)
    for dsn in ("sqlite:///x.db", "host=localhost dbname=x", wrong):
        with pytest.raises(UsageError, match="dsn is a URL, postgresql://"):
            PostgresStorageBackend(dsn)
    with pytest.raises(UsageError, match="url is a store's URL"):
        StorageBackend(wrong)


async def test_sqlite_in_memory_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there as long as it is open; a path may be one."""
    monkeypatch.chdir(tmp_path)
    async with SQLiteStorageBackend(":memory:") as storage:
        runner = DurableRunner(SnapshotStore(storage))
        await runner.checkpoint("r", "one", {"n": 1})
        assert {"n": 1} == await runner.resume("r")
    assert [] == list(tmp_path.iterdir())

    async with SQLiteStorageBackend(Path("o.db")):
        assert (tmp_path / "o.db").exists()


async def test_runners_and_folders_will_do(
    tmp_path: Path, runner: DurableRunner, snapshots: SnapshotStore
) -> None:
    """Where snapshots are meant, or files of them; what is neither is refused by name."""
    await runner.checkpoint("r", "one", {"n": 1})
    cut = await runner.cut(["r"])
    wrong: Any = "sqlite:///o.db"

    (path,) = await export_snapshots(snapshots, "r", tmp_path / "exported")
    other = DurableRunner(SnapshotStore(MemoryStore()))
    await import_snapshots(other.store, path.parent.parent)
    assert {"n": 1} == await other.resume("r")
    with pytest.raises(UsageError, match=re.escape("write SnapshotStore('sqlite:///o.db')")):
        await restore_cut(cut, into=wrong)
    with pytest.raises(UsageError, match="store is a SnapshotStore or a runner"):
        await import_snapshots(wrong, tmp_path / "exported")
    with pytest.raises(UsageError, match="source is a folder or a SQLite file"):
        await import_snapshots(snapshots, snapshots)


async def test_an_exchange_says_what_it_is_given(runner: DurableRunner) -> None:
    """Lists are lists, and metadata is a dict."""
    wrong: Any = 5
    with pytest.raises(ExchangeRefused, match="peers is a list of ids, not 5"):
        await runner.exchange("ada", wrong)
    with pytest.raises(CutRefused, match="it needs a list of ids, not 5"):
        await runner.cut(wrong)
    ada = await runner.exchange("ada", ["bob"])
    with pytest.raises(ValueRefused, match="metadata is a dict, not int"):
        await ada.checkpoint("one", {}, wrong)
