"""Thousands of simulated installations: every promise kept, every fault met, no seed twice."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

import pytest

from outlive.journal.seal.seal import data_key_id
from outlive.testing.simulation import simulation
from outlive.testing.simulation.faults import PAIRS
from outlive.testing.simulation.simulation import (
    Simulation,
    SimulationReport,
    is_forked,
    is_sealed,
    simulate,
)
from tests.conftest import Figure
from tests.seeds import first_seed, pinned_found, pinned_pairs

#: Rotating seeds, every day and in full.
SEEDS, SEEDS_FULL = 1_000, 20_000
SEALED, SEALED_FULL = 20, 1_000
FORKED, FORKED_FULL = 120, 1_000
#: Seeds that one process takes at a time, and how many processes there are.
CHUNK, PROCESSES = 50, 2
#: Virtual seconds per second of work.
PACE_MIN = 200
TRACES = "print(*(simulate(seed).trace for seed in range(20)))"


@dataclass(slots=True)
class Sum:
    """What many seeds came to."""

    struck: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    worked: float = 0.0
    zombies: int = 0
    commits: int = 0
    broken: list[SimulationReport] = field(default_factory=list)

    def add(self, other: Sum) -> None:
        """Those of other seeds."""
        self.struck += other.struck
        self.faults += other.faults
        self.seconds += other.seconds
        self.worked += other.worked
        self.zombies += other.zombies
        self.commits += other.commits
        self.broken += other.broken


def simulate_some(seeds: Sequence[int]) -> Sum:
    """In a process of its own: run these seeds."""
    logging.disable(logging.CRITICAL)
    total = Sum()
    began = time.process_time()
    for report in map(simulate, seeds):
        broken = [report] if report.broken else []
        total.add(Sum(report.struck, report.faults, report.seconds, 0.0, report.zombies, 0, broken))
        total.commits += report.commits
    total.worked = time.process_time() - began
    return total


def simulate_all(seeds: Sequence[int]) -> Sum:
    """Run these seeds in several processes; none may break a promise."""
    chunks = [seeds[begin : begin + CHUNK] for begin in range(0, len(seeds), CHUNK)]
    total = Sum()
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as processes:
        for part in processes.map(simulate_some, chunks):
            total.add(part)
    assert not total.broken, "\n".join(str(report)[:2000] for report in total.broken[:5])
    return total


def test_pinned_seeds_meet_every_fault(figure: Figure) -> None:
    """Every kind of event meets every kind of fault, in few seeds, and no promise is broken."""
    seeds = pinned_pairs()

    total = simulate_all(seeds)

    missed = [pair for pair in PAIRS if not total.struck[pair]]
    figure("simulation: pinned seeds", len(seeds))
    figure("simulation: pairs of event and fault met", f"{_met(total.struck)} of {len(PAIRS)}")
    assert [] == missed, (
        "the pinned seeds no longer meet these pairs; find others with "
        "'python -m tests.find_seeds pairs' and commit tests/seeds.json"
    )


def test_seeds_that_found_a_defect_break_no_promise() -> None:
    """What a rotating seed found once stays mended."""
    simulate_all(pinned_found())


@pytest.mark.timeout(2 * 3600)
def test_every_seed_keeps_every_promise(full: bool, figure: Figure) -> None:
    """No seed breaks a promise; other ones are tried each time."""
    count, first = SEEDS_FULL if full else SEEDS, first_seed()
    figure("simulation: first seed", first)

    total = simulate_all(range(first, first + count))

    pace = total.seconds / total.worked
    struck = total.struck
    figure("simulation: seeds", count)
    figure("simulation: seconds of work", round(total.worked))
    figure("simulation: virtual seconds per second of work", round(pace))
    figure("simulation: virtual hours", round(total.seconds / 3600, 1))
    figure("simulation: commits", total.commits)
    figure("simulation: appends of zombies, all refused", total.zombies)
    figure("simulation: faults", dict(sorted(total.faults.items())))
    figure("simulation: pairs met by rotating seeds", f"{_met(struck)} of {len(PAIRS)}")
    figure("simulation: the rarest pair was met", min(struck[pair] for pair in PAIRS))
    assert not full or [] == [pair for pair in PAIRS if not struck[pair]]
    assert total.zombies > 0
    assert pace >= PACE_MIN


def _met(struck: Counter[tuple[str, str]]) -> int:
    return sum(bool(struck[pair]) for pair in PAIRS)


def test_a_seed_is_the_same_simulation_again() -> None:
    """Two runs of a seed have the same trace, and different seeds have different ones."""
    first = [simulate(seed).trace for seed in range(40)]
    again = [simulate(seed).trace for seed in reversed(range(40))]

    assert first == again[::-1]
    assert 40 == len(set(first))


def test_sealed_seeds_keep_every_promise(full: bool, figure: Figure) -> None:
    """Whatever crosses the line is sealed, and nobody is the worse for it."""
    count, first = SEALED_FULL if full else SEALED, first_seed()
    figure("simulation, sealed: first seed", first)
    commits = zombies = records = 0
    for seed in range(first, first + count):
        done = Simulation(seed, sealed=True)
        report = done.run()
        assert not report.broken, str(report)
        commits, zombies = commits + report.commits, zombies + report.zombies
        bodies = [x.body for each in done.disk._journals.values() for x in each.records]
        assert None not in map(data_key_id, bodies)
        records += len(bodies)
    figure("simulation, sealed: seeds, commits, appends of zombies", (count, commits, zombies))
    assert zombies > 0
    assert records > 0


def test_some_seeds_are_sealed() -> None:
    """And say so themselves; a seed can be told otherwise, and is another simulation then."""
    chosen = {seed for seed in range(100) if is_sealed(seed)}
    seed = min(chosen)

    assert 10 < len(chosen) < 40
    assert simulate(seed).trace == simulate(seed, sealed=True).trace
    assert simulate(seed).trace != simulate(seed, sealed=False).trace


def test_forks_have_what_they_share(full: bool, figure: Figure) -> None:
    """Runs are forked, forks are driven, and retention takes a run only behind its forks."""
    forks = forks_gone = shared_gone = 0
    for seed in filter(is_forked, range(FORKED_FULL if full else FORKED)):
        done = Simulation(seed, sealed=is_sealed(seed))
        report = done.run()
        assert not report.broken, str(report)
        made, buried = done.witness.forks, done.witness.buried
        forks += len(made)
        forks_gone += sum(fork in buried for fork in made)
        shared_gone += sum(shared in buried for shared in made.values())
    figure(
        "simulation: forks, those deleted, forked runs deleted", (forks, forks_gone, shared_gone)
    )
    assert forks_gone > shared_gone > 0


def test_a_seed_does_not_depend_on_the_interpreters_hashes() -> None:
    """The same seeds have the same traces in processes with other hash seeds."""
    traces = {
        subprocess.run(
            [
                sys.executable,
                "-c",
                f"from outlive.testing.simulation.simulation import simulate; {TRACES}",
            ],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4242")
    }

    assert 1 == len(traces)
    assert 20 == len(traces.pop().split())


def test_a_seed_can_be_replayed_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """The command that a failing seed prints simulates it again and says what came of it."""
    trace = simulate(7).trace

    assert 0 == simulation.main(["7"])
    said = capsys.readouterr().out
    assert trace in said
    assert "all promises kept" in said
    assert "python -m outlive.testing.simulation.simulation 7" in said


def test_a_broken_promise_is_told_with_its_seed() -> None:
    """A report that is not clean names what broke and how to see it again."""
    report = SimulationReport(
        seed=99, trace="t", broken=("run r: lost",), seconds=1, callbacks=1, commits=1, zombies=0
    )

    assert "run r: lost" in str(report)
    assert "python -m outlive.testing.simulation.simulation 99" in str(report)
