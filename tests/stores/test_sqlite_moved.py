"""A database file that is replaced, moved or deleted under a running process is noticed."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import StoreFailed
from outlive.settings import Settings
from outlive.stores.sqlite.store import SQLiteStore
from outlive.testing.suite.entries import entry, post_one

QUICK = Settings(lease_seconds=0.6, poll_seconds=0.02, drain_seconds=1)


def replace(path: Path) -> None:
    """As a restore from a backup does."""
    shutil.copy(path, path.with_suffix(".copy"))
    os.replace(path.with_suffix(".copy"), path)


def lose_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


WAYS: dict[str, Callable[[Path], object]] = {
    "replaced": replace,
    "moved": lambda path: path.rename(path.with_suffix(".old")),
    "deleted": lambda path: path.unlink(),
    "its log deleted": lose_log,
}


@outlive.flow(name="moved_wait")
async def wait() -> str:
    return str(await outlive.wait_signal("go", type=str))


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[[Path], object]:
    return WAYS[request.param]


async def test_nothing_is_acknowledged_that_nobody_else_will_see(
    tmp_path: Path, way: Callable[[Path], object]
) -> None:
    """The next write is refused, and so is the next beat; the file is named."""
    path = tmp_path / "o.db"
    store = SQLiteStore(path)
    await store.commit([entry("r", 0)])
    await store.beat("w")
    way(path)

    for verb in (store.commit([entry("r", 1)]), store.beat("w"), post_one(store, "r", "m", b"")):
        with pytest.raises(StoreFailed, match=r"o\.db.* was replaced, moved or deleted"):
            await verb
    assert any("was replaced" in each for each in store._connections.problems())
    await store.close()


async def test_who_waits_is_told(tmp_path: Path, way: Callable[[Path], object]) -> None:
    """A worker that only waits stops at its next beat, and its waiters hear why."""
    path = tmp_path / "o.db"
    async with App(SQLiteStore(path, lease_seconds=0.6), settings=QUICK) as app:
        handle = await app.start(wait, id="r")
        way(path)
        with pytest.raises(StoreFailed, match=r"o\.db.* was replaced, moved or deleted"):
            await handle.outcome(timeout=10)


def test_a_worker_exits_with_3(tmp_path: Path) -> None:
    """The command says which file it is."""
    path, module = tmp_path / "o.db", tmp_path / "flows.py"
    module.write_text("import outlive\n\n@outlive.flow\nasync def f() -> None: ...\n")
    environment = {
        **os.environ,
        "OUTLIVE_STORE": f"sqlite:///{path}",
        "OUTLIVE_LEASE_SECONDS": "0.6",
    }
    worker = subprocess.Popen(
        [sys.executable, "-m", "outlive", "worker", "flows"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        asyncio.run(_until_beating(tmp_path / "o.db-workers"))
        replace(path)
        told, _ = worker.communicate(timeout=30)
    finally:
        worker.kill()
        worker.wait()

    assert 3 == worker.returncode
    assert f"{path} was replaced, moved or deleted while it was in use" in told


async def _until_beating(folder: Path) -> None:
    async with asyncio.timeout(30):
        while not list(folder.glob("*.beat")):
            await asyncio.sleep(0.02)


async def test_a_store_that_forks_goes_on(tmp_path: Path) -> None:
    """Connections end before a fork, and SQLite may begin a new log then."""
    store = SQLiteStore(tmp_path / "o.db")
    await store.commit([entry("r", 0)])
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)

    assert [None] == await store.commit([entry("r", 1)])
    await store.beat("w")
    await store.close()
