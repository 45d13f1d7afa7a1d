"""What happens between a run and its children."""

from __future__ import annotations

import msgspec

from outlive.model.beside import Fault


class ChildIntended(msgspec.Struct, frozen=True, array_like=True, tag=60):
    """A child run is about to be started. Durable before it is."""

    at: int
    step: str
    child_id: str
    flow: str
    args: bytes
    digest: bytes
    #: The flow waits for its outcome, and it ends with this run.
    is_awaited: bool


class ChildSpawned(msgspec.Struct, frozen=True, array_like=True, tag=61):
    """A child was started, durably. *Delivered.*"""

    at: int
    step: str
    child_id: str


class ChildEnded(msgspec.Struct, frozen=True, array_like=True, tag=62):
    """A child that was waited for ended, or could not be started. *Delivered.*"""

    at: int
    step: str
    child_id: str
    #: How it ended; "refused": it could not be started.
    status: str
    value: bytes
    error: Fault | None


class ParentTold(msgspec.Struct, frozen=True, array_like=True, tag=63):
    """The outcome was posted to the parent; only now the run has ended for good."""

    at: int
