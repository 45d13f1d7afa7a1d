"""Where the trials of a crash test keep their journals: a file each, or a schema each.

A server serves all trials at once. Each has a schema of its own there, which goes with the trial.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from outlive.errors import StoreUnavailable
from outlive.ports import Ports
from outlive.stores.open import check_there

DATABASE = "journal.db"
_NAME_BYTES = 8


def url_of(folder: Path, server: str | None) -> str:
    """The store of the trial in this folder: a file there, or a schema of this server."""
    if server is None:
        return f"sqlite:///{folder / DATABASE}"
    name = hashlib.blake2b(str(folder).encode(), digest_size=_NAME_BYTES).hexdigest()
    return f"{server}{'&' if urlsplit(server).query else '?'}schema=crash_{name}"


def is_there(url: str) -> bool:
    """Whether anybody made it yet."""
    try:
        check_there(url, Ports())
    except StoreUnavailable:
        return False
    return True


@contextmanager
def as_it_is(folder: Path, url: str) -> Iterator[str]:
    """The same journals at a place where looking changes nothing: opening a file would mend it."""
    if not url.startswith("sqlite:"):
        yield url
        return
    copy = folder / "copy"
    copy.mkdir()
    try:
        for name in (DATABASE, f"{DATABASE}-wal"):
            if (folder / name).exists():
                shutil.copy(folder / name, copy / name)
        yield url_of(copy, None)
    finally:
        shutil.rmtree(copy)


def remove(folder: Path, url: str) -> None:
    """Take away what a trial made."""
    if not url.startswith("sqlite:"):
        _drop(url)
    shutil.rmtree(folder)


def _drop(url: str) -> None:
    from psycopg import connect, sql

    from outlive.stores.postgres_url import parse_place

    place = parse_place(url)
    gone = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(place.schema))
    with connect(place.conninfo, autocommit=True) as db:
        db.execute(gone)
