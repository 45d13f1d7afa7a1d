"""Messages as an inbox keeps them: records, the stages of their acknowledgement, what a log holds.

Names and numbers are those of SW4RM, so that its programs find what they know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Literal, TypeAlias

import msgspec

from outlive.errors import OutliveError, UsageError, ValueRefused

Direction: TypeAlias = Literal["in", "out"]
#: What identifies a message in one inbox: an agent may send a message to itself.
Key: TypeAlias = tuple[Direction, str]


class AckStage(IntEnum):
    """How far a message has come."""

    UNSPECIFIED = 0
    RECEIVED = 1
    READ = 2
    FULFILLED = 3
    REJECTED = 4
    FAILED = 5
    TIMED_OUT = 6


#: The numbers of an envelope's own ``state`` after which nothing follows.
_TERMINAL_STATES = frozenset({4, 5, 6, 7})
#: SW4RM 0.6.0 writes the agent state FAILED where it means the stage.
_AGENT_FAILED = 10
BUFFER_FULL = 1
ACK_TIMEOUT = 3
ID_BYTES_MAX = 4096


def is_terminal_state(state: int) -> bool:
    """Whether nothing follows this state of an envelope."""
    return state in _TERMINAL_STATES


def parse_stage(given: object) -> AckStage:
    """A stage by its number or its name.

    Raises:
        UsageError: there is no such stage.
    """
    if isinstance(given, str) and given in AckStage.__members__:
        return AckStage[given]
    if type(given) is int or isinstance(given, IntEnum):
        number = AckStage.FAILED if given == _AGENT_FAILED else given
        if number in AckStage.__members__.values():
            return AckStage(number)
    names = ", ".join(f"{stage.value} {stage.name}" for stage in AckStage)
    raise UsageError(f"ack_stage={given!r:.100} is not a stage; the stages are {names}")


class BufferFullError(OutliveError):
    """The inbox has as many messages as it may have, and none of them may go."""

    def __init__(
        self, message: str, current_size: int, max_size: int, error_code: int = BUFFER_FULL
    ) -> None:
        super().__init__(message)
        self.current_size, self.max_size, self.error_code = current_size, max_size, error_code


class AckEvent(msgspec.Struct, frozen=True, array_like=True):
    """One acknowledgement as it came, whether it changed the stage or not."""

    at: int
    stage: int
    error_code: int = 0
    note: str = ""
    #: Whether the record has had this stage since.
    counts: bool = True


class PersistentActivityRecord:
    """One message, and how far it has come.

    ``ack`` of a record that an inbox gave out is durable when it returns.
    """

    __slots__ = ("_acked", "ack_history", "ack_note", "ack_stage", "direction", "envelope",
                 "error_code", "message_id", "ts_ms")  # fmt: skip

    def __init__(  # noqa: PLR0913 - as SW4RM's
        self,
        message_id: str,
        direction: Direction,
        envelope: dict[str, Any],
        ts_ms: int = 0,
        ack_stage: int = AckStage.UNSPECIFIED,
        error_code: int = 0,
        ack_note: str = "",
    ) -> None:
        self.message_id, self.direction, self.envelope = message_id, direction, envelope
        self.ts_ms, self.ack_stage, self.error_code = ts_ms, int(ack_stage), error_code
        self.ack_note = ack_note
        #: Every acknowledgement that came, the first one first.
        self.ack_history: list[AckEvent] = []
        self._acked: Callable[[Mapping[str, Any]], object] | None = None

    def attach(self, acked: Callable[[Mapping[str, Any]], object]) -> None:
        """Have acknowledgements of this record go through its inbox."""
        self._acked = acked

    def ack(self, stage: int, error_code: int = 0, note: str = "") -> None:
        """Acknowledge it."""
        stage = parse_stage(stage)
        if self._acked is None:
            self.ack_stage, self.error_code, self.ack_note = int(stage), error_code, note
            return
        self._acked(
            {
                "ack_for_message_id": self.message_id,
                "ack_stage": stage,
                "error_code": error_code,
                "note": note,
                "direction": self.direction,
            }
        )

    @property
    def key(self) -> Key:
        """What identifies it in its inbox."""
        return self.direction, self.message_id

    @property
    def is_terminal(self) -> bool:
        """Whether no stage follows its stage."""
        return self.ack_stage >= AckStage.FULFILLED

    @property
    def state(self) -> int:
        """The envelope's own state."""
        return int(self.envelope.get("state", 0))

    @property
    def idempotency_token(self) -> str:
        """The token that stays the same when a message is sent again."""
        return str(self.envelope.get("idempotency_token") or "")

    @property
    def correlation_id(self) -> str:
        """The id that connects a request and its replies."""
        return str(self.envelope.get("correlation_id") or "")

    def to_dict(self) -> dict[str, Any]:
        """Its fields, as SW4RM stores them."""
        return {
            "message_id": self.message_id,
            "direction": self.direction,
            "envelope": _copied(self.envelope),
            "ts_ms": self.ts_ms,
            "ack_stage": int(self.ack_stage),
            "error_code": self.error_code,
            "ack_note": self.ack_note,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PersistentActivityRecord:
        """A record from its fields.

        Raises:
            UsageError: a field is missing, or there is one that no record has.
        """
        try:
            record = cls(**data)
        except TypeError as error:
            raise UsageError(f"this is not an messages record: {error}") from None
        record.ack_stage = int(parse_stage(record.ack_stage))
        return record

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PersistentActivityRecord) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        stage = AckStage(self.ack_stage).name
        return f"<{type(self).__name__} {self.direction} {self.message_id!r} {stage}>"


