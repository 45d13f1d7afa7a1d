"""Messages that agents send one another: recorded, deduplicated, acknowledged."""

from outlive.inbox.backends import (
    ActivityBufferLoadError,
    JSONFilePersistence,
    PersistenceBackend,
    SQLitePersistence,
    StorePersistence,
)
from outlive.inbox.buffer import PersistentActivityBuffer
from outlive.inbox.records import (
    AckEvent,
    AckStage,
    ActivityRecord,
    BufferFullError,
    PersistentActivityRecord,
    is_terminal_state,
)
from outlive.inbox.state import Begun

__all__ = [
    "AckEvent",
    "AckStage",
    "ActivityBufferLoadError",
    "ActivityRecord",
    "Begun",
    "BufferFullError",
    "JSONFilePersistence",
    "PersistenceBackend",
    "PersistentActivityBuffer",
    "PersistentActivityRecord",
    "SQLitePersistence",
    "StorePersistence",
    "is_terminal_state",
]
