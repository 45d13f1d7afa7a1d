"""Where an inbox keeps its messages: a JSON file, a SQLite file, any store, or your own class.

Each of them is also a backend for SW4RM's own buffer: ``save_records``, ``load_records``,
``clear``. Such a buffer passes everything each time; only what changed is written.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from outlive.errors import StoreError, UsageError, ValueRefused, WrongVersion
from outlive.inbox.logs import (
    Attach,
    FileLog,
    MessageLog,
    Saved,
    StoreLog,
    WholeLog,
    loaded,
    replace_file,
    saved,
)
from outlive.inbox.records import (
    AckEvent,
    Change,
    Cleared,
    Direction,
    Key,
    PersistentActivityRecord,
    RecordsDropped,
    Restored,
    TokenKept,
    checked_text,
)
from outlive.inbox.state import InboxState, put_of
from outlive.locks.place import StorePlace

logger = logging.getLogger("outlive.inbox")

#: What to do with a file that can't be read: raise, or put it aside and begin with nothing.
LoadFailureMode: TypeAlias = Literal["raise", "empty"]
VERSION = "1.0"
NAME = "activity"
_BYTES_MARK, _PAYLOAD_MARK = "_bytes_fields", "_payload_is_b64"


class ActivityBufferLoadError(StoreError):
    """A file of messages is damaged; a copy of it was put aside."""


class PersistenceBackend(Protocol):
    """A backend of your own: it saves and loads everything at once."""

    def save_records(self, records: dict[str, dict[str, Any]], order: list[str]) -> None:
        """Save all records and their order."""
        ...

    def load_records(self) -> tuple[dict[str, dict[str, Any]], list[str]]:
        """All records and their order."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...


def open_log(backend: PersistenceBackend, attach: Attach) -> MessageLog:
    """The log of an inbox on this backend."""
    if isinstance(backend, JSONFilePersistence | StorePersistence):
        return backend.open_log(attach)
    return WholeLog(lambda: loaded(*backend.load_records()), backend.save_records, attach)


def _nothing(record: PersistentActivityRecord) -> None:
    """Nobody has to hear of it."""


class _Whole:
    """The verbs that SW4RM's buffer calls, by a log."""

    def __init__(self) -> None:
        self._own: MessageLog | None = None
        #: What the buffer above has seen: only that it can have dropped.
        self._known: set[Key] = set()

    def open_log(self, attach: Attach) -> MessageLog:
        """The log of an inbox."""
        raise NotImplementedError

    @property
    def _log(self) -> MessageLog:
        if self._own is None:
            self._own = self.open_log(_nothing)
        return self._own

    def save_records(self, records: dict[str, dict[str, Any]], order: list[str]) -> None:
        """Save these records. Those of others, which this buffer never saw, stay."""
        given = loaded(records, order)

        def decide(messages: InboxState, now: int) -> list[Change]:
            gone = list(self._known & messages.records.keys() - given.records.keys())
            changes: list[Change] = [RecordsDropped(now, gone)] if gone else []
            for key, record in given.records.items():
                if messages.records.get(key) != record:
                    changes.append(put_of(record, now))
            return changes

        self._log.append(decide, lambda messages: None)
        self._log.flush()
        self._known = set(given.records)

    def load_records(self) -> Saved:
        """All records and their order."""

        def view(messages: InboxState) -> Saved:
            self._known = set(messages.records)
            return saved(messages)

        return self._log.look(view)

    def clear(self) -> None:
        """Forget everything."""
        self._log.append(lambda messages, now: [Cleared(now)], lambda messages: None)
        self._log.flush()
        self._known = set()

    async def health_check(self) -> dict[str, Any]:
        """Whether the messages can be read: ``healthy``, and what is wrong."""
        try:
            count = self._log.look(lambda messages: len(messages.records))
        except (StoreError, UsageError, OSError) as error:
            return {"healthy": False, "records": None, "problems": [str(error)]}
        return {"healthy": True, "records": count, "problems": []}


