"""The state of an inbox, folded from its changes; and what may follow. Pure.

Every verb costs the same, however many messages there are: whatever is asked for has an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, assert_never

import msgspec

from outlive.inbox.records import (
    ACK_TIMEOUT,
    AckEvent,
    AckStage,
    BufferFullError,
    Change,
    Cleared,
    Direction,
    Key,
    PersistentActivityRecord,
    RecordAcked,
    RecordPut,
    RecordsDropped,
    Redelivered,
    Restored,
    StateSet,
    TokenBegun,
    TokenEnded,
    TokenKept,
    checked_id,
    parse_stage,
    token_of,
)

#: What becomes of an acknowledgement that comes after the end: only kept in the history, or taken
#: as the truth where the record only ended because nobody had heard of it.
LateAck: TypeAlias = Literal["keep", "truth"]
#: What becomes of a message for which there is no room.
Overflow: TypeAlias = Literal["reject", "drop_oldest"]
TokenStatus: TypeAlias = Literal["NEW", "ALREADY_IN_PROGRESS", "DUPLICATE"]
#: The share of ``max_items`` from which on there is a warning.
WARNING_SHARE = 0.8


class InboxRules(msgspec.Struct, frozen=True, kw_only=True):
    """What an inbox was told when it was made."""

    max_items: int
    window_ms: int
    late_ack: LateAck = "keep"
    overflow: Overflow = "reject"
    #: Messages that ended so long ago may be forgotten; None: never.
    retention_ms: int | None = None
    cleanup_ms: int


class Token:
    """What is known of a token."""

    __slots__ = ("at", "ended_at", "first", "is_begun", "origin", "outcome", "stage", "success")

    def __init__(self, at: int) -> None:
        self.at, self.ended_at = at, 0
        self.is_begun = False
        #: The id of its very first message.
        self.origin = ""
        #: Its first message, and the one that was fulfilled first.
        self.first: Key | None = None
        self.success: Key | None = None
        #: Of a token that was ended without a message.
        self.stage, self.outcome = int(AckStage.UNSPECIFIED), None

    def is_over(self, now: int, window_ms: int) -> bool:
        """Whether its window is over: then it may be used again."""
        return now - max(self.at, self.ended_at) > window_ms


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``begin``."""

    status: TokenStatus
    token: str
    #: The message that the token is known by: of a duplicate the one that was fulfilled first.
    record: PersistentActivityRecord | None = None
    #: How it ended, of a duplicate.
    stage: AckStage = AckStage.UNSPECIFIED
    outcome: Any = None
    #: ms since 1970: since when it is in progress, or when it ended.
    at: int = 0

    @property
    def is_new(self) -> bool:
        """Whether the caller is the one to process it."""
        return self.status == "NEW"


