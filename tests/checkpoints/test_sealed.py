"""Sealed checkpoints: nothing of a state is readable, and runs that begin anew have a new key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import outlive
from outlive.app.seal import rekey_store
from outlive.checkpoints import DurableRunner, SnapshotStore, SQLiteStorageBackend
from outlive.errors import WrongKey
from outlive.journal.seal.keys import new_key

SECRET = "the account number is 12345678"


async def test_no_state_is_readable_without_the_key(path: Path) -> None:
    """Not a state, not its metadata, not the name of a step; with the key, all of it."""
    key = new_key(os.urandom)
    storage = SQLiteStorageBackend(str(path), key=key)
    runner = DurableRunner(SnapshotStore(storage))
    for number in range(5):
        state = {"secret": SECRET, "long": [SECRET * 40] * number}
        await runner.checkpoint("r", f"step {SECRET}", state, {"note": SECRET})
    await runner.fork("r", "f")
    await storage.close()
    everything = b"".join(each.read_bytes() for each in path.parent.glob("o.db*") if each.is_file())
    again = SQLiteStorageBackend(str(path), key=key)

    assert SECRET.encode() not in everything
    found = await DurableRunner(SnapshotStore(again)).resume("f")
    assert found == {"secret": SECRET, "long": [SECRET * 40] * 4}
    await again.close()
    without = SQLiteStorageBackend(str(path), key="")
    with pytest.raises(WrongKey):
        await without.initialize()


async def test_the_key_of_the_environment_seals(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As everywhere: ``OUTLIVE_KEY``."""
    monkeypatch.setenv("OUTLIVE_KEY", new_key(os.urandom))
    async with SnapshotStore(f"sqlite:///{path}") as store:
        await store.save_snapshot("r", "s", {"secret": SECRET})

    assert SECRET.encode() not in path.read_bytes()


async def test_what_a_fork_shares_outlives_a_change_of_keys(path: Path) -> None:
    """Also when the run that it was forked from is gone: they have one data key."""
    old, new = new_key(os.urandom), new_key(os.urandom)
    storage = SQLiteStorageBackend(str(path), key=old)
    runner = DurableRunner(SnapshotStore(storage))
    await runner.checkpoint("r", "a", {"text": SECRET * 40})
    await runner.fork("r", "f")
    await runner.checkpoint("f", "b", {"text": SECRET * 40, "more": SECRET * 30})
    await runner.cleanup("r")
    await storage.close()
    async with outlive.open(f"sqlite:///{path}", key=f"{new},{old}", drive=False) as app:
        assert 2 <= await rekey_store(app.store, lambda family: None)
    again = SQLiteStorageBackend(str(path), key=new)
    found = await DurableRunner(SnapshotStore(again)).resume("f", "a")

    assert {"text": SECRET * 40} == found
    await again.close()


async def test_a_run_that_begins_anew_is_sealed_anew(path: Path) -> None:
    """Whoever knew its old key does not seal with what is gone."""
    key = new_key(os.urandom)
    one, other = SQLiteStorageBackend(str(path), key=key), SQLiteStorageBackend(str(path), key=key)
    here, there = DurableRunner(SnapshotStore(one)), DurableRunner(SnapshotStore(other))
    await here.checkpoint("r", "a", {"old": "a" * 600})
    assert 1 == await there.cleanup("r")
    await there.checkpoint("r", "b", {"new": "b" * 600})
    await here.checkpoint("r", "c", {"new": "c" * 600})
    await there.cleanup("r")
    await here.checkpoint("r", "d", {"new": "d" * 600})
    await one.close()
    await other.close()
    last = SQLiteStorageBackend(str(path), key=key)
    runner = DurableRunner(SnapshotStore(last))

    assert ["d"] == [each.step_id for each in await runner.list_checkpoints("r")]
    assert {"new": "d" * 600} == await runner.resume("r")
    await last.close()
