"""Checkpoints of runs that drive themselves: save the state at a step, continue after a crash.

For loops of your own, where a flow would be too large a change. The calls are those of MAGSAG's
Durable Run; snapshots are kept like everything else here: in journals, each state once, on any
store, sealed if there is a key.
"""

from outlive.checkpoints.agents.cuts import Cut
from outlive.checkpoints.agents.exchange import Exchange, Message
from outlive.checkpoints.auto import AutoRun, current_run
from outlive.checkpoints.backends import (
    PostgresStorageBackend,
    SQLiteStorageBackend,
    StorageBackend,
)
from outlive.checkpoints.files import (
    FileStorage,
    Imported,
    MagsagFile,
    export_snapshots,
    import_snapshots,
)
from outlive.checkpoints.runner import DurableAgentRunner, DurableRunner, restore_cut
from outlive.checkpoints.snapshot import ABSENT, Change, RunSnapshot, SnapshotInfo
from outlive.checkpoints.store import CheckpointedRun, SnapshotStore

__all__ = [
    "ABSENT",
    "AutoRun",
    "Change",
    "CheckpointedRun",
    "Cut",
    "DurableAgentRunner",
    "DurableRunner",
    "Exchange",
    "FileStorage",
    "Imported",
    "MagsagFile",
    "Message",
    "PostgresStorageBackend",
    "RunSnapshot",
    "SQLiteStorageBackend",
    "SnapshotInfo",
    "SnapshotStore",
    "StorageBackend",
    "current_run",
    "export_snapshots",
    "import_snapshots",
    "restore_cut",
]