class JSONFilePersistence(_Whole):
    """Messages in a JSON file that SW4RM can read, with a file of the newest changes beside it.

    ``flush`` folds the changes into the JSON file. Several processes may share it, on one machine.
    """

    def __init__(
        self,
        file_path: str | os.PathLike[str] = "sw4rm_activity.json",
        *,
        load_failure_mode: LoadFailureMode = "raise",
    ) -> None:
        super().__init__()
        self.file_path = Path(file_path)
        if load_failure_mode not in ("raise", "empty"):
            raise UsageError(
                f"load_failure_mode={load_failure_mode!r}: it is 'raise', or 'empty' to begin with "
                "nothing when the file is damaged"
            )
        self._mode = load_failure_mode

    def open_log(self, attach: Attach) -> MessageLog:
        """The log of an inbox."""
        self.file_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return FileLog(self.file_path, self._load, self._save, attach)

    def _load(self) -> tuple[InboxState, str]:
        try:
            content = self.file_path.read_bytes()
        except FileNotFoundError:
            return InboxState(), ""
        try:
            return read_json(content, self.file_path)
        except WrongVersion:
            raise
        except (ValueError, TypeError, KeyError, UsageError) as error:
            aside = self.file_path.with_name(f"{self.file_path.name}.damaged")
            replace_file(aside, content)
            text = f"{self.file_path} is damaged: {error}; a copy was put at {aside}"
            if self._mode == "raise":
                raise ActivityBufferLoadError(
                    f"{text}. Mend it, or pass load_failure_mode='empty' to begin with nothing"
                ) from None
            logger.error("%s; beginning with nothing", text)
            return InboxState(), ""

    def _save(self, messages: InboxState, generation: str) -> None:
        replace_file(self.file_path, to_json(messages, generation))

    async def health_check(self) -> dict[str, Any]:
        """Whether the messages can be read."""
        found = await super().health_check()
        return {"backend": "json", "path": str(self.file_path), **found}


class StorePersistence(_Whole):
    """Messages in a store: SQLite, PostgreSQL, or any other, by its URL; or in an app's store."""

    def __init__(self, store_url: object = None, *, name: str = NAME) -> None:
        super().__init__()
        self.place = StorePlace.of(store_url)
        self.app = store_url if hasattr(store_url, "submit") else None
        self.name = checked_text(name, "name")

    def open_log(self, attach: Attach) -> MessageLog:
        """The log of an inbox."""
        return StoreLog(self.place, self.name, attach)

    async def health_check(self) -> dict[str, Any]:
        """Whether the messages can be read, and what the store says of itself."""
        found = await super().health_check()
        try:
            opened = self.place.open()
            health = await opened.beside(opened.store.health())
        except StoreError as error:
            return {"backend": "store", **found, "healthy": False, "problems": [str(error)]}
        problems = [*found["problems"], *health.problems]
        facts = {"backend": health.store, "facts": dict(health.facts)}
        return {
            **facts,
            **found,
            "healthy": found["healthy"] and not problems,
            "problems": problems,
        }

    def close(self) -> None:
        """Close the store, if this opened it."""
        self.place.close()


