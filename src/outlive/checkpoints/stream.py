"""The journal of a run's checkpoints as a stream of named events, for dashboards and diagnosis.

Each event is told under two names where the document has two: what was saved is
``run.snapshot.saved`` and ``checkpoint.saved``, what was restored ``run.resume`` and
``checkpoint.restored``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, assert_never

import msgspec

from outlive.checkpoints.schema import decode
from outlive.checkpoints.snapshot import id_of, instant_of, text_of
from outlive.model.checkpoints import (
    Checkpoints,
    CheckpointsBegan,
    CheckpointsCleared,
    CheckpointsEnded,
    OfCheckpoints,
    RolledBack,
    Saved,
    SnapshotRestored,
    SnapshotSaved,
)

#: Where an agent's name is looked for in the metadata.
_AGENT = ("agent_slug", "agent", "slug", "agent_id")
#: What log lines have of an event: nothing that a user wrote but ids.
_LOGGED = (
    "step_id", "snapshot_id", "state_size_bytes", "created_at", "restored_at", "started_at",
    "status", "count", "at",
)  # fmt: skip


def told(events: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """The events of a whole journal, each under its names."""
    if not events:
        return
    first = next((seq for seq, e in enumerate(events, 1) if isinstance(e, SnapshotSaved)), 0)
    teller = _Teller(events[0])
    if first:
        teller.said = decode(events[first - 1].metadata, teller.began.run_id, first)
    for seq, event in enumerate(events, 1):
        for name, has in teller.tell(seq, event):
            yield {"event_type": name, "run_id": teller.began.run_id, "seq": seq, **has}


def logged(fold: Checkpoints, events: Sequence[Any]) -> list[str]:
    """What just happened to a run's checkpoints, a line of JSON each, without what users said."""
    assert fold.began is not None, "something happened"
    teller, first, lines = _Teller(fold.began), fold.seq - len(events) + 1, []
    teller.saved.update({each.seq: each for each in fold.saved})
    for seq, event in enumerate(events, first):
        name, has = teller.tell(seq, event)[-1]
        facts = {key: fact for key, fact in has.items() if key in _LOGGED}
        line = {"event_type": name, "run_id": fold.began.run_id, "seq": seq, **facts}
        lines.append(msgspec.json.encode(line).decode())
    return lines


class _Teller:
    def __init__(self, began: CheckpointsBegan) -> None:
        self.began = began
        #: What the first snapshot says, which may name the agent.
        self.said: dict[str, Any] = {}
        #: Snapshots by their places.
        self.saved: dict[int, Saved] = {}

    def tell(self, seq: int, event: OfCheckpoints) -> list[tuple[str, dict[str, Any]]]:
        match event:
            case CheckpointsBegan():
                return [("run.started", self._started(event))]
            case SnapshotSaved():
                self.saved[seq] = Saved(seq, event)
                return self._saving(seq, event)
            case SnapshotRestored():
                return self._restoring(event)
            case RolledBack():
                has = self._place(event.seq, event.step) | {"at": self._time(event.at)}
                return [("checkpoint.rolled_back", has | {"why": event.why})]
            case CheckpointsEnded():
                has = {"status": event.status, "error": event.error, "at": self._time(event.at)}
                return [("run.ended", has)]
            case CheckpointsCleared():
                return [("run.cleared", {"count": event.count, "at": self._time(event.at)})]
            case _:
                assert_never(event)

    def _started(self, event: CheckpointsBegan) -> dict[str, Any]:
        metadata = decode(event.metadata, event.run_id, 1)
        places = [said.get(key) for said in (metadata, self.said) for key in _AGENT]
        names = [name for name in places if isinstance(name, str)]
        origin = event.origin
        return {
            "agent_slug": names[0] if names else "unknown",
            "metadata": metadata,
            "started_at": self._time(0),
            "forked_from": None if origin is None else origin.run_id,
        }

    def _saving(self, seq: int, event: SnapshotSaved) -> list[tuple[str, dict[str, Any]]]:
        place = self._place(seq, event.step)
        when = event.created_at or self._time(event.at)
        metadata = decode(event.metadata, self.began.run_id, seq)
        message = f"Saved snapshot for step {event.step}"
        saved = {**place, "state_size_bytes": event.size, "created_at": when}
        run = {**place, "metadata": metadata, "message": message, "created_at": when}
        return [("run.snapshot.saved", run), ("checkpoint.saved", saved)]

    def _restoring(self, event: SnapshotRestored) -> list[tuple[str, dict[str, Any]]]:
        when = self._time(event.at)
        if not event.seq:
            return [("run.taken", {"at": when, "holder": event.holder})]
        place = self._place(event.seq, event.step)
        message = f"Resumed run {self.began.run_id} from step {event.step}"
        run = {**place, "message": message, "restored_at": when}
        return [("run.resume", run), ("checkpoint.restored", {**place, "restored_at": when})]

    def _place(self, seq: int, step: str) -> dict[str, Any]:
        saved = self.saved.get(seq)
        return {"step_id": step, "snapshot_id": "" if saved is None else id_of(self.began, saved)}

    def _time(self, at: int) -> str:
        return text_of(instant_of(self.began.started_at + at))
