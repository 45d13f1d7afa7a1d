"""The state of a run, and its statuses: what the fold of a journal leads to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from outlive.model.brief import Brief
from outlive.model.events import (
    ChapterBegan,
    ChildIntended,
    Fault,
    KeyHeld,
    KeyKept,
    Marked,
    QuestionAsked,
    RunStarted,
)
from outlive.model.opened import Backoff, OpenEffect

Status: TypeAlias = Literal[
    "pending",
    "running",
    "waiting",
    "in_doubt",
    "undoing",
    "completed",
    "failed",
    "cancelled",
    "quarantined",
]
STATUSES: tuple[str, ...] = get_args(Status)
#: Nothing happens to a run after these.
ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled"})


@dataclass(slots=True)
class Run:
    """The state of a run, as far as anyone needs it."""

    started: RunStarted | None = None
    status: Status = "pending"
    seq: int = 0
    epoch: int = 0
    #: ms since the run's start of the newest event.
    at: int = 0
    #: ms since 1970; 0 is "at once", None "only by mail".
    wake_at: int | None = 0
    ended_at: int | None = None
    reason: str = ""
    #: While it is parked: the signals that it waits for, as far as is known.
    signals: tuple[str, ...] = ()
    #: Claims in a row, the last one included, in which something of the run was tried and nothing
    #: new became durable.
    barren: int = 0
    #: Its code was about to be run in the last claim, which was not the first of these.
    is_tried: bool = False
    #: Nothing new became durable between the last claim and the one before it.
    is_claimed_again: bool = False
    effects: dict[str, OpenEffect] = field(default_factory=dict)
    backoffs: dict[str, Backoff] = field(default_factory=dict)
    #: Asked and not answered.
    questions: dict[str, QuestionAsked] = field(default_factory=dict)
    value: bytes | None = None
    error: Fault | None = None
    holder: KeyHeld | None = None
    kept: KeyKept | None = None
    marked: Marked | None = None
    #: Children begun and not ended, and which of them were started.
    children: dict[str, ChildIntended] = field(default_factory=dict)
    children_started: set[str] = field(default_factory=set)
    is_undoing: bool = False
    #: How the last chapter began; None: the first one goes on.
    chapter: ChapterBegan | None = None
    #: Places at which the flow took the new way.
    patches: set[str] = field(default_factory=set)
    #: It left memory and waits; nobody holds its lease.
    is_parked: bool = False
    #: The outcome is there; the parent has to be told before the run counts as ended.
    tells_parent: bool = False
    #: Where its last end stands, and how often it was tried again.
    end_seq: int = 0
    tries: int = 0
    #: Something that a header shows has changed since it was last made.
    header_is_stale: bool = True
    #: Of a journal that is no run's: what its header shows.
    brief: Brief | None = None

    @property
    def start(self) -> RunStarted:
        """The first event; there is one in every journal of a run."""
        assert self.started is not None, "the journal does not begin with RunStarted"
        return self.started

    @property
    def shown_status(self) -> Status:
        """What people are shown: a doubt that waits for them comes before all else."""
        asks = any(effect.asks for effect in self.effects.values())
        under_way = self.status in ("running", "waiting", "undoing")
        return "in_doubt" if asks and under_way else self.status

    @property
    def is_held(self) -> bool:
        """Its driver keeps the lease."""
        is_driven = self.status in ("pending", "running", "undoing") and not self.is_parked
        return self.tells_parent or is_driven
