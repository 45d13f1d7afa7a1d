"""Events of checkpoints as rows: what was saved, restored, taken back."""

from __future__ import annotations

from typing import assert_never

from outlive.model.checkpoint_events import (
    CheckpointsBegan,
    CheckpointsCleared,
    CheckpointsEnded,
    OfCheckpoints,
    RolledBack,
    SnapshotRestored,
    SnapshotSaved,
)


def of_checkpoints(event: OfCheckpoints) -> dict[str, object]:
    """What people want to see of such an event."""
    match event:
        case CheckpointsBegan():
            origin = event.origin
            forked = "" if origin is None else f", forked from run {origin.run_id}"
            return {
                "what": "checkpoints began",
                "args": event.metadata,
                "note": f"of run {event.run_id}{forked}",
            }
        case SnapshotSaved():
            schema = f", schema {event.schema}" if event.schema else ""
            note = f"{event.size} bytes{schema}"
            return {"what": "saved", "step": event.step, "value": event.state, "note": note}
        case SnapshotRestored():
            held = f", by {event.holder} alone" if event.holder else ""
            note = f"from seq {event.seq}{held}" if event.seq else f"from the beginning{held}"
            return {"what": "restored", "step": event.step, "note": note}
        case RolledBack():
            why = f": {event.why}" if event.why else ""
            return {"what": "rolled back", "step": event.step, "note": f"to seq {event.seq}{why}"}
        case CheckpointsEnded():
            return {"what": event.status, "note": event.error}
        case CheckpointsCleared():
            return {"what": "cleared", "note": f"{event.count} snapshots"}
        case _:
            assert_never(event)