class InboxState:
    """The messages of an inbox."""

    def __init__(self) -> None:
        #: All messages, the oldest first.
        self.records: dict[Key, PersistentActivityRecord] = {}
        #: By their id alone.
        self.by_id: dict[str, PersistentActivityRecord] = {}
        #: Those that no terminal stage was reported of.
        self.open: dict[Key, PersistentActivityRecord] = {}
        self.tokens: dict[tuple[Direction, str], Token] = {}
        self.correlated: dict[str, list[Key]] = {}
        self.duplicates = 0
        self.cleaned_at = 0
        #: Called with each record that is made.
        self.on_record: Callable[[PersistentActivityRecord], None] | None = None

    # folding

    def apply(self, change: Change) -> None:
        """Apply one change."""
        match change:
            case RecordPut():
                self._put(change)
            case RecordAcked():
                self._ack(change)
            case StateSet():
                self.records[change.direction, change.message_id].envelope["state"] = change.state
            case TokenBegun() | TokenEnded():
                self._turn_token(change)
            case RecordsDropped():
                self.cleaned_at = change.at
                for key in change.keys:
                    self._drop(key)
            case Redelivered():
                self.duplicates += 1
            case Cleared():
                self._clear()
            case Restored():
                self._restore(change)
            case _:
                assert_never(change)

    def _turn_token(self, change: TokenBegun | TokenEnded) -> None:
        if isinstance(change, TokenBegun):
            name, is_fresh = change.token, change.is_fresh
            self._token(change.direction, name, change.at, is_fresh=is_fresh).is_begun = True
            return
        token = self._token(change.direction, change.token, change.at)
        token.stage, token.outcome, token.ended_at = change.stage, change.outcome, change.at

    def _clear(self) -> None:
        on_record = self.on_record
        self.__init__()  # type: ignore[misc]  # as it was
        self.on_record = on_record

    def _restore(self, change: Restored) -> None:
        self._clear()
        for record in change.records:
            self._put(record)
        for kept in change.tokens:
            token = self.tokens[kept.direction, kept.token] = Token(kept.at)
            token.ended_at, token.is_begun = kept.ended_at, kept.is_begun
            token.first, token.success = kept.first, kept.success
            token.stage, token.outcome, token.origin = kept.stage, kept.outcome, kept.origin
        for direction, message_id, events in change.acks:
            found = self.records.get((direction, message_id))
            if found is not None:
                found.ack_history = list(events)
        self.duplicates = change.duplicates

    def snapshot(self, at: int) -> Restored:
        """Everything, as one change."""
        return Restored(
            at,
            [put_of(record, at) for record in self.records.values()],
            [
                TokenKept(
                    direction, name, token.at, token.ended_at, token.is_begun, token.first,
                    token.success, token.stage, token.outcome, token.origin,
                )
                for (direction, name), token in self.tokens.items()
            ],
            [
                (record.direction, record.message_id, list(record.ack_history))
                for record in self.records.values()
                if record.ack_history
            ],
            self.duplicates,
        )  # fmt: skip

    def _put(self, change: RecordPut) -> None:
        key = change.direction, change.message_id
        record = PersistentActivityRecord(
            change.message_id,
            change.direction,
            change.envelope,
            change.ts_ms,
            change.ack_stage,
            change.error_code,
            change.ack_note,
        )
        before = self.records.get(key)
        if before is not None:
            record.ack_history = before.ack_history
        elif record.correlation_id:
            self.correlated.setdefault(record.correlation_id, []).append(key)
        self.records[key] = self.by_id[change.message_id] = record
        self._note_end(record, change.at)
        name = token_of(change.envelope)
        if name:
            token = self._token(change.direction, name, change.ts_ms, is_fresh=change.is_fresh)
            token.first = token.first or key
            token.origin = token.origin or change.message_id
            self._note_token(token, record, change.at)
        if self.on_record is not None:
            self.on_record(record)

    def _ack(self, change: RecordAcked) -> None:
        record = self.records.get((change.direction, change.message_id))
        if record is None:
            return
        record.ack_history.append(
            AckEvent(change.at, change.stage, change.error_code, change.note, change.counts)
        )
        if not change.counts:
            return
        record.ack_stage, record.error_code = change.stage, change.error_code
        record.ack_note = change.note
        self._note_end(record, change.at)
        name = token_of(record.envelope)
        token = self.tokens.get((change.direction, name))
        if token is not None:
            self._note_token(token, record, change.at)

    def _note_end(self, record: PersistentActivityRecord, at: int) -> None:
        if record.is_terminal:
            self.open.pop(record.key, None)
        else:
            self.open[record.key] = record

    def _note_token(self, token: Token, record: PersistentActivityRecord, at: int) -> None:
        """The earliest success counts, whatever comes later."""
        if not record.is_terminal:
            return
        if token.success is None and record.ack_stage == AckStage.FULFILLED:
            token.success, token.ended_at = record.key, at
        elif token.success is None:
            token.first, token.ended_at = record.key, at

    def _token(self, direction: Direction, name: str, at: int, *, is_fresh: bool = False) -> Token:
        token = self.tokens.get((direction, name))
        if token is None or is_fresh:
            token = self.tokens[direction, name] = Token(at)
        return token

    def _drop(self, key: Key) -> None:
        record = self.records.pop(key, None)
        if record is None:
            return
        self.open.pop(key, None)
        if self.by_id.get(record.message_id) is record:
            del self.by_id[record.message_id]
        siblings = self.correlated.get(record.correlation_id)
        if siblings is not None and key in siblings:
            siblings.remove(key)
            if not siblings:
                del self.correlated[record.correlation_id]
        name = (key[0], token_of(record.envelope))
        token = self.tokens.get(name)
        if token is not None and key in (token.first, token.success):
            del self.tokens[name]

    # questions

    def find(
        self, message_id: str, direction: Direction | None = None
    ) -> PersistentActivityRecord | None:
        """A message; of one that is here in both directions the incoming one."""
        for each in (direction,) if direction else ("in", "out"):
            found = self.records.get((each, message_id))
            if found is not None:
                return found
        return None

    def find_token(
        self, name: str, now: int, rules: InboxRules, direction: Direction | None = None
    ) -> Token | None:
        """A token within its window."""
        for each in (direction,) if direction else ("in", "out"):
            token = self.tokens.get((each, name))
            if token is not None and not token.is_over(now, rules.window_ms):
                return token
        return None

    def record_of(self, token: Token) -> PersistentActivityRecord | None:
        """The message by which a token is known: the one that was fulfilled first."""
        key = token.success or token.first
        return None if key is None else self.records.get(key)

    def is_reused(self, name: str, direction: Direction, now: int, rules: InboxRules) -> bool:
        """Whether a token was used before, and the window of that is over."""
        token = self.tokens.get((direction, name))
        return token is not None and token.is_over(now, rules.window_ms)

    # decisions

    def put(
        self,
        envelopes: Iterable[Mapping[str, Any]],
        direction: Direction,
        now: int,
        rules: InboxRules,
    ) -> list[Change]:
        """Record these messages. Those that are here already are only counted.

        Raises:
            BufferFullError: there is no room.
        """
        changes: list[Change] = self.cleanup(now, rules)
        new: dict[Key, RecordPut] = {}
        for envelope in envelopes:
            name = checked_id(envelope)
            key = direction, name
            if key in self.records or key in new:
                changes.append(Redelivered(now, name, direction))
                continue
            is_fresh = self.is_reused(token_of(envelope), direction, now, rules)
            new[key] = RecordPut(now, name, direction, dict(envelope), now, is_fresh=is_fresh)
        dropped = sum(len(each.keys) for each in changes if isinstance(each, RecordsDropped))
        room = rules.max_items - (len(self.records) - dropped)
        if len(new) > room:
            changes = self._make_room(changes, len(new) - room, now, rules)
        return [*changes, *new.values()]

    def _make_room(
        self, changes: list[Change], missing: int, now: int, rules: InboxRules
    ) -> list[Change]:
        keys = [key for each in changes if isinstance(each, RecordsDropped) for key in each.keys]
        gone = set(keys)
        if rules.overflow == "drop_oldest":
            for key, record in self.records.items():
                if missing <= 0:
                    break
                if key not in gone and self._may_go(record, now, rules):
                    keys.append(key)
                    missing -= 1
        if missing > 0:
            size = len(self.records)
            raise BufferFullError(
                f"Activity buffer is full (max {rules.max_items} items): acknowledge what has "
                "ended, set retention_hours, or allow more with max_items",
                size,
                rules.max_items,
            )
        others = [each for each in changes if not isinstance(each, RecordsDropped)]
        return [RecordsDropped(now, keys), *others]

    def _may_go(self, record: PersistentActivityRecord, now: int, rules: InboxRules) -> bool:
        """Only what has ended, and never inside its token's window."""
        if not record.is_terminal:
            return False
        token = self.tokens.get((record.direction, token_of(record.envelope)))
        return token is None or token.is_over(now, rules.window_ms)

    def cleanup(self, now: int, rules: InboxRules, *, is_due: bool = False) -> list[Change]:
        """Forget what has ended and is old, if it is time to look."""
        old = rules.retention_ms
        if old is None or not (is_due or now - self.cleaned_at >= rules.cleanup_ms):
            return []
        keys = [
            key
            for key, record in self.records.items()
            if now - record.ts_ms > old and self._may_go(record, now, rules)
        ]
        return [RecordsDropped(now, keys)]

    def ack(self, given: Mapping[str, Any], now: int, rules: InboxRules) -> list[Change]:
        """Acknowledge a message; of an unknown one nothing is noted.

        Raises:
            UsageError: there is no such stage.
        """
        stage = parse_stage(given.get("ack_stage", AckStage.UNSPECIFIED))
        direction = given.get("direction")
        record = self.find(str(given.get("ack_for_message_id")), direction)
        if record is None:
            return []
        return [
            RecordAcked(
                now,
                record.message_id,
                record.direction,
                int(stage),
                int(given.get("error_code", 0)),
                str(given.get("note", "")),
                _counts(record.ack_stage, stage, rules.late_ack),
            )
        ]

    def time_out(self, now: int, timeout_ms: int) -> list[Change]:
        """End the outgoing messages that nobody received in time."""
        return [
            RecordAcked(
                now, record.message_id, "out", AckStage.TIMED_OUT, ACK_TIMEOUT, "ack_timeout", True
            )
            for record in self.open.values()
            if record.direction == "out"
            and record.ack_stage == AckStage.UNSPECIFIED
            and now - record.ts_ms > timeout_ms
        ]

    def begin(
        self, name: str, direction: Direction, now: int, rules: InboxRules, *, again: bool = False
    ) -> Begun:
        """Whether the caller is the one to process what this token stands for."""
        token = self.find_token(name, now, rules, direction)
        if token is None:
            return Begun(status="NEW", token=name)
        record = self.record_of(token)
        stage = token.stage if record is None or token.stage else record.ack_stage
        if token.success is not None:
            stage = AckStage.FULFILLED
        if stage >= AckStage.FULFILLED and not (again and stage != AckStage.FULFILLED):
            return Begun(
                status="DUPLICATE",
                token=name,
                record=record,
                stage=AckStage(stage),
                outcome=token.outcome,
                at=token.ended_at,
            )
        if token.is_begun and not again:
            return Begun(status="ALREADY_IN_PROGRESS", token=name, record=record, at=token.at)
        return Begun(status="NEW", token=name, record=record)


def put_of(record: PersistentActivityRecord, at: int) -> RecordPut:
    """A record as the change that makes it."""
    return RecordPut(
        at,
        record.message_id,
        record.direction,
        record.envelope,
        record.ts_ms,
        int(record.ack_stage),
        record.error_code,
        record.ack_note,
    )


def _counts(before: int, stage: AckStage, late: LateAck) -> bool:
    """Whether an acknowledgement changes the stage: never backwards, and never after the end."""
    if before >= AckStage.FULFILLED:
        is_truth = before == AckStage.TIMED_OUT and stage >= AckStage.FULFILLED
        return late == "truth" and is_truth and stage != before
    return stage > before
