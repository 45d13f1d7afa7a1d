"""From a URL to a store. Only the store that is asked for is imported."""

from __future__ import annotations

import os

from outlive.errors import StoreUnavailable, UnknownStore
from outlive.ports import Ports
from outlive.stores.seam import Store

_POSTGRES = ("postgresql", "postgres")
#: Schemes that later releases will speak.
_PLANNED = frozenset({"file", "redis", "s3"})
_SEE = "--store and OUTLIVE_STORE"
_RESTORE = "if one was, restore it from a backup"
_KNOWN = "memory://, sqlite:///relative.db, sqlite:////absolute.db, postgresql://host/database"


def open_store(url: str, *, ports: Ports, lease_seconds: float, upgrades: bool = True) -> Store:
    """Open the store that a URL names; one of an earlier release only if this one ``upgrades``.

    Raises:
        UnknownStore: no store speaks this URL; the message says which URLs there are.
        StoreUnavailable: the store is known but can't be opened.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise UnknownStore(f"{url!r} is not the URL of a store; use one of {_KNOWN}")
    if scheme == "memory":
        return _open_memory(url, rest, ports, lease_seconds)
    if scheme == "sqlite":
        return _open_sqlite(url, rest, ports, lease_seconds, upgrades)
    if scheme in _POSTGRES:
        return _open_postgres(url, ports, lease_seconds, upgrades)
    if scheme in _PLANNED:
        raise UnknownStore(f"{scheme}:// is not in this release; use one of {_KNOWN}")
    from difflib import get_close_matches  # only mistakes need it

    near = get_close_matches(scheme, ("memory", "sqlite", *_POSTGRES), 1)
    meant = f"did you mean {near[0]}? " if near else ""
    raise UnknownStore(f"no store speaks {scheme!r}; {meant}use one of {_KNOWN}")


def check_url(url: object) -> str:
    """What may be a store's URL: a text.

    Raises:
        UnknownStore: it is none; a path is told the URL to write.
    """
    if isinstance(url, os.PathLike):
        raise UnknownStore(f"{url!r} is a path; write its URL: 'sqlite:///{os.fspath(url)}'")
    if type(url) is not str or not url:
        raise UnknownStore(f"{url!r} is not the URL of a store; use one of {_KNOWN}")
    return url


def check_there(url: str, ports: Ports, see: str = _SEE) -> None:
    """Raise ``StoreUnavailable`` if there is no store (any more): opening it would make one."""
    scheme, _, rest = url.partition("://")
    if scheme in _POSTGRES:
        is_there, shown = _is_postgres_there(url, ports)
    else:
        path = rest[1:]
        is_path = rest.startswith("/") and bool(path.strip("/")) and "\0" not in path
        is_file = scheme == "sqlite" and is_path
        is_there, shown = not is_file or os.path.exists(path), url
        if is_file and is_there and os.path.isfile(path) and not os.path.getsize(path):
            raise StoreUnavailable(f"{path} is empty, no store is in it; {_RESTORE}; see {see}")
    if not is_there:
        looked = ", and looking makes none: the first run does" if see == _SEE else ""
        raise StoreUnavailable(f"there is no store at {shown}{looked}; see {see}")


def shown_place(url: str) -> str:
    """The place as it may be shown: a URL may hold a password."""
    if url.partition("://")[0] not in _POSTGRES:
        return url
    try:
        from outlive.stores.postgres.url import parse_place
    except ImportError:
        return "postgresql://"  # opening it says what is missing
    return parse_place(url).name


def _is_postgres_there(url: str, ports: Ports) -> tuple[bool, str]:
    """Also the place as it may be shown: a URL may hold a password."""
    try:
        from outlive.stores.postgres.schema import is_made
    except ImportError:
        return True, ""  # opening it says what is missing
    return is_made(url, ports)


def _open_memory(url: str, rest: str, ports: Ports, lease_seconds: float) -> Store:
    from outlive.stores.memory import MemoryStore

    if rest:
        raise UnknownStore(f"{url!r}: a store in memory has no name; write memory://")
    return MemoryStore(ports=ports, lease_seconds=lease_seconds)


def _open_sqlite(url: str, rest: str, ports: Ports, lease_seconds: float, upgrades: bool) -> Store:
    from outlive.stores.sqlite.store import SQLiteStore

    if not rest.startswith("/"):
        raise UnknownStore(f"{url!r} has a host; write sqlite:///relative.db (three slashes)")
    path = rest[1:]
    if not path.strip("/") or "\0" in path:
        raise UnknownStore(f"{url!r} names no file; write sqlite:///relative.db")
    return SQLiteStore(path, ports=ports, lease_seconds=lease_seconds, upgrades=upgrades)


def _open_postgres(url: str, ports: Ports, lease_seconds: float, upgrades: bool) -> Store:
    try:
        from outlive.stores.postgres.store import PostgresStore
    except ImportError as error:
        raise UnknownStore(
            f"postgresql:// needs the driver ({error}); `pip install 'outlive[postgres]'`"
        ) from error
    return PostgresStore(url, ports=ports, lease_seconds=lease_seconds, upgrades=upgrades)
