"""Seeds of simulations: new ones at every run of the tests, and pinned ones for what must be seen.

Rotating seeds begin at a number that is drawn anew each time and printed as a figure;
``OUTLIVE_TEST_SEED`` repeats one. Pinned seeds are in ``seeds.json``, which ``tests/find_seeds.py``
writes: a change of what is simulated makes other simulations of them, so they are found anew when
a test says that they no longer show what they are there for.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path

PINNED = Path(__file__).with_name("seeds.json")
FIRST_MAX = 1 << 32
#: Seeds among which one that kills a mutant is looked for: by the search, and in full.
HUNTED = 400

#: Says whether something is seen to be broken in the simulation of a seed.
Kills = Callable[[int], bool]


def first_seed() -> int:
    """Where the rotating seeds begin."""
    chosen = os.environ.get("OUTLIVE_TEST_SEED")
    return int(chosen) if chosen else random.SystemRandom().randrange(FIRST_MAX)


def pinned_pairs() -> list[int]:
    """Seeds in which every kind of event meets every kind of fault."""
    seeds: list[int] = json.loads(PINNED.read_text())["pairs"]
    return seeds


def pinned_found() -> list[int]:
    """Rotating seeds that found a defect, which is mended since."""
    seeds: list[int] = json.loads(PINNED.read_text())["found"]
    return seeds


def pinned_killers(hunt: str, mutant: str) -> list[int]:
    """Seeds that kill a mutant, the best first."""
    seeds: list[int] = json.loads(PINNED.read_text())[hunt].get(mutant, [])
    return seeds


def pinned_mutants(hunt: str) -> set[str]:
    """The mutants that seeds are pinned for."""
    return set(json.loads(PINNED.read_text())[hunt])


def first_killing(seeds: Iterable[int], kills: Kills) -> int | None:
    """The first of these seeds that kills."""
    return next(filter(kills, seeds), None)


def killing_seed(hunt: str, mutant: str, kills: Kills, *, full: bool) -> int:
    """The pinned seed that kills a mutant, and in full one that is hunted for.

    More than one is pinned, so that not every change of the code makes a new search necessary.
    """
    pinned = pinned_killers(hunt, mutant)
    found = first_killing(pinned, kills)
    assert found is not None, (
        f"the pinned seeds {pinned} no longer kill the mutant {mutant!r}. If other seeds do, the "
        f"simulation has only changed: find them with 'python -m tests.find_seeds {hunt}' and "
        "commit tests/seeds.json. If none does, a test has lost its teeth."
    )
    if full:
        hunted = first_killing(range(HUNTED), kills)
        assert hunted is not None, f"no seed below {HUNTED} kills the mutant {mutant!r}"
        return hunted
    return found
