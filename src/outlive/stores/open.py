"""From a URL to a store. Only the store that is asked for is imported."""

from __future__ import annotations

import os

from outlive.errors import UnknownStore
from outlive.ports import Ports
from outlive.store import Store

#: Schemes that later releases will speak.
_PLANNED = frozenset({"file", "redis", "s3"})
_KNOWN = "memory://, sqlite:///relative.db, sqlite:////absolute.db, postgresql://host/database"


def open_store(url: str, *, ports: Ports, lease_seconds: float) -> Store:
    """Open the store that a URL names.

    Raises:
        UnknownStore: no store speaks this URL; the message says which URLs there are.
        StoreUnavailable: the store is known but can't be opened.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise UnknownStore(f"{url!r} is no store's URL; use one of {_KNOWN}")
    if scheme == "memory":
        return _open_memory(url, rest, ports, lease_seconds)
    if scheme == "sqlite":
        return _open_sqlite(url, rest, ports, lease_seconds)
    if scheme in ("postgresql", "postgres"):
        return _open_postgres(url, ports, lease_seconds)
    if scheme in _PLANNED:
        raise UnknownStore(f"{scheme}:// is not in this release; use one of {_KNOWN}")
    raise UnknownStore(f"no store speaks {scheme!r}; use one of {_KNOWN}")


def is_there(url: str) -> bool:
    """Whether there is a store to be opened; False: opening it would make it."""
    scheme, _, rest = url.partition(":///")
    return scheme != "sqlite" or not rest.strip("/") or "\0" in rest or os.path.exists(rest)


def _open_memory(url: str, rest: str, ports: Ports, lease_seconds: float) -> Store:
    from outlive.stores.memory import MemoryStore

    if rest:
        raise UnknownStore(f"{url!r}: a store in memory has no name; write memory://")
    return MemoryStore(ports=ports, lease_seconds=lease_seconds)


def _open_sqlite(url: str, rest: str, ports: Ports, lease_seconds: float) -> Store:
    from outlive.stores.sqlite import SQLiteStore

    if not rest.startswith("/"):
        raise UnknownStore(f"{url!r} has a host; write sqlite:///relative.db (three slashes)")
    path = rest[1:]
    if not path.strip("/") or "\0" in path:
        raise UnknownStore(f"{url!r} names no file; write sqlite:///relative.db")
    return SQLiteStore(path, ports=ports, lease_seconds=lease_seconds)


def _open_postgres(url: str, ports: Ports, lease_seconds: float) -> Store:
    try:
        from outlive.stores.postgres import PostgresStore
    except ImportError as error:
        raise UnknownStore(
            f"postgresql:// needs the driver ({error}); `pip install 'outlive[postgres]'`"
        ) from error
    return PostgresStore(url, ports=ports, lease_seconds=lease_seconds)
