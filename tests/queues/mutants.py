"""Known-bad variants of limited queues, and the simulated workers that find them out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlive.journal.lane import run_immediate
from outlive.ports import Ports
from outlive.stores import queues as gate
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from outlive.testing.suite.entries import LEASE_SECONDS, HandClock
from tests.queues import simulated
from tests.queues.simulated import Simulation
from tests.seeds import Kills

Make = Callable[[HandClock], Store]
Mutant = Callable[[pytest.MonkeyPatch], None]

RUNS, RUNS_LONG = 60, 500
#: Whoever is healthy has ended everything long before.
END_SECONDS = 400.0


def in_memory(clock: HandClock) -> Store:
    return MemoryStore(ports=Ports(clock=clock), lease_seconds=LEASE_SECONDS)


def play(seed: int, make_store: Make, runs: int = RUNS) -> Simulation:
    simulation = Simulation(seed, make_store)
    simulation.run(runs)
    run_immediate(simulation.store.close())
    return simulation


def check(seed: int, simulation: Simulation, runs: int = RUNS) -> None:
    judge = simulation.judge
    assert not judge.broken, f"seed {seed}: {judge.broken}"
    unended = set(judge.places) - judge.ended
    assert runs == len(judge.ended), f"seed {seed}: {sorted(unended)} never ended"


def off_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gate, "_reaches", lambda held, limit: limit is not None and held > limit)


def free_of_charge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gate.Load, "_affords", lambda self, units: True)


def too_dear_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gate.Load, "cost", lambda self, units: units)


def half_a_window(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        gate,
        "first_slice_at",
        lambda limits, now: gate.slice_at(limits, now) - 10 * gate.slice_ms(limits),
    )


def not_atomic(patch: pytest.MonkeyPatch) -> None:
    """Only the look is limited, not the commit."""
    patch.setattr("outlive.stores.memory.is_gated", lambda entry: False)


def strict_priorities(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gate.Turn, "is_of_the_oldest", False)


def a_clock_that_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("outlive.stores.memory.MemoryQueues._mend_clock", lambda self, queue, now: None)


MUTANTS: dict[str, Mutant] = {
    mutant.__name__: mutant
    for mutant in (
        off_by_one,
        free_of_charge,
        too_dear_for_ever,
        half_a_window,
        not_atomic,
        a_clock_that_is_believed,
        strict_priorities,
    )
}


def kills(mutant: str) -> Kills:
    """Whether a seed shows that something is wrong, with as many runs as this mutant needs."""
    runs = RUNS_LONG if mutant == strict_priorities.__name__ else RUNS

    def is_broken(seed: int) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(simulated, "END_SECONDS", END_SECONDS)
            try:
                check(seed, play(seed, in_memory, runs), runs)
            except AssertionError:
                return True
            return False

    return is_broken
