"""Random schedules find out every known-bad variant."""

from __future__ import annotations

import pytest

from tests.conftest import Figure
from tests.cuts.mutants import MUTANTS
from tests.cuts.plays import is_broken
from tests.seeds import killing_seed


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_mutant_dies(
    mutant: str, monkeypatch: pytest.MonkeyPatch, full: bool, figure: Figure
) -> None:
    """Some schedule shows what is wrong with it."""
    with monkeypatch.context() as patch:
        MUTANTS[mutant](patch)
        seed = killing_seed("cuts", mutant, is_broken, full=full)

    assert not is_broken(seed), "without the mutant"
    figure(f"cuts: seed that kills mutant '{mutant}'", seed)
