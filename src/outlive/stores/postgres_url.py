"""What a ``postgresql://`` URL says: ours is taken out, the rest is libpq's.

TLS (``sslmode``), several hosts, ``target_session_attrs``, password files and services are libpq's
business and work as everywhere. Ours are: ``schema``, ``limit`` (seconds for one statement),
``outage`` (seconds that a verb waits for a server that went away), ``unsafe=yes`` (take a server
that may lose what it acknowledged), ``listen`` (a URL past the pooler, for wake-ups).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from outlive.errors import UnknownStore

SCHEMA_DEFAULT = "outlive"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_SECONDS_MAX = 86_400.0

#: What libpq is told unless the URL says otherwise: notice within seconds that a server is gone.
_DEFAULTS: Mapping[str, str] = {
    "application_name": "outlive",
    "client_encoding": "UTF8",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "target_session_attrs": "read-write",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a store is and how to treat it."""

    conninfo: str
    #: Where to listen for wake-ups; None: at the same place, if it is a server and no pooler.
    listen_conninfo: str | None = None
    schema: str = SCHEMA_DEFAULT
    limit_seconds: float = 30.0
    outage_seconds: float = 60.0
    allow_unsafe: bool = False

    @property
    def name(self) -> str:
        """The place as it may be shown: with no password."""
        given = conninfo_to_dict(self.conninfo)
        host, port = given.get("host") or "(local)", given.get("port") or "5432"
        return f"postgresql at {host}:{port}/{given.get('dbname') or ''}, schema {self.schema}"


def parse_place(url: str) -> Place:
    """Read the URL.

    Raises:
        UnknownStore: an option makes no sense; the message names it, never a password.
    """
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    listen = given.pop("listen", None)
    place = {
        "schema": _schema(given.pop("schema", SCHEMA_DEFAULT)),
        "limit_seconds": _seconds(given, "limit", 30.0),
        "outage_seconds": _seconds(given, "outage", 60.0),
        "allow_unsafe": _yes(given.pop("unsafe", "no")),
    }
    bare = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
    return Place(
        conninfo=_conninfo(bare, given),
        listen_conninfo=None if listen is None else _conninfo(listen, {}),
        **place,  # type: ignore[arg-type]  # one value per field, as named above
    )


def _conninfo(bare: str, given: Mapping[str, str]) -> str:
    try:
        known = {name: str(value) for name, value in conninfo_to_dict(bare).items()}
        return make_conninfo("", **(dict(_DEFAULTS) | known | dict(given)))
    except ProgrammingError as error:
        reason = str(error).strip().splitlines()[0]
        raise UnknownStore(f"the postgresql:// URL can't be read: {reason}") from None


def _schema(name: str) -> str:
    if not _SCHEMA.fullmatch(name):
        raise UnknownStore(
            f"schema={name!r} can't be: up to 40 small letters, digits and _, no digit first"
        )
    return name


def _yes(word: str) -> bool:
    if word not in ("yes", "no"):
        raise UnknownStore(f"unsafe={word!r} is neither yes nor no")
    return word == "yes"


def _seconds(given: dict[str, str], name: str, default: float) -> float:
    word = given.pop(name, None)
    if word is None:
        return default
    try:
        seconds = float(word)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _SECONDS_MAX:
        raise UnknownStore(f"{name}={word!r} is not a number of seconds")
    return seconds
