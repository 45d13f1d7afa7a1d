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
from urllib.parse import unquote

from psycopg import ProgrammingError, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from outlive.errors import UnknownStore
from outlive.model.defaults import OUTAGE_SECONDS, STATEMENT_SECONDS

SCHEMA_DEFAULT = "outlive"
#: PostgreSQL keeps what begins with pg_ for itself.
_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,39}")
_SECONDS_MAX = 86_400.0
_OURS = frozenset({"schema", "limit", "outage", "unsafe", "listen"})
#: libpq's messages say what is wrong, then quote it: that may be a password.
_QUOTED = re.compile("[\"'«»„“‘].*", re.DOTALL)
_PORTS = re.compile("[0-9,]*")

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
    limit_seconds: float = STATEMENT_SECONDS
    outage_seconds: float = OUTAGE_SECONDS
    allow_unsafe: bool = False

    @property
    def name(self) -> str:
        """The place as it may be shown: with no password."""
        given = conninfo_to_dict(self.conninfo)
        if given.get("service"):
            return f"postgresql of service {given['service']}, schema {self.schema}"
        host, port = given.get("host") or "(local)", given.get("port") or "5432"
        return f"postgresql at {host}:{port}/{given.get('dbname') or ''}, schema {self.schema}"


def parse_place(url: str) -> Place:
    """Read the URL.

    Raises:
        UnknownStore: an option makes no sense; the message names it, never a password.
    """
    bare, given = _taken_out(url)
    listen = given.pop("listen", None)
    place = {
        "schema": _schema(given.pop("schema", SCHEMA_DEFAULT)),
        "limit_seconds": _seconds(given, "limit", STATEMENT_SECONDS),
        "outage_seconds": _seconds(given, "outage", OUTAGE_SECONDS),
        "allow_unsafe": _yes(given.pop("unsafe", "no")),
    }
    return Place(
        conninfo=_conninfo(bare),
        listen_conninfo=None if listen is None else _conninfo(listen),
        **place,  # type: ignore[arg-type]  # one value per field, as named above
    )


def _taken_out(url: str) -> tuple[str, dict[str, str]]:
    """The URL without our options, and these; the rest stays as it is written."""
    scheme, slashes, rest = url.partition("://")
    # As libpq reads it: who connects ends at the first @, unless a / comes before.
    who = re.match("[^@/]*@", rest)
    begin = who.end() if who else 0
    place, _, query = rest[begin:].partition("?")
    ours: dict[str, str] = {}
    theirs: list[str] = []
    for option in filter(None, query.split("&")):
        name, is_given, value = option.partition("=")
        if name in _OURS:
            ours[name] = unquote(value)
        else:  # an = within a value is fine, as in options=-csynchronous_commit=on
            theirs.append(_known(name) + is_given + value.replace("=", "%3D"))
    kept = "?".join([place, "&".join(theirs)] if theirs else [place])
    return scheme + slashes + rest[:begin] + kept, ours


def _known(name: str) -> str:
    names = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    if name not in names | {"ssl"}:
        shown = name if re.fullmatch("[A-Za-z_]+", name) else "a part"
        raise _unreadable(f"{shown} is no option of it")
    return name


def _conninfo(bare: str) -> str:
    try:
        known = {name: str(value) for name, value in conninfo_to_dict(bare).items()}
    except ProgrammingError as error:
        raise _unreadable(_QUOTED.sub("", str(error)).strip(" :")) from None
    if not _PORTS.fullmatch(known.get("port", "")):
        raise _unreadable("its port is no number")
    return make_conninfo("", **(dict(_DEFAULTS) | known))


def _unreadable(reason: str) -> UnknownStore:
    return UnknownStore(
        f"the postgresql:// URL can't be read: {reason}; what has a meaning in URLs (%, /, @, ?) "
        "is percent-encoded there, also in a password"
    )


def _schema(name: str) -> str:
    if not _SCHEMA.fullmatch(name):
        raise UnknownStore(
            f"schema={name!r} can't be: up to 40 small letters, digits and _, and first neither "
            "a digit nor pg_"
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