class SQLitePersistence(StorePersistence):
    """Messages in a SQLite file.

    A file of SW4RM's own stays as it is: its messages are taken over, once, into a file beside it
    that is named ``.outlive`` in addition.
    """

    def __init__(
        self, db_path: str | os.PathLike[str] = "sw4rm_activity.sqlite3", *, name: str = NAME
    ) -> None:
        path = str(os.fspath(db_path))
        if "://" in path:
            raise UsageError(f"db_path is a file's path, not {db_path!r}; StorePersistence(url)")
        self.db_path = path
        self._theirs: Path | None = None
        if path != ":memory:" and has_table(Path(path)):
            self._theirs, path = Path(path), f"{path}.outlive"
        super().__init__("memory://" if path == ":memory:" else f"sqlite:///{path}", name=name)

    def open_log(self, attach: Attach) -> MessageLog:
        """The log of an inbox."""
        if self.db_path != ":memory:":
            Path(self.db_path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = StoreLog(self.place, self.name, attach)
        if self._theirs is not None:
            log.begin([put_of(record, record.ts_ms) for record in read_table(self._theirs)])
        return log


# formats of SW4RM


def _unmarked(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """An envelope with its bytes as bytes."""
    found = dict(envelope)
    names = found.pop(_BYTES_MARK, [])
    if found.pop(_PAYLOAD_MARK, False):
        names = [*names, "payload"]
    for name in dict.fromkeys(names):
        if isinstance(found.get(name), str):
            try:
                found[name] = base64.b64decode(found[name], validate=True)
            except binascii.Error as error:
                raise ValueError(f"{name} is not base64: {error}") from None
    return found


def _marked(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """An envelope as JSON can have it."""
    names = [name for name, value in envelope.items() if isinstance(value, bytes)]
    if not names:
        return dict(envelope)
    texts = {name: base64.b64encode(envelope[name]).decode() for name in names}
    marks: dict[str, Any] = {_BYTES_MARK: names}
    if "payload" in names:
        marks[_PAYLOAD_MARK] = True
    return {**envelope, **texts, **marks}


class _Own(msgspec.Struct):
    """What our JSON files have and SW4RM's do not."""

    generation: str
    tokens: list[TokenKept] = []
    acks: list[tuple[Direction, str, list[AckEvent]]] = []
    duplicates: int = 0


def to_json(messages: InboxState, generation: str = "") -> bytes:
    """A file of SW4RM's version 1.0; what it has no place for is in a part of ours.

    Raises:
        ValueRefused: an envelope has something that JSON can't.
    """
    records, order = saved(messages)
    for record in records.values():
        record["envelope"] = _marked(record["envelope"])
    kept = messages.snapshot(0)
    own = _Own(generation, kept.tokens, kept.acks, kept.duplicates)
    try:
        return json.dumps(
            {
                "records": records,
                "order": order,
                "version": VERSION,
                "outlive": json.loads(msgspec.json.encode(own)),
            },
            indent=2,
        ).encode()
    except (TypeError, ValueError) as error:
        raise ValueRefused(f"an envelope can't be JSON: {error}; use SQLitePersistence") from None


def read_json(content: bytes, path: object = "the file") -> tuple[InboxState, str]:
    """The state in a JSON file, and its generation.

    Raises:
        WrongVersion: it has another version.
        ValueError: it is damaged.
    """
    data = json.loads(content)
    if not isinstance(data, dict) or not isinstance(data.get("records"), dict):
        raise ValueError("it has no records")
    if data.get("version") != VERSION:
        raise WrongVersion(
            f"{path} has version {data.get('version')!r:.100}; this release reads {VERSION}"
        )
    records: dict[str, dict[str, Any]] = {}
    for name, record in data["records"].items():
        if not isinstance(record, dict) or not isinstance(record.get("envelope"), dict):
            raise ValueError(f"record {name!r:.100} has no envelope")
        records[name] = {**record, "envelope": _unmarked(record["envelope"])}
    order = data.get("order")
    if not isinstance(order, list) or not set(order) <= set(records):
        raise ValueError("its order names records that it does not have")
    messages = loaded(records, order)
    own = data.get("outlive")
    if own is None:
        return messages, ""
    kept = msgspec.convert(own, _Own)
    puts = [put_of(record, record.ts_ms) for record in messages.records.values()]
    messages.apply(Restored(0, puts, kept.tokens, kept.acks, kept.duplicates))
    return messages, kept.generation


_COLUMNS = "message_id, direction, envelope_json, ts_ms, ack_stage, error_code, ack_note"
_TABLE = """
CREATE TABLE IF NOT EXISTS activity_records (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id TEXT UNIQUE NOT NULL,
    ts_ms INTEGER NOT NULL,
    direction TEXT NOT NULL,
    envelope_json TEXT NOT NULL,
    ack_stage INTEGER NOT NULL,
    error_code INTEGER NOT NULL,
    ack_note TEXT NOT NULL
)
"""


def has_table(path: Path) -> bool:
    """Whether this is a SQLite file with SW4RM's table."""
    if not path.exists():
        return False
    named = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'activity_records'"
    try:
        with closing(_reading(path)) as db:
            return db.execute(named).fetchone() is not None
    except sqlite3.DatabaseError:
        return False  # whoever opens it says what is wrong


def _reading(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def read_table(path: Path) -> list[PersistentActivityRecord]:
    """The records in SW4RM's table of a SQLite file.

    Raises:
        ActivityBufferLoadError: the file or a row is damaged.
    """
    try:
        with closing(_reading(path)) as db:
            rows = db.execute(f"SELECT {_COLUMNS} FROM activity_records ORDER BY seq").fetchall()
        return [
            PersistentActivityRecord.from_dict(
                {
                    "message_id": name,
                    "direction": direction,
                    "envelope": _unmarked(json.loads(envelope)),
                    "ts_ms": ts_ms,
                    "ack_stage": stage,
                    "error_code": code,
                    "ack_note": note,
                }
            )
            for name, direction, envelope, ts_ms, stage, code, note in rows
        ]
    except (sqlite3.DatabaseError, ValueError, TypeError, UsageError) as error:
        raise ActivityBufferLoadError(f"{path}: activity_records is damaged: {error}") from None


def write_table(path: Path, messages: InboxState) -> int:
    """Write SW4RM's table into a SQLite file; the number of its rows."""
    records, order = saved(messages)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(_TABLE)
        db.execute("DELETE FROM activity_records")
        for name in order:
            record = records[name]
            envelope = json.dumps(_marked(record.pop("envelope")))
            row = {**record, "message_id": name, "envelope_json": envelope}
            marks = ", ".join(f":{column}" for column in _COLUMNS.split(", "))
            db.execute(f"INSERT INTO activity_records ({_COLUMNS}) VALUES ({marks})", row)
    return len(order)


_SQLITE = (".sqlite3", ".sqlite", ".db")


def read_file(path: Path) -> list[PersistentActivityRecord]:
    """The records in a file of SW4RM's, JSON or SQLite."""
    with path.open("rb") as file:
        is_sqlite = file.read(16) == b"SQLite format 3\0"
    if is_sqlite:
        return read_table(path)
    try:
        messages, _ = read_json(path.read_bytes(), path)
    except (ValueError, TypeError, KeyError, UsageError) as error:
        raise ActivityBufferLoadError(f"{path} is damaged: {error}") from None
    return list(messages.records.values())


def write_file(path: Path, messages: InboxState) -> int:
    """Write all records as SW4RM reads them; their number."""
    if path.suffix in _SQLITE:
        return write_table(path, messages)
    replace_file(path, to_json(messages))
    return len(messages.records)
