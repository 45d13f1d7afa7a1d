"""Faults: at seeded instants, and aimed at events of every kind.

A fault is *aimed* when it waits for the commit of an event of one kind and strikes at one moment
of it: when it is sent, when it is in the store and not yet answered, or when it was answered. So
every kind of event meets every kind of fault within a bounded number of seeds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from outlive.model import checkpoints, logs
from outlive.model.events import Forked, ForkMade
from outlive.model.kinds import KINDS
from outlive.model.retention import Retention
from outlive.stores.types import Entry
from outlive.testing.simulation.loop import Nature

FaultKind: TypeAlias = Literal[
    "crash", "silent_crash", "pause", "lost_reply", "slow_store", "store_down", "clock_jump"
]
FAULTS: tuple[FaultKind, ...] = get_args(FaultKind)
#: Forks are made at any time in some seeds, and no fault is aimed at them; nobody has checkpoints
#: or logs.
_SHARED = (checkpoints.__name__, logs.__name__)
_UNAIMED = (Forked, ForkMade, *(kind for kind in KINDS if kind.__module__ in _SHARED))
EVENTS: tuple[str, ...] = tuple(sorted(kind.__name__ for kind in KINDS if kind not in _UNAIMED))
#: Every kind of event with every kind of fault: what the seeds must cover.
PAIRS: tuple[tuple[str, FaultKind], ...] = tuple(
    (event, fault) for event in EVENTS for fault in FAULTS
)
#: Faults of the store's answers, not of a process.
STORE_FAULTS: frozenset[FaultKind] = frozenset({"lost_reply", "slow_store", "store_down"})
#: Faults of one process.
PROCESS_FAULTS: tuple[FaultKind, ...] = tuple(f for f in FAULTS if f not in STORE_FAULTS)

Moment: TypeAlias = Literal["sent", "applied", "told"]

#: Faults begin within this time; afterwards everything heals and must come to an end.
FAULTY_SECONDS = 40.0
#: The share of seeds in which ended runs go.
RETAINING = 0.25
#: The share of seeds in which nearly everything goes wrong.
ROUGH = 0.15
#: The share of seeds in which no two clocks agree, and the store's server has the one that counts.
SKEWED = 0.25
SKEWS_MS = (-10_800_000, -4_000, 4_000, 10_800_000)
#: The share of seeds in which somebody forges letters, and flips bits of others.
FORGED = 0.1
JUMP_MS = 3_600_000


@dataclass(slots=True, kw_only=True)
class Aim:
    """A fault that waits for its event."""

    event: str
    fault: FaultKind
    moment: Moment
    #: The number of such commits that pass before it strikes.
    passes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A fault of one commit."""

    fault: FaultKind
    moment: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """The plan of a seed."""

    aims: tuple[Aim, ...]
    #: (when, what): faults that strike whoever is there.
    at: tuple[tuple[float, FaultKind], ...]
    #: Crash whoever claims this run, so many times in a row.
    poison: tuple[str, int] | None
    #: Runs that somebody wants to stop.
    cancels: tuple[str, ...]
    #: Of some runs, after how many seconds they must be over.
    deadlines: dict[str, float]
    #: The probability that somebody who sees a failed run retries it.
    retrying: float
    #: The probability that somebody who looks writes to a run that may wait for it.
    chatter: float
    #: The probability that a human who looks says something that nobody asked for.
    meddling: float
    #: The times at which some process stops in good order.
    leaving: tuple[float, ...]
    #: The probability that a process is struck just before or after an effect's body.
    misfortune: float
    workers: int
    lease_seconds: float
    poll_seconds: float
    idle_ms: int
    #: The retention rules, if any, and the period of sweeps.
    retention: Retention | None
    retain_seconds: float


def skew_of(seed: int, process: str) -> int | None:
    """The offset of a process's clock from its server's; None: all use one clock."""
    if random.Random(f"skewed {seed}").random() > SKEWED:
        return None
    return random.Random(f"skewed {seed} {process}").choice(SKEWS_MS)


def is_forged(seed: int) -> bool:
    """Whether somebody writes past the processes of a seed."""
    return random.Random(f"forged {seed}").random() < FORGED


def aimed_at(seed: int) -> tuple[str, FaultKind]:
    """The pair that a seed's first fault is aimed at; one seed after the other covers them all."""
    return PAIRS[seed % len(PAIRS)]


