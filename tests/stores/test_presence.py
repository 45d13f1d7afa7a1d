"""The files of workers: locked by the living, removed only by who may."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from outlive.errors import StoreUnavailable
from outlive.stores.liveness import Presence
from outlive.testing.suite.entries import LEASE_SECONDS, HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def make(tmp_path: Path, clock: HandClock) -> Presence:
    return Presence(tmp_path / "workers", clock, LEASE_SECONDS)


def test_the_files_of_the_dead_are_removed(tmp_path: Path, clock: HandClock) -> None:
    """Whoever finds a free lock clears it away, and finds the worker dead ever after."""
    watcher = make(tmp_path, clock)
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "w.beat").write_bytes(bytes(8))

    assert ["dead", "dead"] == [watcher.judge("w"), watcher.judge("w")]
    assert [] == os.listdir(tmp_path / "workers")


def test_a_released_worker_leaves_no_file(tmp_path: Path, clock: HandClock) -> None:
    """Nor does a closed store."""
    mine = make(tmp_path, clock)
    mine.beat("a")
    mine.beat("b")
    mine.release("a")
    assert ["b.beat"] == os.listdir(tmp_path / "workers")

    mine.close()

    assert [] == os.listdir(tmp_path / "workers")


def test_a_beat_restores_a_file_that_was_removed(tmp_path: Path, clock: HandClock) -> None:
    """Somebody cleared the folder; with its next beat the living worker can be seen again."""
    mine, watcher = make(tmp_path, clock), make(tmp_path, clock)
    mine.beat("w")
    shutil.rmtree(tmp_path / "workers")

    mine.beat("w")

    assert "alive" == watcher.judge("w")
    mine.close()


def test_two_workers_can_not_share_an_id(tmp_path: Path, clock: HandClock) -> None:
    """The second is refused with the remedy."""
    mine, yours = make(tmp_path, clock), make(tmp_path, clock)
    mine.beat("w")

    with pytest.raises(StoreUnavailable, match="own id"):
        yours.beat("w")
    mine.close()


def test_a_worker_may_come_back(tmp_path: Path, clock: HandClock) -> None:
    """After it was found dead, a worker of the same id is alive again with its first beat."""
    first, watcher = make(tmp_path, clock), make(tmp_path, clock)
    first.beat("w")
    watcher.judge("w")
    clock.advance(LEASE_SECONDS)
    assert "silent" == watcher.judge("w")
    first.close()
    assert "dead" == watcher.judge("w")

    second = make(tmp_path, clock)
    second.beat("w")

    assert "alive" == watcher.judge("w")
    second.close()


def test_no_file_leads_outside_the_folder(tmp_path: Path, clock: HandClock) -> None:
    """Whatever a worker calls itself, its file is in the folder."""
    mine = make(tmp_path, clock)
    names = ("../outside", "/tmp/outside", "a\0b", "..", ".", "", "x" * 5000, "\ud800")
    for name in names:
        mine.beat(name)

    assert ["workers"] == os.listdir(tmp_path)
    assert len(names) == len(os.listdir(tmp_path / "workers"))
    mine.close()
