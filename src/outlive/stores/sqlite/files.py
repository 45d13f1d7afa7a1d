"""Files and folders that are nobody else's business (R25), made so that a power cut keeps them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from outlive.errors import StoreUnavailable

FOLDER_MODE = 0o700
FILE_MODE = 0o600
_OTHERS_WRITE = 0o022


def make_private_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing."""
    if folder.is_dir():
        return
    make_private_folder(folder.parent)
    try:
        folder.mkdir(mode=FOLDER_MODE)
    except FileExistsError:  # somebody else made it just now, or it is a file
        if not folder.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)
            ) from None
    sync_folder(folder.parent)


def check_private(folder: Path) -> None:
    """Refuse a folder that leads elsewhere, or in which others may put or replace files.

    Raises:
        StoreUnavailable: whoever can do so says which workers are alive.
    """
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise StoreUnavailable(f"{folder} is a symbolic link; put the folder itself there")
    mode = stat.S_IMODE(found.st_mode)
    if mode & _OTHERS_WRITE:
        raise StoreUnavailable(
            f"others may write to {folder} (mode {mode:o}), and so decide which workers count as "
            f"alive; `chmod 700 {folder}`"
        )


def make_private_file(path: Path) -> None:
    """Make an empty file, unless there is one.

    It is not opened where that can be helped: closing a descriptor of a file drops all locks that
    this process has on it, those of a SQLite connection in another thread too.
    """
    try:
        os.mknod(path, FILE_MODE | stat.S_IFREG)
    except FileExistsError:
        return
    except PermissionError:  # some systems let only root do this
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class OpenFiles:
    """The files that a store's path led to when they were opened: the database and its log.

    Whoever replaces, moves or deletes one of them leaves us with a file that nobody else sees:
    what is written there is lost, and what others write is not seen.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[str, tuple[int, int]] = {}

    def forget_log(self) -> None:
        """Nothing is open: whoever opens the database next may begin a new log."""
        self._known.pop(_LOG, None)

    def moved(self) -> str | None:
        """The file that is not there any more, or is another one; None: all is well."""
        for suffix in ("", _LOG):
            known, found = self._known.get(suffix), None
            try:
                status = os.stat(self._path + suffix)
                found = status.st_dev, status.st_ino
            except FileNotFoundError:
                pass
            if known is None and found is not None:
                self._known[suffix] = found
            elif known != found:
                return self._path + suffix
        return None


#: What SQLite calls its write-ahead log.
_LOG = "-wal"


def unavailable(path: str, error: OSError) -> StoreUnavailable:
    """The error of the operating system, as the seam has it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreUnavailable(
            f"{error.filename or path}: the disk is full; make room, then go on"
        )
    return StoreUnavailable(
        f"{error.filename or path}: {error.strerror}; see that it is on a local disk and that "
        "you may write there"
    )