def make_plan(nature: Nature, runs: Sequence[str]) -> FaultPlan:
    """The faults of a seed. The first aim goes through all pairs, seed by seed."""
    rng = nature.rng
    event, fault = aimed_at(nature.seed)
    aims = [_aim(nature, event, fault, soon=True)]
    is_rough = nature.chance(ROUGH)
    for _ in range(rng.choice((2, 4, 8) if is_rough else (0, 0, 1, 1, 2, 3))):
        event, fault = rng.choice(PAIRS)
        aims.append(_aim(nature, event, fault, soon=False))
    faults = rng.choice((3, 6, 10) if is_rough else (0, 1, 2, 3))
    times = sorted(rng.random() ** 2 * FAULTY_SECONDS for _ in range(faults))
    leaving = rng.choice((0, 2, 4) if is_rough else (0, 0, 1, 2))
    wants_poison = aims[0].event == "RunQuarantined" or nature.chance(0.02)
    return FaultPlan(
        aims=tuple(aims),
        at=tuple((when, rng.choice(FAULTS)) for when in times),
        poison=(rng.choice(runs), 5) if wants_poison else None,
        cancels=_some(nature, runs, aims[0].event in ("CancelRequested", "RunCancelled")),
        deadlines={
            run_id: rng.choice((0.5, 3.0, 15.0, 60.0, 1800.0))
            for run_id in _some(nature, runs, aims[0].event == "DeadlinePassed")
        },
        retrying=0.7 if aims[0].event == "RunRetried" else rng.choice((0.0, 0.1, 0.3)),
        chatter=rng.choice((0.05, 0.3, 0.8)),
        meddling=0.6 if aims[0].event == "MailRead" else rng.choice((0.05, 0.05, 0.4)),
        leaving=tuple(rng.uniform(0.0, 20.0) for _ in range(leaving)),
        misfortune=rng.choice((0.05, 0.2, 0.5) if is_rough else (0.0, 0.0, 0.1, 0.3)),
        workers=rng.choice((2, 2, 3, 4)),
        lease_seconds=rng.choice((3.0, 4.0, 6.0)),
        poll_seconds=rng.choice((0.6, 1.0, 1.5)),
        idle_ms=rng.choice((0, 400, 700, 2000)),
        retention=_retention(nature.seed, aims[0].event),
        retain_seconds=1.0 + nature.seed % 3,
    )


def _retention(seed: int, event: str) -> Retention | None:
    """In some seeds what ended goes, soon; ids and keys stay taken for longer than any seed."""
    rng = random.Random(f"retention {seed}")
    if event not in ("KeyKept", "Marked") and rng.random() > RETAINING:
        return None
    is_soon = event == "KeyKept"
    ages = (0, "2s") if is_soon else (0, "2s", "1h", None)
    return Retention(
        completed=0 if is_soon else rng.choice((0, "3s")),
        failed=rng.choice(ages),
        cancelled=rng.choice(ages),
        keep_last=0 if is_soon else rng.choice((0, 0, 1)),
        ttl=rng.choice((None, None, None, "1h")),
        id_window="3650d",
    )


def _some(nature: Nature, runs: Sequence[str], is_wanted: bool) -> tuple[str, ...]:
    """All runs where that is wanted, else few."""
    return tuple(run_id for run_id in runs if is_wanted or nature.chance(0.06))


def _aim(nature: Nature, event: str, fault: FaultKind, *, soon: bool) -> Aim:
    rng = nature.rng
    moment: Moment = rng.choice(get_args(Moment))
    if fault in STORE_FAULTS:
        moment = "sent"
    passes = 0 if soon else rng.choice((0, 0, 1, 2, 4))
    return Aim(event=event, fault=fault, moment=moment, passes=passes)


class Marksman:
    """Holds the aims of a seed and says which commit is struck."""

    def __init__(self, plan: FaultPlan) -> None:
        self._aims = list(plan.aims)
        self._poisoned, self._doses = plan.poison or ("", 0)

    def strikes(self, batch: Sequence[Entry], kinds: frozenset[str]) -> Iterator[Strike]:
        """Yield the faults of a commit that carries these kinds of events."""
        if self._is_poison(batch, kinds):
            yield Strike(fault="crash", moment="applied")
        for aim in list(self._aims):
            if aim.event not in kinds:
                continue
            if aim.passes:
                aim.passes -= 1
                continue
            self._aims.remove(aim)
            yield Strike(fault=aim.fault, moment=aim.moment)

    def _is_poison(self, batch: Sequence[Entry], kinds: frozenset[str]) -> bool:
        """It kills whoever runs its code: at its first claim, or where a later one says so."""
        own = [entry for entry in batch if entry.run_id == self._poisoned]
        is_first = any(entry.lease == "take" and entry.epoch == 1 for entry in own)
        is_later = "DriveBegan" in kinds and any(entry.lease == "keep" for entry in own)
        if not self._doses or not (is_first or is_later):
            return False
        self._doses -= 1
        return True

    def put_down(self) -> None:
        """No further fault."""
        self._aims.clear()
        self._doses = 0
