"""Files of archives: whole or not there, and for their owner alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlive.journal.retention.archive import PART_SECONDS_MAX, Archived, FileArchive, write_archive
from outlive.ports import Ports


async def test_folders_are_private_all_the_way(tmp_path: Path) -> None:
    """Also those above the one that was asked for."""
    old = os.umask(0o022)
    try:
        await FileArchive(tmp_path / "a" / "b", Ports()).keep([])
    finally:
        os.umask(old)

    folders = [path for path in (tmp_path / "a").rglob("*") if path.is_dir()]
    assert {0o700} == {stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "a", *folders]}


async def test_what_a_death_left_is_cleared_away(tmp_path: Path) -> None:
    """What somebody may still be writing is not."""
    day = tmp_path / "2026-01-01"
    day.mkdir()
    left, fresh = day / "1.outlive.part", day / "2.outlive.part"
    for path in (left, fresh):
        path.write_bytes(b"half")
    then = left.stat().st_mtime - 2 * PART_SECONDS_MAX
    os.utime(left, (then, then))

    await FileArchive(tmp_path, Ports()).keep([])

    assert [fresh] == list(tmp_path.rglob("*.part"))


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    """A disk that is full, or a run that can't be written."""

    class Failing(list[Archived]):
        def __iter__(self) -> Iterator[Archived]:
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        write_archive(tmp_path / "x.outlive", Failing())

    assert not list(tmp_path.iterdir())
