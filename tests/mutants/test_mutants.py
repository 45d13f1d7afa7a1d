"""The mutants are killed: each by a small test of its name, and all but one by the simulation."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from outlive.errors import OutliveError
from outlive.testing.simulation import Report, simulate
from tests.conftest import Figure
from tests.mutants.killers import KILLERS
from tests.mutants.mutants import MUTANTS, Mutant

#: Seeds that the simulation gets to find a mutant.
SEEDS_MAX = 400
#: Mutants that are looked for in sealed stores, every day.
SEALED_SAMPLE = 6
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


def test_sealing_hides_no_mutant(full: bool, figure: Figure) -> None:
    """Where every store is sealed, the simulation finds them as well."""
    seed = int(os.environ.get("OUTLIVE_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    figure("mutants of sealed stores, seed of the sample", seed)
    for hunted in SIMULATED if full else random.Random(seed).sample(SIMULATED, SEALED_SAMPLE):
        with pytest.MonkeyPatch.context() as patch:
            hunted.apply(patch)
            found = _first_broken(sealed=True)
        figure(f"simulation, sealed: seed that finds mutant '{hunted.name}'", found.seed)


def _first_broken(*, sealed: bool | None = None) -> Report:
    for seed in range(SEEDS_MAX):
        report = simulate(seed, sealed=sealed)
        if report.broken:
            return report
    raise AssertionError(f"no seed below {SEEDS_MAX} finds the mutant")
