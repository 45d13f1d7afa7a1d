"""A snapshot as users see it: the state of a run at a step, a copy of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

from outlive.errors import UsageError
from outlive.journal.codec.bounds import key_step
from outlive.model.checkpoints import CheckpointsBegan, Saved

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS = ("snapshot_id", "run_id", "step_id", "created_at")


@dataclass
class RunSnapshot:
    """The state of a run at one of its steps."""

    #: Tells it from all others.
    snapshot_id: str
    #: The run that it belongs to.
    run_id: str
    #: The step at which it was saved; a run has one snapshot per step that counts.
    step_id: str
    #: When it was saved, in UTC. Which one came last is told by ``seq``.
    created_at: datetime
    #: The state, exactly as it was.
    state: dict[str, Any] = field(default_factory=dict)
    #: What else was said of it.
    metadata: dict[str, Any] = field(default_factory=dict)
    #: Its place among everything that happened to the run's checkpoints; 0: it is not stored.
    seq: int = 0
    #: The version of the state's schema; empty: nobody said.
    schema_version: str = ""

    @classmethod
    def unread(cls, reads: dict[str, Callable[[], Any]], **fields: Any) -> RunSnapshot:
        """One with fields that are made when they are looked at, as few do with what they saved."""
        snapshot = cls.__new__(cls)
        snapshot.__dict__.update(fields, _reads=reads)
        return snapshot

    def __getattr__(self, name: str) -> Any:
        reads = self.__dict__.get("_reads", {})
        if name not in reads:
            raise AttributeError(name)
        # Of two threads that look at once both get the same.
        return self.__dict__.setdefault(name, reads[name]())

    def __getstate__(self) -> dict[str, Any]:
        """For copies: whole, and what nobody has looked at yet is made now."""
        made = {name: getattr(self, name) for name in self.__dict__.get("_reads", ())}
        return {**vars(self), **made, "_reads": {}}

    @property
    def where(self) -> str:
        """Which one it is, in words."""
        return f"run {self.run_id}, step {self.step_id}"

    def to_dict(self) -> dict[str, Any]:
        """As a dict of the documented six fields, with the time as ISO text."""
        return {
            "snapshot_id": self.snapshot_id,
            "run_id": self.run_id,
            "step_id": self.step_id,
            "created_at": text_of(self.created_at),
            "state": self.state,
            "metadata": self.metadata,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunSnapshot:
        """From such a dict, and what a file has beside: the place, and the schema's version.

        Raises:
            UsageError: a field is missing, or is not what it should be.
        """
        texts = {name: data.get(name) for name in _TEXTS}
        wrong = [name for name, text in texts.items() if not isinstance(text, str) or not text]
        state, metadata = data.get("state"), data.get("metadata") or {}
        wrong += [] if isinstance(state, dict) else ["state"]
        wrong += [] if isinstance(metadata, dict) else ["metadata"]
        version = data.get("schema_version", "")
        wrong += [] if isinstance(version, str) else ["schema_version"]
        if wrong:
            raise UsageError(f"this is no snapshot: {', '.join(wrong)} missing or of a wrong type")
        assert isinstance(state, dict), "just looked at"
        return cls(
            snapshot_id=str(texts["snapshot_id"]),
            run_id=str(texts["run_id"]),
            step_id=str(texts["step_id"]),
            created_at=time_of(str(texts["created_at"])),
            state=state,
            metadata=metadata,
            seq=data["seq"] if type(data.get("seq")) is int else 0,
            schema_version=version,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInfo:
    """A snapshot without its state: what was saved when, and whether it still counts."""

    snapshot_id: str
    step_id: str
    created_at: datetime
    seq: int
    #: Bytes of the whole state as JSON.
    state_size_bytes: int
    #: The version of the state's schema; empty: nobody said.
    schema_version: str
    #: False: it was saved again later, or taken back.
    is_current: bool


def id_of(began: CheckpointsBegan, saved: Saved) -> str:
    """A snapshot's id: a function of its place, unless it came with one."""
    if saved.event.snapshot_id:
        return saved.event.snapshot_id
    place = began.seed + saved.seq.to_bytes(8, "big") + began.run_id.encode()
    name = blake2b(place, digest_size=16).hexdigest()
    return f"{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:]}"


def created_at(began: CheckpointsBegan, saved: Saved) -> datetime:
    """When a snapshot was saved."""
    if saved.event.created_at:
        return time_of(saved.event.created_at)
    return _EPOCH + timedelta(milliseconds=began.started_at + saved.event.at)


def ms_of(instant: datetime) -> int:
    """An instant in the unit of the journal."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def instant_of(ms: int) -> datetime:
    """The instant of so many ms since 1970."""
    return _EPOCH + timedelta(milliseconds=ms)


def text_of(instant: datetime) -> str:
    """An instant as ISO text in UTC."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def time_of(text: str) -> datetime:
    """An instant from ISO text; without a zone it is UTC.

    Raises:
        UsageError: that is no instant.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no time; write 2025-10-31T10:00:00Z") from None
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


#: What stands where one of the two states has nothing.
ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Change:
    """One place at which two states differ."""

    #: As in error texts: ``$.results[3]``.
    path: str
    #: What was there; ``ABSENT``: nothing.
    before: Any
    #: What is there; ``ABSENT``: nothing.
    after: Any


def changes(before: Any, after: Any, path: str = "$") -> Iterator[Change]:
    """Where two states differ, in the order of the first."""
    if type(before) is dict and type(after) is dict:
        for key in [*before, *(key for key in after if key not in before)]:
            step = path + key_step(key)
            yield from changes(before.get(key, ABSENT), after.get(key, ABSENT), step)
    elif type(before) is list and type(after) is list:
        for place in range(max(len(before), len(after))):
            yield from changes(_at(before, place), _at(after, place), f"{path}[{place}]")
    elif type(before) is not type(after) or before != after:
        yield Change(path, before, after)


def _at(values: list[Any], place: int) -> Any:
    return values[place] if place < len(values) else ABSENT