#: The name of the record of SW4RM's buffer in memory.
ActivityRecord = PersistentActivityRecord


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return value


# what a log of an inbox holds


class RecordPut(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A message was recorded, or is as given from now on."""

    at: int
    message_id: str
    direction: Direction
    envelope: dict[str, Any]
    ts_ms: int
    ack_stage: int = 0
    error_code: int = 0
    ack_note: str = ""
    #: Its token was used before, and the window of that is over.
    is_fresh: bool = False


class RecordAcked(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """An acknowledgement came."""

    at: int
    message_id: str
    direction: Direction
    stage: int
    error_code: int
    note: str
    #: Whether the record's stage is this from now on; otherwise it is only kept in its history.
    counts: bool


class StateSet(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The envelope's own state was changed."""

    at: int
    message_id: str
    direction: Direction
    state: int


class TokenBegun(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Somebody processes what this token stands for."""

    at: int
    token: str
    direction: Direction
    is_fresh: bool = False


class TokenEnded(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """What a token without a message stands for has ended."""

    at: int
    token: str
    direction: Direction
    stage: int
    outcome: Any = None


class RecordsDropped(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Old messages were forgotten."""

    at: int
    keys: list[tuple[Direction, str]]


class Redelivered(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A message came that is here already."""

    at: int
    message_id: str
    direction: Direction


class Cleared(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Everything was forgotten."""

    at: int


class TokenKept(msgspec.Struct, frozen=True, array_like=True):
    """A token, in a snapshot."""

    direction: Direction
    token: str
    at: int
    ended_at: int
    is_begun: bool
    first: tuple[Direction, str] | None
    success: tuple[Direction, str] | None
    stage: int
    outcome: Any
    origin: str = ""


class Restored(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Everything is as in this snapshot from now on."""

    at: int
    records: list[RecordPut]
    tokens: list[TokenKept] = []
    acks: list[tuple[Direction, str, list[AckEvent]]] = []
    duplicates: int = 0


Change: TypeAlias = (
    RecordPut
    | RecordAcked
    | StateSet
    | TokenBegun
    | TokenEnded
    | RecordsDropped
    | Redelivered
    | Cleared
    | Restored
)


class OwnedChange(msgspec.Struct, frozen=True, array_like=True):
    """A change in a journal that others write, too."""

    writer: str
    change: Change


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Change, strict=False).decode
_decode_written = msgspec.msgpack.Decoder(OwnedChange, strict=False).decode


def encode_change(change: Change) -> bytes:
    """A change as bytes.

    Raises:
        ValueRefused: the envelope has something that no store can keep.
    """
    return _checked(change)


def encode_written(writer: str, change: Change) -> bytes:
    """A change as bytes that no other writer writes."""
    return _checked(OwnedChange(writer, change))


def decode_written(raw: bytes) -> Change:
    """A change from such bytes; raises ``msgspec.ValidationError``."""
    return _decode_written(raw).change


def _checked(change: Change | OwnedChange) -> bytes:
    try:
        return _encode(change)
    except (TypeError, OverflowError, ValueError, RecursionError) as error:
        raise ValueRefused(f"the envelope can't be stored: {error}") from None


def decode_change(raw: bytes) -> Change:
    """A change from its bytes; raises ``msgspec.ValidationError``."""
    found: Change = _decode(raw)
    return found


def checked_id(envelope: object) -> str:
    """The id of a message.

    Raises:
        UsageError: it has none.
    """
    if not isinstance(envelope, dict):
        raise UsageError(f"an envelope is a dict, not {type(envelope).__name__}")
    found = envelope.get("message_id")
    if type(found) is not str or not found:
        raise UsageError(f"an envelope needs a message_id, a text; this one has {found!r:.100}")
    return checked_text(found, "message_id")


def checked_text(found: object, what: str) -> str:
    """A text that every store can keep."""
    if type(found) is not str:
        raise UsageError(f"{what} is a text, not {found!r:.100}")
    try:
        size = len(found.encode())
    except UnicodeEncodeError:
        raise UsageError(f"{what} can't hold a lone surrogate") from None
    if size > ID_BYTES_MAX:
        raise UsageError(f"{what} has at most {ID_BYTES_MAX} bytes, this one {size}")
    return found


def token_of(envelope: Mapping[str, Any]) -> str:
    """What stays the same when a message is sent again.

    Its idempotency token, or its producer with the sequence number; empty: it has neither.
    """
    token = envelope.get("idempotency_token")
    if token:
        return checked_text(token, "idempotency_token")
    producer, number = envelope.get("producer_id"), envelope.get("sequence_number")
    return "" if not producer or number is None else f"{producer}\n{number}"
