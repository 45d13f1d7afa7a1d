"""Limits hold and nobody starves, whatever befalls eight simulated workers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from outlive.ports import Ports
from outlive.stores.postgres.store import PostgresStore
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
from outlive.testing.suite.entries import LEASE_SECONDS, HandClock
from tests.conftest import Figure
from tests.queues.mutants import MUTANTS, check, in_memory, kills, play
from tests.seeds import first_seed, killing_seed

SEEDS, SEEDS_FULL = 25, 1000


def test_limits_hold_over_many_seeds(full: bool, figure: Figure) -> None:
    """Through crashes, pauses, lost replies and clocks that jump."""
    faults: Counter[str] = Counter()
    seeds, most, first = SEEDS_FULL if full else SEEDS, 0, first_seed()
    figure("queues: first seed", first)
    for seed in range(first, first + seeds):
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


def test_limits_hold_in_a_file(full: bool, tmp_path: Path, figure: Figure) -> None:
    """The same on SQLite."""
    first = first_seed()
    figure("queues in a file: first seed", first)
    for seed in range(first, first + (100 if full else 2)):

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


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_simulation_finds_the_mutant(
    mutant: str, monkeypatch: pytest.MonkeyPatch, full: bool, figure: Figure
) -> None:
    """A limit that is off by one, or not checked where the lease is taken, is seen."""
    with monkeypatch.context() as patch:
        MUTANTS[mutant](patch)
        seed = killing_seed("queues", mutant, kills(mutant), full=full)

    assert not kills(mutant)(seed), "without the mutant"
    figure(f"queues: seed that found {mutant}", seed)
