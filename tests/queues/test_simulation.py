"""Limits hold and nobody starves, whatever befalls eight simulated workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from outlive.journal.immediate import run_immediate
from outlive.ports import Ports
from outlive.store import Store
from outlive.stores import gate
from outlive.stores.memory import MemoryStore
from outlive.stores.postgres import PostgresStore
from outlive.stores.sqlite import SQLiteStore
from outlive.testing.store_entries import LEASE_SECONDS, HandClock
from tests.conftest import Figure
from tests.queues import simulated
from tests.queues.simulated import Simulation

Make = Callable[[HandClock], Store]

SEEDS, SEEDS_FULL = 25, 1000
RUNS = 60


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


def test_limits_hold_over_many_seeds(full: bool, figure: Figure) -> None:
    """Through crashes, pauses, lost replies and clocks that jump."""
    faults: Counter[str] = Counter()
    seeds, most = SEEDS_FULL if full else SEEDS, 0
    for seed in range(seeds):
        simulation = play(seed, in_memory)
        check(seed, simulation)
        faults.update(simulation.faults)
        most = max(most, simulation.judge.passed_most)

    figure("queues: seeds of 8 simulated workers, limits exceeded, starved", f"{seeds}, 0, 0")
    figure("queues: faults in the simulation", dict(sorted(faults.items())))
    figure("queues: most runs that passed one that waited", most)
    assert {"crash", "silent crash", "pause", "clock", "lost reply"} <= set(faults)


def test_nobody_starves_behind_a_long_line(full: bool, figure: Figure) -> None:
    """Hundreds of one key ahead: those of others have their turn all the same."""
    most = 0
    for seed in range(1, 40 if full else 2):
        simulation = play(seed, in_memory, runs=500)
        check(seed, simulation, runs=500)
        most = max(most, simulation.judge.passed_most)
    figure("queues: most runs that passed one that waited in a long line", most)


def test_limits_hold_in_a_file(full: bool, tmp_path: Path) -> None:
    """The same on SQLite."""
    for seed in range(100 if full else 2):

        def in_file(clock: HandClock, seed: int = seed) -> Store:
            path = tmp_path / f"{seed}.db"
            return SQLiteStore(path, ports=Ports(clock=clock), lease_seconds=LEASE_SECONDS)

        check(seed, play(seed, in_file))


def test_limits_hold_on_a_server(full: bool, url: str) -> None:
    """The same on PostgreSQL."""
    for seed in range(50 if full else 1):

        def on_server(clock: HandClock, seed: int = seed) -> Store:
            return PostgresStore(
                f"{url}_{seed}",
                ports=Ports(clock=clock),
                lease_seconds=LEASE_SECONDS,
                server_time=clock.now_ms,
            )

        check(seed, play(seed, on_server, runs=20), runs=20)


def test_a_seed_plays_the_same_again() -> None:
    """What was found once can be looked at."""
    first, second = play(7, in_memory), play(7, in_memory)

    assert first.now == second.now
    assert first.faults == second.faults


# ---------------------------------------------------------------------- mutants


def _off_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gate, "_reaches", lambda held, limit: limit is not None and held > limit)


def _free_of_charge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gate.Load, "_affords", lambda self, units: True)


def _too_dear_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gate.Load, "cost", lambda self, units: units)


def _half_a_window(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        gate,
        "first_slice_at",
        lambda limits, now: gate.slice_at(limits, now) - 10 * gate.slice_ms(limits),
    )


def _not_atomic(patch: pytest.MonkeyPatch) -> None:
    """Only the look is limited, not the commit."""
    patch.setattr("outlive.stores.memory.is_gated", lambda entry: False)


def _strict_priorities(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gate.Turn, "is_of_the_oldest", False)


def _a_clock_that_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "outlive.stores.memory_queues.MemoryQueues._mend_clock", lambda self, queue, now: None
    )


#: Each with the seed that finds it.
MUTANTS = {
    _off_by_one: 0,
    _free_of_charge: 0,
    _too_dear_for_ever: 0,
    _half_a_window: 0,
    _not_atomic: 0,
    _a_clock_that_is_believed: 16,
    _strict_priorities: 1,
}
#: Whoever is healthy has ended everything long before.
MUTANTS_END_SECONDS = 400.0


def is_found(seed: int, runs: int) -> bool:
    try:
        check(seed, play(seed, in_memory, runs), runs)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__)
def test_the_simulation_finds_the_mutant(
    mutate: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    figure: Figure,
    full: bool,
) -> None:
    """A limit that is off by one, or not checked where the lease is taken, is seen."""
    monkeypatch.setattr(simulated, "END_SECONDS", MUTANTS_END_SECONDS)
    runs, pinned = 500 if mutate is _strict_priorities else RUNS, MUTANTS[mutate]
    assert not is_found(pinned, runs), "without the mutant"
    mutate(monkeypatch)

    seeds = range(100) if full else [pinned]
    found = next((seed for seed in seeds if is_found(seed, runs)), None)
    figure(f"queues: seed that found {mutate.__name__}", found)
    assert found is not None, "no seed noticed it"
