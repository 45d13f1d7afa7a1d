"""SQLite on a disk in memory that writes down what is done to it.

``connect`` gives the SQLite store a connection like any other; below it is a VFS of apsw whose
files are byte arrays and whose operations go into a ``Trace``. There is no shared memory, so the
connection locks the file for itself alone. Needs ``apsw``.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from outlive.stores.sqlite.connections import Value
from tests.harness.power_cut import Flush, Image, Make, Remove, Trace, Write


class _File:
    """One open file. apsw calls these methods by their SQLite names."""

    def __init__(self, disk: TracedDisk, name: str, content: bytearray, *, delete: bool) -> None:
        self._disk = disk
        self._name = name
        self._content = content
        self._delete = delete

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        return bytes(self._content[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        write = Write(self._name, offset, bytes(data))
        self._disk.trace.add(write)
        write.apply(self._content)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        write = Write(self._name, size, b"", cut=True)
        self._disk.trace.add(write)
        write.apply(self._content)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.trace.add(Flush(self._name))

    def xFileSize(self) -> int:  # noqa: N802
        return len(self._content)

    def xClose(self) -> None:  # noqa: N802
        if self._delete:
            self._disk.files.pop(self._name, None)

    def xSectorSize(self) -> int:  # noqa: N802
        return 4096

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        # What SQLite assumes of a disk: a write does not harm what was there beside it.
        return int(apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE)

    def xLock(self, level: int) -> None:  # noqa: N802
        """Nobody else is there."""

    def xUnlock(self, level: int) -> None:  # noqa: N802
        """Nobody else is there."""

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xFileControl(self, operation: int, pointer: int) -> bool:  # noqa: N802
        return False


class TracedDisk(apsw.VFS):
    """Files in memory, seen by SQLite as a file system."""

    def __init__(self, image: Image, trace: Trace) -> None:
        self.name = f"traced-{id(self)}"
        self.files = {name: bytearray(content) for name, content in image.items()}
        self.trace = trace
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path not in self.files:
            self.trace.add(Make(path))
            self.files[path] = bytearray()
        flags[1] = flags[0]
        delete = bool(flags[0] & apsw.SQLITE_OPEN_DELETEONCLOSE)
        return _File(self, path, self.files[path], delete=delete)

    def xDelete(self, name: str, sync_folder: bool) -> None:  # noqa: N802
        self.trace.add(Remove(name))
        self.files.pop(name, None)

    def xAccess(self, name: str, flags: int) -> bool:  # noqa: N802
        return name in self.files

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name

    def xRandomness(self, amount: int) -> bytes:  # noqa: N802
        return os.urandom(amount)

    def xSleep(self, microseconds: int) -> int:  # noqa: N802
        return microseconds

    def xCurrentTime(self) -> float:  # noqa: N802
        return 2_460_000.5


class TracedConnection:
    """An apsw connection that looks like one of sqlite3.

    ``instead`` replaces statements by others, or answers them: to be unsafe on purpose.
    """

    def __init__(
        self, path: str, disk: TracedDisk, instead: Mapping[str, str | tuple[Value, ...]]
    ) -> None:
        self._real = apsw.Connection(path, vfs=disk.name)
        self._instead = instead
        self.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()

    @property
    def in_transaction(self) -> bool:
        return self._real.in_transaction

    @property
    def total_changes(self) -> int:
        return self._real.total_changes()

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> Rows:
        instead = self._instead.get(sql, sql)
        if isinstance(instead, tuple):
            return Rows([instead])
        try:
            return Rows(self._real.execute(instead, tuple(parameters)).fetchall())
        except apsw.Error as error:
            same = sqlite3.OperationalError(str(error))
            same.sqlite_errorcode = getattr(error, "extendedresult", 0)
            raise same from error

    def close(self) -> None:
        self._real.close()


class Rows:
    """A cursor that has read everything."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[Any]:
        return self._rows


@contextmanager
def traced_disk(image: Image, trace: Trace) -> Iterator[TracedDisk]:
    """A disk for as long as it is needed."""
    disk = TracedDisk(image, trace)
    try:
        yield disk
    finally:
        disk.unregister()
