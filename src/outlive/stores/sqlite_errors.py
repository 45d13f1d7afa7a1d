"""What SQLite's errors mean for a store, in words that say what to do."""

from __future__ import annotations

import sqlite3

from outlive.errors import StoreError, StoreFailed, StoreUnavailable

BUSY_SECONDS = 30

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGE = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's error code without its extension; 0 if the error is not SQLite's own."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Somebody else is writing."""
    return primary_code(error) in _BUSY


def is_poison(error: sqlite3.Error, *, at_commit: bool) -> bool:
    """Whether nothing may be written after this: after a failed flush nobody knows the disk."""
    code = primary_code(error)
    return code in _DAMAGE or (at_commit and code != sqlite3.SQLITE_FULL)


def translate(error: sqlite3.Error, path: str) -> StoreError:
    """The error of a verb, as the seam has it."""
    code = primary_code(error)
    if code in _BUSY:
        return StoreUnavailable(
            f"{path} stayed locked for {BUSY_SECONDS} s; see which process holds it"
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreFailed(f"the disk is full: {path} can't grow; make room and start again")
    return StoreFailed(f"{path}: {error}; nothing after this was stored")


def translate_opening(error: sqlite3.Error, path: str) -> StoreError:
    """The error of opening the file."""
    code = primary_code(error)
    if code == sqlite3.SQLITE_NOTADB:
        return StoreUnavailable(f"{path} is not a SQLite database; choose another file")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StoreUnavailable(f"{path} can't be opened; see the rights of the file and folder")
    if code == sqlite3.SQLITE_READONLY:
        return StoreUnavailable(f"{path} can't be written; see the rights of the file and folder")
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreUnavailable(f"{path} is damaged; restore it from a backup")
    if code == sqlite3.SQLITE_IOERR:
        return StoreUnavailable(f"{path} can't be read: {error}; see the disk it is on")
    return translate(error, path)
