"""Snapshots as users see them: the state of a run at a step."""

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

    #: Unique among all snapshots.
    snapshot_id: str
    #: The run that it belongs to.
    run_id: str
    #: The step at which it was saved; a run has one snapshot per step that counts.
    step_id: str
    #: The time at which it was saved, in UTC. The order of snapshots is that of ``seq``.
    created_at: datetime
    #: The state, exactly as it was.
    state: dict[str, Any] = field(default_factory=dict)
    #: Further metadata.
    metadata: dict[str, Any] = field(default_factory=dict)
    #: Its position in the journal of the run's checkpoints; 0: it is not stored.
    seq: int = 0
    #: The version of the state's schema; empty: not given.
    schema_version: str = ""

    @classmethod
    def unread(cls, reads: dict[str, Callable[[], Any]], **fields: Any) -> RunSnapshot:
        """A snapshot whose listed fields are computed on first access; most are never accessed."""
        snapshot = cls.__new__(cls)
        snapshot.__dict__.update(fields, _reads=reads)
        return snapshot

    def __getattr__(self, name: str) -> Any:
        reads = self.__dict__.get("_reads", {})
        if name not in reads:
            raise AttributeError(name)
        # If two threads get here at once, both get the same value.
        return self.__dict__.setdefault(name, reads[name]())

    def __getstate__(self) -> dict[str, Any]:
        """For copies: all fields, computed."""
        made = {name: getattr(self, name) for name in self.__dict__.get("_reads", ())}
        return {**vars(self), **made, "_reads": {}}

    @property
    def where(self) -> str:
        """Run and step, for error texts."""
        return f"run {self.run_id}, step {self.step_id}"

    def to_dict(self) -> dict[str, Any]:
        """The six documented fields as a dict, with the time as ISO text."""
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
        """A snapshot from such a dict; a file also has ``seq`` and ``schema_version``.

        Raises:
            UsageError: a field is missing, or of a wrong type.
        """
        texts = {name: data.get(name) for name in _TEXTS}
        wrong = [name for name, text in texts.items() if not isinstance(text, str) or not text]
        state, metadata = data.get("state"), data.get("metadata") or {}
        wrong += [] if isinstance(state, dict) else ["state"]
        wrong += [] if isinstance(metadata, dict) else ["metadata"]
        version = data.get("schema_version", "")
        wrong += [] if isinstance(version, str) else ["schema_version"]
        if wrong:
            raise UsageError(f"not a snapshot: {', '.join(wrong)} missing or of a wrong type")
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
    """A snapshot without its state."""

    snapshot_id: str
    step_id: str
    created_at: datetime
    seq: int
    #: Bytes of the whole state as JSON.
    state_size_bytes: int
    #: The version of the state's schema; empty: not given.
    schema_version: str
    #: False: it was replaced, or rolled back.
    is_current: bool


def id_of(began: CheckpointsBegan, saved: Saved) -> str:
    """A snapshot's id: its own, or derived from its place."""
    if saved.event.snapshot_id:
        return saved.event.snapshot_id
    place = began.seed + saved.seq.to_bytes(8, "big") + began.run_id.encode()
    name = blake2b(place, digest_size=16).hexdigest()
    return f"{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:]}"


def created_at(began: CheckpointsBegan, saved: Saved) -> datetime:
    """The time at which a snapshot was saved."""
    if saved.event.created_at:
        return time_of(saved.event.created_at)
    return _EPOCH + timedelta(milliseconds=began.started_at + saved.event.at)


def ms_of(instant: datetime) -> int:
    """An instant in ms since 1970."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def instant_of(ms: int) -> datetime:
    """An instant from ms since 1970."""
    return _EPOCH + timedelta(milliseconds=ms)


def text_of(instant: datetime) -> str:
    """An instant as ISO text in UTC."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def time_of(text: str) -> datetime:
    """Parse an instant from ISO text; without a zone it is UTC.

    Raises:
        UsageError: it is not an instant.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a time; write 2025-10-31T10:00:00Z") from None
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


#: The marker where one of two states has nothing.
ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Change:
    """One place at which two states differ."""

    #: The place, as in error texts: ``$.results[3]``.
    path: str
    #: The old value; ``ABSENT``: nothing.
    before: Any
    #: The new value; ``ABSENT``: nothing.
    after: Any


def changes(before: Any, after: Any, path: str = "$") -> Iterator[Change]:
    """Yield the differences between two states, in the order of the first."""
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
