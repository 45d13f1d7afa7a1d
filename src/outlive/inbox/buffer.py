"""The inbox: messages that came and went, each durable when the call returns that recorded it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from outlive.app.app import App
from outlive.app.handle import Handle
from outlive.engine.definitions import Flow
from outlive.errors import UsageError
from outlive.inbox.backends import (
    JSONFilePersistence,
    PersistenceBackend,
    open_log,
    read_file,
    write_file,
)
from outlive.inbox.records import (
    AckStage,
    Change,
    Cleared,
    Direction,
    PersistentActivityRecord,
    StateSet,
    TokenBegun,
    TokenEnded,
    checked_id,
    checked_text,
    token_of,
)
from outlive.inbox.state import (
    WARNING_SHARE,
    Begun,
    InboxRules,
    InboxState,
    LateAck,
    Overflow,
    put_of,
)
from outlive.model.ids import digest

logger = logging.getLogger("outlive.inbox")

T = TypeVar("T")
MAX_ITEMS = 10_000
WINDOW_SECONDS = 3600
ACK_TIMEOUT_SECONDS = 10.0
_HOUR_MS = 3_600_000
_RUN_NOTE = "run "
#: By the status of a run that has ended: the stage of its message.
_ENDS = {
    "completed": AckStage.FULFILLED,
    "failed": AckStage.FAILED,
    "cancelled": AckStage.REJECTED,
    "quarantined": AckStage.FAILED,
}


class PersistentActivityBuffer:
    """Messages in both directions, with their acknowledgements, shared by any number of processes.

    What a call recorded is durable when it returns. Verbs are plain: they may be called from any
    thread, also where a loop runs. A token is never forgotten within ``dedup_window_s``.
    """

    def __init__(  # noqa: PLR0913 - SW4RM's, and those of its planned list
        self,
        *,
        persistence: PersistenceBackend | None = None,
        dedup_window_s: float = WINDOW_SECONDS,
        max_items: int = MAX_ITEMS,
        strategy: object = None,
        overflow: Overflow = "reject",
        late_ack: LateAck = "keep",
        retention_hours: float | None = None,
        cleanup_interval: float = 3600,
    ) -> None:
        self._rules = _rules(
            max_items=max_items,
            dedup_window_s=dedup_window_s,
            retention_hours=retention_hours,
            cleanup_interval=cleanup_interval,
            choices=(overflow, late_ack),
        )
        #: SW4RM accepts one, and never calls it.
        self.strategy = strategy
        self.dedup_window_s = dedup_window_s
        self._persistence: PersistenceBackend = persistence or JSONFilePersistence()
        self._is_warned = False
        #: SW4RM's own code reads and sets it; nothing waits to be saved.
        self._dirty = False
        self._log = open_log(self._persistence, self._adopt)
        self._log.look(lambda messages: None)

    def _adopt(self, record: PersistentActivityRecord) -> None:
        record.attach(self.ack)

    # what SW4RM's code reads

    @property
    def _by_id(self) -> dict[str, PersistentActivityRecord]:
        return self._log.look(lambda messages: messages.by_id)

    @property
    def _order(self) -> deque[str]:
        return self._log.look(lambda a: deque(r.message_id for r in a.records.values()))

    @property
    def _max_items(self) -> int:
        return self._rules.max_items

    # recording

    def record_incoming(self, envelope: Mapping[str, Any]) -> PersistentActivityRecord:
        """Record a message that came; one that is here already is only counted.

        Raises:
            BufferFullError: there is no room.
        """
        return self._record([envelope], "in")[0]

    def record_outgoing(self, envelope: Mapping[str, Any]) -> PersistentActivityRecord:
        """Record a message before it is sent."""
        return self._record([envelope], "out")[0]

    def record_many(
        self, envelopes: Iterable[Mapping[str, Any]], direction: Direction = "in"
    ) -> list[PersistentActivityRecord]:
        """Record many messages with one flush: all of them, or none."""
        if direction not in ("in", "out"):
            raise UsageError(f"direction={direction!r}: it is 'in' or 'out'")
        return self._record(list(envelopes), direction)

    def _record(
        self, envelopes: Sequence[Mapping[str, Any]], direction: Direction
    ) -> list[PersistentActivityRecord]:
        names = [checked_id(envelope) for envelope in envelopes]

        def decide(messages: InboxState, now: int) -> list[Change]:
            return messages.put(envelopes, direction, now, self._rules)

        def answer(messages: InboxState) -> list[PersistentActivityRecord]:
            self._warn(len(messages.records))
            return [messages.records[direction, name] for name in names]

        return self._log.append(decide, answer)

    def _warn(self, size: int) -> None:
        is_near = size >= WARNING_SHARE * self._rules.max_items
        if is_near and not self._is_warned:
            logger.warning(
                "the inbox has %d of at most %d messages; when it is full, new ones are refused",
                size,
                self._rules.max_items,
            )
        self._is_warned = is_near

    def ack(self, ack: Mapping[str, Any]) -> PersistentActivityRecord | None:
        """Note an acknowledgement: ``ack_for_message_id``, ``ack_stage``, ``error_code``, ``note``.

        A stage never goes backwards, and nothing follows a terminal one; what comes all the same
        is kept in the record's ``ack_history``. None: there is no such message.
        """
        target = str(ack.get("ack_for_message_id"))
        return self._log.append(
            lambda messages, now: messages.ack(ack, now, self._rules),
            lambda messages: messages.find(target, ack.get("direction")),
        )

    def update_state(self, message_id: str, new_state: int) -> PersistentActivityRecord | None:
        """Change the envelope's own state. None: there is no such message."""

        def decide(messages: InboxState, now: int) -> list[Change]:
            record = messages.find(message_id)
            if record is None:
                return []
            return [StateSet(now, record.message_id, record.direction, int(new_state))]

        return self._log.append(decide, lambda messages: messages.find(message_id))

    def time_out(self, timeout_s: float = ACK_TIMEOUT_SECONDS) -> list[PersistentActivityRecord]:
        """End outgoing messages that nobody received in time, as TIMED_OUT; those."""
        ended: list[Any] = []

        def decide(messages: InboxState, now: int) -> list[Change]:
            changes = messages.time_out(now, round(timeout_s * 1000))
            ended[:] = changes
            return changes

        return self._log.append(
            decide, lambda messages: [messages.records["out", each.message_id] for each in ended]
        )

    # tokens

    def begin(
        self, token: str | Mapping[str, Any], *, direction: Direction = "in", again: bool = False
    ) -> Begun:
        """Whether the caller is the one to process what a token stands for: ask, and begin.

        Of any number of callers, in any number of processes, one gets ``NEW``; the others
        ``ALREADY_IN_PROGRESS``, and once it has ended ``DUPLICATE`` with the earliest success.
        Given an envelope instead of a token, a new one is recorded in the same commit. ``again``
        is for recovery: what is in progress or has failed may be begun once more.
        """
        envelope = None if isinstance(token, str) else token
        name = checked_text(token, "token") if envelope is None else token_of(envelope)
        if envelope is not None:
            checked_id(envelope)
            name = name or str(envelope["message_id"])
        if not name:
            raise UsageError("begin needs a token, which is not an empty text")
        found: list[Begun] = []

        def decide(messages: InboxState, now: int) -> list[Change]:
            found[:] = [messages.begin(name, direction, now, self._rules, again=again)]
            changes: list[Change] = []
            if envelope is not None:
                changes += messages.put([envelope], direction, now, self._rules)
            if found[0].is_new:
                is_fresh = messages.is_reused(name, direction, now, self._rules)
                is_fresh = is_fresh and envelope is None
                changes.append(TokenBegun(now, name, direction, is_fresh))
            return changes

        self._log.append(decide, lambda messages: None)
        return found[0]

    def end(
        self,
        token: str,
        outcome: Any = None,
        *,
        stage: int = AckStage.FULFILLED,
        direction: Direction = "in",
    ) -> None:
        """End what ``begin(token)`` began, with an outcome for its duplicates.

        The first end counts. A token with a message is ended by the message's ``ack``, too.
        """

        def decide(messages: InboxState, now: int) -> list[Change]:
            seen = messages.begin(token, direction, now, self._rules)
            if seen.status == "DUPLICATE":
                return []
            return [TokenEnded(now, token, direction, int(AckStage(stage)), outcome)]

        self._log.append(decide, lambda messages: None)

    def get_by_idempotency_token(
        self, token: str, direction: Direction | None = None
    ) -> PersistentActivityRecord | None:
        """The message by which a token is known, within its window.

        Of several attempts it is the one that was fulfilled first.
        """

        def view(messages: InboxState) -> PersistentActivityRecord | None:
            known = messages.find_token(token, self._log.now_ms(), self._rules, direction)
            return None if known is None else messages.record_of(known)

        return self._log.look(view)

    # runs

    async def deliver(
        self, flow: Flow[..., Any], envelope: Mapping[str, Any], *, app: App | None = None
    ) -> Handle[Any]:
        """Record a message that came and start a run for it, once per token; the run's handle.

        The run gets the envelope. Whoever delivers the message again, after a crash or because an
        ACK was lost, gets the same run: what it did is not repeated. Acknowledges READ, and the
        run's end once it has one; ``settle`` does that later. ``app`` need not be given if the
        inbox was made on one: ``StorePersistence(app)``.
        """
        app = self._app(app)
        record = await asyncio.to_thread(self.record_incoming, envelope)
        run_id = await asyncio.to_thread(self._run_of, record)
        handle: Handle[Any] = await app.ensure(flow, dict(record.envelope), id=run_id)
        note = f"{_RUN_NOTE}{handle.id}"
        await asyncio.to_thread(record.ack, AckStage.READ, 0, note)
        await self._settle(record, handle)
        return handle

    async def settle(self, app: App | None = None) -> int:
        """Acknowledge the messages whose runs have ended; their number."""
        app, count = self._app(app), 0
        for record in self.reconcile("in"):
            if record.ack_note.startswith(_RUN_NOTE):
                handle = await app.get(record.ack_note.removeprefix(_RUN_NOTE))
                count += await self._settle(record, handle)
        return count

    async def _settle(self, record: PersistentActivityRecord, handle: Handle[Any]) -> bool:
        stage = _ENDS.get(await handle.status())
        if stage is None or record.is_terminal:
            return False
        await asyncio.to_thread(record.ack, stage, 0, f"{_RUN_NOTE}{handle.id}")
        return True

    def _app(self, app: App | None) -> App:
        found = app or getattr(self._persistence, "app", None)
        if found is None:
            raise UsageError(
                "which app starts the run? deliver(..., app=app), or make the inbox on one: "
                "PersistentActivityBuffer(persistence=StorePersistence(app))"
            )
        return found

    def _run_of(self, record: PersistentActivityRecord) -> str:
        """The id of a message's run: that of the first attempt with its token."""
        token = token_of(record.envelope)

        def view(messages: InboxState) -> str:
            known = messages.tokens.get(("in", token)) if token else None
            return record.message_id if known is None else known.origin

        origin = self._log.look(view)
        return f"message-{digest(f'{origin}/{token}'.encode()).hex()}"

    # questions

    def get(
        self, message_id: str, direction: Direction | None = None
    ) -> PersistentActivityRecord | None:
        """A message by its id."""
        return self._log.look(lambda messages: messages.find(message_id, direction))

    def find_by_correlation_id(self, correlation_id: str) -> list[PersistentActivityRecord]:
        """The messages that belong together, the oldest first."""

        def view(messages: InboxState) -> list[PersistentActivityRecord]:
            keys = messages.correlated.get(correlation_id, ())
            return [messages.records[key] for key in keys]

        return self._log.look(view)

    def unacked(self) -> list[PersistentActivityRecord]:
        """The messages without a terminal stage, the oldest first."""
        return self._log.look(lambda messages: list(messages.open.values()))

    def reconcile(self, direction: Direction | None = None) -> list[PersistentActivityRecord]:
        """What was not fully processed; with ``direction="out"`` as SW4RM 0.6.0 means it."""
        return [each for each in self.unacked() if direction in (None, each.direction)]

    def recover(self, handle: Callable[[PersistentActivityRecord], object]) -> int:
        """Call this for each message that was not fully processed; their number."""
        found = self.reconcile()
        for record in found:
            handle(record)
        return len(found)

    def recent(self, n: int = 50) -> list[PersistentActivityRecord]:
        """The newest messages, the newest last."""

        def view(messages: InboxState) -> list[PersistentActivityRecord]:
            newest = reversed(messages.records.values())
            found = [record for record, _ in zip(newest, range(max(0, n)), strict=False)]
            return found[::-1]

        return self._log.look(view)

    def __len__(self) -> int:
        return self._log.look(lambda messages: len(messages.records))

    def __bool__(self) -> bool:
        return True

    def get_statistics(self) -> dict[str, Any]:
        """Counts: total, pending, duplicates, the oldest, and how full it is."""

        def view(messages: InboxState) -> dict[str, Any]:
            size, most = len(messages.records), self._rules.max_items
            oldest = next(iter(messages.records.values()), None)
            stages = dict.fromkeys((stage.name for stage in AckStage), 0)
            for record in messages.records.values():
                stages[AckStage(record.ack_stage).name] += 1
            return {
                "total_entries": size,
                "pending_count": len(messages.open),
                "duplicate_count": messages.duplicates,
                "tokens": len(messages.tokens),
                "oldest_ts_ms": None if oldest is None else oldest.ts_ms,
                "by_stage": stages,
                "max_items": most,
                "usage": size / most,
                "warning": size >= WARNING_SHARE * most,
            }

        return self._log.look(view)

    # upkeep

    def cleanup(self) -> int:
        """Forget what has ended and is older than ``retention_hours``; the number of those."""
        counts: list[int] = []

        def decide(messages: InboxState, now: int) -> list[Change]:
            changes = messages.cleanup(now, self._rules, is_due=True)
            counts[:] = [len(getattr(each, "keys", ())) for each in changes]
            return changes

        self._log.append(decide, lambda messages: None)
        return sum(counts)

    def flush(self) -> None:
        """Bring the file that SW4RM reads up to date; all else is durable already.

        Raises:
            StoreError, OSError: it can't be written.
        """
        self._log.flush()
        self._dirty = False

    def clear(self) -> None:
        """Forget everything."""
        self._log.append(lambda messages, now: [Cleared(now)], lambda messages: None)
        self._log.flush()

    def import_records(self, path: str | os.PathLike[str]) -> int:
        """Take over the messages in a JSON or SQLite file of SW4RM's; the number of new ones.

        Those that are here already stay as they are.
        """
        given = read_file(Path(path))
        new: list[Change] = []

        def decide(messages: InboxState, now: int) -> list[Change]:
            new[:] = [
                put_of(each, each.ts_ms) for each in given if each.key not in messages.records
            ]
            return new

        self._log.append(decide, lambda messages: None)
        return len(new)

    def export_records(self, path: str | os.PathLike[str]) -> int:
        """Write all messages as SW4RM reads them; their number.

        SQLite if the name of the file ends in ``.sqlite3``, ``.sqlite`` or ``.db``, else JSON.
        """
        return self._log.look(lambda messages: write_file(Path(path), messages))

    def close(self) -> None:
        """Save, and close what was opened."""
        self.flush()
        close = getattr(self._persistence, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.flush()


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _rules(
    *,
    max_items: int,
    dedup_window_s: float,
    retention_hours: float | None,
    cleanup_interval: float,
    choices: tuple[Overflow, LateAck],
) -> InboxRules:
    overflow, late_ack = choices
    if type(max_items) is not int or max_items < 1:
        raise UsageError(f"max_items={max_items!r}: it is a number of messages, at least 1")
    for name, given in (
        ("dedup_window_s", dedup_window_s),
        ("retention_hours", 0 if retention_hours is None else retention_hours),
        ("cleanup_interval", cleanup_interval),
    ):
        if not _is_number(given) or given < 0:
            raise UsageError(f"{name}={given!r}: it is a number, not below 0")
    if overflow not in ("reject", "drop_oldest"):
        raise UsageError(f"overflow={overflow!r}: it is 'reject' or 'drop_oldest'")
    if late_ack not in ("keep", "truth"):
        raise UsageError(f"late_ack={late_ack!r}: it is 'keep' or 'truth'")
    return InboxRules(
        max_items=max_items,
        window_ms=round(dedup_window_s * 1000),
        late_ack=late_ack,
        overflow=overflow,
        retention_ms=None if retention_hours is None else round(retention_hours * _HOUR_MS),
        cleanup_ms=round(cleanup_interval * 1000),
    )
