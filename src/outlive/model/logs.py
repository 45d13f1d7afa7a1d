"""Keyed logs: the events of one key of a log, and their fold. Pure.

Values stay in the form that records have, so that the fold of a long journal is small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, assert_never

import msgspec

from outlive.errors import UsageError
from outlive.model.ids import OWN_PREFIX, is_name, is_text
from outlive.model.shared import Brief

#: The prefix of their journals, and of what stands for a flow in their headers.
LOGS = f"{OWN_PREFIX}log/"
LOG_NAME_BYTES_MAX = 64
LOG_KEY_BYTES_MAX = 400
#: The status of a key whose entries were dropped.
DROPPED = "dropped"
#: A window is written as longer by this share of it, so that not every append has to write it.
_ROOM = 8


class LogBegan(msgspec.Struct, frozen=True, array_like=True, tag=110):
    """The first event of a key's journal."""

    started_at: int
    log: str
    key: str
    family: str


class LogAppended(msgspec.Struct, frozen=True, array_like=True, tag=111):
    """An entry."""

    #: ms since the journal began.
    at: int
    value: bytes
    #: Tells records apart that several writers would write alike; None: the one before is its own.
    writer: bytes | None = None


class LogNoted(msgspec.Struct, frozen=True, array_like=True, tag=112):
    """What the header shows from now on."""

    at: int
    tags: dict[str, str]
    #: ms since 1970: when it is due, and when it may go; None: never.
    wake_at: int | None = None
    expires_at: int | None = None
    writer: bytes | None = None


class LogDropped(msgspec.Struct, frozen=True, array_like=True, tag=113):
    """All entries before this one are gone; the journal is about to be."""

    at: int
    count: int
    writer: bytes | None = None


OfLogs: TypeAlias = LogBegan | LogAppended | LogNoted | LogDropped


class KeptEntry(msgspec.Struct, frozen=True):
    """An entry with its place."""

    seq: int
    #: ms since 1970.
    at: int
    #: As it is recorded.
    value: bytes


class LogState:
    """The state of one key."""

    def __init__(self) -> None:
        self.began: LogBegan | None = None
        self.brief: Brief | None = None
        self.seq = self.at = 0
        self.entries: list[KeptEntry] = []
        self.tags: Mapping[str, str] = {}
        self.wake_at: int | None = None
        self.expires_at: int | None = None

    def apply(self, event: OfLogs) -> None:
        """Apply one event."""
        self.seq += 1
        self.brief = log_brief_after(self.brief, event)
        match event:
            case LogBegan():
                self.began = event
                return
            case LogAppended():
                self.entries.append(KeptEntry(self.seq, self._start + event.at, event.value))
            case LogNoted():
                self.tags, self.wake_at = event.tags, event.wake_at
                self.expires_at = event.expires_at
            case LogDropped():
                self.entries, self.tags = [], {}
                self.wake_at = self.expires_at = None
            case _:
                assert_never(event)
        self.at = max(self.at, event.at)

    @property
    def _start(self) -> int:
        return 0 if self.began is None else self.began.started_at

    def is_over(self, now: int) -> bool:
        """Whether its window is over: then it is empty, whoever looks."""
        return self.wake_at is None and self.expires_at is not None and self.expires_at <= now

    @property
    def is_dropped(self) -> bool:
        """Whether its entries were dropped, and none was appended since."""
        return self.brief is not None and self.brief.status == DROPPED

    def time(self, now: int) -> int:
        """This instant (ms since 1970) as the time of the next event."""
        return max(self.at, now - self._start)

    def brief_with(self, events: Sequence[OfLogs]) -> Brief:
        """Return the header's summary as it will be after these events."""
        brief = self.brief
        for event in events:
            brief = log_brief_after(brief, event)
        assert brief is not None, "something has happened"
        return brief

    @property
    def last_value(self) -> bytes:
        """The recorded form of a value that the next one may resemble."""
        return self.entries[-1].value if self.entries else b""

    def mark(self) -> tuple[dict[str, Any], int]:
        """What ``go_back`` needs."""
        return dict(vars(self)), len(self.entries)

    def go_back(self, mark: tuple[dict[str, Any], int]) -> None:
        """Be as at this mark again: entries were only added behind it, or another list begun."""
        kept, count = mark
        vars(self).update(kept)
        del self.entries[count:]


def log_state(events: Iterable[Any]) -> LogState:
    """The state of a key from all its events; others than those of logs are none of its own."""
    state = LogState()
    for event in events:
        if isinstance(event, (LogBegan, LogAppended, LogNoted, LogDropped)):
            state.apply(event)
    return state


def log_brief_after(brief: Brief | None, event: OfLogs) -> Brief:
    """Return the header's summary as it will be after this event."""
    if isinstance(event, LogBegan):
        began = event.started_at
        return Brief(started_at=began, family=event.family, status="running", kind=event.log)
    assert brief is not None, "the journal of a key begins with LogBegan"
    replace = msgspec.structs.replace
    match event:
        case LogAppended():
            is_back = brief.status == DROPPED
            return replace(brief, status="running", ended_at=None) if is_back else brief
        case LogNoted(tags=tags, wake_at=wake_at, expires_at=expires_at):
            ended_at = expires_at if wake_at is None else None
            return replace(brief, tags=tags, wake_at=wake_at, ended_at=ended_at)
        case LogDropped(at=at):
            ended_at = brief.started_at + at
            return replace(brief, status=DROPPED, tags={}, wake_at=None, ended_at=ended_at)
        case _:
            assert_never(event)


def window_after(known: int | None, now: int, window: int) -> int:
    """When a key may go that was appended to now: not before its window is over."""
    if known is not None and known >= now + window:
        return known
    return now + window + window // _ROOM


def log_prefix(name: str) -> str:
    """What the ids of a log's journals begin with.

    Raises:
        UsageError: it is no name of a log.
    """
    if not is_name(name) or "/" in name or len(name.encode()) > LOG_NAME_BYTES_MAX:
        raise UsageError(
            f"log({name!r}): the name of a log is a text of at most {LOG_NAME_BYTES_MAX} bytes, "
            "without a slash, NUL, line break or lone surrogate"
        )
    return f"{LOGS}{name}/"


def check_log_key(key: object, what: str = "key") -> str:
    """A key, if every store can keep it.

    Raises:
        UsageError: it is none.
    """
    is_sound = is_text(key) and isinstance(key, str) and "\0" not in key
    if not is_sound or len(key.encode()) > LOG_KEY_BYTES_MAX:  # type: ignore[attr-defined]  # text
        raise UsageError(
            f"{what} is a text of at most {LOG_KEY_BYTES_MAX} bytes in UTF-8, without NUL or lone "
            f"surrogates, not {key!r:.200}; a longer one can be hashed"
        )
    assert isinstance(key, str), "checked above"
    return key
