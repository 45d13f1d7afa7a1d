"""The mutants are killed: each by a small test of its name, and most by the simulation.

By default the simulation replays the seeds that are pinned for a mutant; in full it also hunts for
one among many.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.errors import OutliveError
from outlive.testing.simulation.simulation import SimulationReport, simulate
from tests.conftest import Figure
from tests.mutants.killers import KILLERS
from tests.mutants.mutants import MUTANTS, Mutant
from tests.seeds import killing_seed, pinned_mutants

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


@pytest.mark.parametrize("sealed", [None, True], ids=["", "sealed"])
@pytest.mark.parametrize("hunted", SIMULATED, ids=lambda mutant: mutant.name)
def test_the_simulation_finds_the_mutant(
    hunted: Mutant,
    sealed: bool | None,
    monkeypatch: pytest.MonkeyPatch,
    full: bool,
    figure: Figure,
) -> None:
    """A seed breaks a promise under each mutant, and the same one when it is replayed."""
    told: dict[int, SimulationReport] = {}

    def kills(seed: int) -> bool:
        told[seed] = simulate(seed, sealed=sealed)
        return bool(told[seed].broken)

    hunt = "sealed" if sealed else "simulation"
    with monkeypatch.context() as patch:
        hunted.apply(patch)
        seed = killing_seed(hunt, hunted.name, kills, full=full)
        found, again = told[seed], simulate(seed, sealed=sealed)

    assert (found.trace, found.broken) == (again.trace, again.broken)
    assert not kills(seed), "without the mutant"
    figure(f"{hunt}: seed that finds mutant '{hunted.name}'", seed)


def test_a_pinned_seed_that_no_longer_kills_says_what_to_do() -> None:
    """The mutants' seeds are found anew by a script, which the failure names."""
    with pytest.raises(AssertionError, match=r"python -m tests.find_seeds simulation"):
        killing_seed("simulation", SIMULATED[0].name, lambda seed: False, full=False)


def test_no_pinned_seed_is_left_over() -> None:
    """Seeds are pinned for the mutants that there are."""
    wanted = {mutant.name for mutant in SIMULATED}

    assert wanted == pinned_mutants("simulation")
    assert wanted == pinned_mutants("sealed")
