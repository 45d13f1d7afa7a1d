"""Random schedules find out every known-bad variant."""

from __future__ import annotations

import pytest

from outlive.errors import OutliveError
from tests.conftest import Figure
from tests.cuts.mutants import MUTANTS, Mutant
from tests.cuts.plays import Told, play

#: Seeds that a mutant may survive.
SEEDS_MAX = 150


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_mutant_dies(mutant: Mutant, monkeypatch: pytest.MonkeyPatch, figure: Figure) -> None:
    """Some schedule shows what is wrong with it."""
    mutant(monkeypatch)

    for seed in range(SEEDS_MAX):
        try:
            play(seed, Told())
        except (AssertionError, OutliveError, LookupError) as error:
            words = f"{type(error).__name__} at seed {seed}"
            figure(f"cuts: mutant '{mutant.__name__}' killed by", words)
            return
    pytest.fail(f"it lived through {SEEDS_MAX} schedules")
