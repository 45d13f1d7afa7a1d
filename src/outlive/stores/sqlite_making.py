"""Making the file of a store: once, and never again over one that lost what it had (P1).

Beside the file is the folder of its workers. A mark in there says that the tables were made: a file
that is empty all the same was cut off, and is refused. Whoever makes anything queues at the folder.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outlive.errors import StoreUnavailable
from outlive.stores.presence import living
from outlive.stores.sqlite_connections import Connection
from outlive.stores.sqlite_files import (
    FILE_MODE,
    check_private,
    make_private_file,
    make_private_folder,
    unavailable,
)
from outlive.stores.sqlite_health import make_safe
from outlive.stores.sqlite_schema import (
    SCHEMA_VERSION,
    create_tables,
    has_tables,
    is_ready,
    schema_of,
)
from outlive.stores.tables import check_upgrade, workers_alive

#: Records of a step or two fill such a page with less left over than one of SQLite's 4096.
PAGE_BYTES = 8192


class Making:
    """The file of one store, and what stands beside it."""

    def __init__(self, path: str, *, upgrades: bool = True) -> None:
        self._path, self._upgrades = Path(path), upgrades
        self.workers = Path(f"{path}-workers")
        self._mark = self.workers / "made"

    def make_file(self) -> None:
        """See that there is a file, and that SQLite may look at it.

        Raises:
            StoreUnavailable: it can't be made, or it is empty and was a store.
        """
        try:
            make_private_folder(self._path.parent)
            if not self._path.exists():
                self._make_new()
            elif self._path.is_file() and not self._path.stat().st_size:
                self._take_empty()
        except OSError as error:
            raise unavailable(str(self._path), error) from error

    def _make_new(self) -> None:
        with self._alone():
            if not self._path.exists():
                self._mark.unlink(missing_ok=True)  # of a store that was removed
                make_private_file(self._path)

    def _take_empty(self) -> None:
        with self._alone():
            if self._path.stat().st_size:
                return  # somebody made the tables meanwhile
            # SQLite would drop the log of an empty file at its first look.
            if self._mark.exists() or self._has_log():
                raise self._lost()
            self._path.chmod(FILE_MODE)

    def _has_log(self) -> bool:
        log = Path(f"{self._path}-wal")
        return log.exists() and log.stat().st_size > 0

    def make_tables(self, db: Connection) -> None:
        """Make them, or bring those of an earlier release up to date."""
        try:
            # SQLite does not wait when two switch a new file to WAL at once, so they queue here.
            with self._alone():
                self._make_tables(db, str(self._path))
        except OSError as error:
            raise unavailable(str(self.workers), error) from error

    def _make_tables(self, db: Connection, path: str) -> None:
        if self._mark.exists() and not has_tables(db, path):
            raise self._lost()
        if has_tables(db, path):
            self._check_upgrade(db, path)
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # counts only before there is a table
        make_safe(db, path)
        create_tables(db, path)

    def _check_upgrade(self, db: Connection, path: str) -> None:
        """Only a driver brings a file up to date, and only while nobody else drives (R32)."""
        if is_ready(db, path):
            return  # somebody did so meanwhile
        check_upgrade(path, schema_of(db, path), SCHEMA_VERSION, upgrades=self._upgrades)
        alive = living(self.workers)
        if alive:
            raise workers_alive(path, alive)

    def mark(self) -> None:
        """The tables are there: from now on an empty file is a loss."""
        try:
            if not self._mark.exists():
                make_private_folder(self.workers)
                make_private_file(self._mark)
            check_private(self.workers)
        except OSError as error:
            raise unavailable(str(self.workers), error) from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        make_private_folder(self.workers)
        check_private(self.workers)
        descriptor = os.open(self.workers, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _lost(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._path} is empty and was a store: what it held is lost; restore it from a "
            f"backup, or remove it to begin anew"
        )
