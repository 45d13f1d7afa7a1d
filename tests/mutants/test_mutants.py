"""The mutants are killed: each by a small test of its name, and all but one by the simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.errors import OutliveError
from outlive.testing.simulation import Report, simulate
from tests.conftest import Figure
from tests.mutants.killers import KILLERS
from tests.mutants.mutants import MUTANTS, Mutant

#: Seeds that the simulation gets to find a mutant.
SEEDS_MAX = 400
SIMULATED = [mutant for mutant in MUTANTS.values() if mutant.is_simulated]


@pytest.fixture(params=MUTANTS.values(), ids=lambda mutant: mutant.name)
def mutant(request: pytest.FixtureRequest) -> Mutant:
    mutant: Mutant = request.param
    return mutant


def test_the_real_code_lives(mutant: Mutant, tmp_path: Path) -> None:
    """Every rule holds where nothing is patched."""
    KILLERS[mutant.name](tmp_path)


def test_the_mutant_dies(
    mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    """The test of its name fails under each mutant."""
    mutant.apply(monkeypatch)

    with pytest.raises((AssertionError, pytest.fail.Exception, OutliveError, TimeoutError)):
        KILLERS[mutant.name](tmp_path)
    figure(f"mutant killed by {KILLERS[mutant.name].__name__}", mutant.name)


@pytest.mark.parametrize("hunted", SIMULATED, ids=lambda mutant: mutant.name)
def test_the_simulation_finds_the_mutant(
    hunted: Mutant, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    """Some seed breaks a promise under each mutant, and does so again when it is replayed."""
    hunted.apply(monkeypatch)

    found = _first_broken()
    again = simulate(found.seed)

    assert (found.trace, found.broken) == (again.trace, again.broken)
    figure(f"simulation: seed that finds mutant '{hunted.name}'", found.seed)


def _first_broken() -> Report:
    for seed in range(SEEDS_MAX):
        report = simulate(seed)
        if report.broken:
            return report
    raise AssertionError(f"no seed below {SEEDS_MAX} finds the mutant")
