"""What a worker works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from outlive.engine.host import Host, Occupation
from outlive.engine.notices import Notices
from outlive.engine.transactions import Transactions
from outlive.errors import OutliveError
from outlive.journal.keeper import Keeper
from outlive.journal.lane import Lane
from outlive.journal.redaction import Hider
from outlive.journal.retention.sweep import Rules
from outlive.model.defaults import DRAIN_SECONDS, IDLE_MS, POLL_SECONDS
from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.worker.heartbeat import LeaseTime, Pulse


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Made by the app."""

    store: Store
    keeper: Keeper
    lane: Lane
    ports: Ports
    host: Host
    lease: LeaseTime
    #: Starts beating for a worker id.
    start_pulse: Callable[[str, Callable[[OutliveError], None]], Pulse]
    idle_ms: int = IDLE_MS
    poll_seconds: float = POLL_SECONDS
    #: How long what runs may take to reach a durable point when the worker is told to stop.
    drain_seconds: float = DRAIN_SECONDS
    #: What transactional steps need; None: the store can't do them.
    transactions: Transactions | None = None
    #: What may be deleted; None: this worker deletes nothing.
    retention: Rules | None = None
    #: What people are told; None: by this worker alone.
    notices: Notices | None = None
    #: What is not recorded.
    hider: Hider = field(default_factory=Hider)
    #: Which run's code the loop is in.
    occupation: Occupation = field(default_factory=Occupation)
