"""Cuts under random schedules: whatever the order of events, and whoever is killed."""

from __future__ import annotations

from dataclasses import asdict

from tests.conftest import Figure
from tests.cuts.plays import Told, play
from tests.seeds import first_seed

SEEDS, SEEDS_FULL = 100, 1200


def test_a_cut_restored_goes_on_to_the_same_end(full: bool, figure: Figure) -> None:
    """No message is lost, doubled or out of order, at the cut, behind it or without it."""
    told = Told()
    seeds, first = SEEDS_FULL if full else SEEDS, first_seed()
    figure("cuts under random schedules: first seed", first)

    for seed in range(first, first + seeds):
        try:
            play(seed, told)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise

    assert told.cuts >= seeds
    assert told.in_flight > told.cuts, "hardly anything was in flight"
    assert min(told.kills, told.twins, told.zombies) > seeds / 10
    for name, value in asdict(told).items():
        figure(f"cuts under random schedules: {name}", value)
