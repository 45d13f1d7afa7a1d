"""Files and folders that are nobody else's business (R25), made so that a power cut keeps them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from outlive.errors import StoreUnavailable

FOLDER_MODE = 0o700
FILE_MODE = 0o600


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


def unavailable(path: str, error: OSError) -> StoreUnavailable:
    """The error of the operating system, as the seam has it."""
    return StoreUnavailable(
        f"{error.filename or path}: {error.strerror}; see that it is on a local disk and that "
        "you may write there"
    )
