"""Finds the seeds that the tests pin, and writes them to ``tests/seeds.json``.

    python -m tests.find_seeds [pairs | simulation | sealed | queues | cuts] ...

``pairs`` are seeds that together let every kind of event meet every kind of fault, each pair in
several of them where that is cheap. The others are hunts: per mutant a few seeds that kill it,
those that are pinned already if they still do. Without an argument all of this is done, in some
minutes on two quiet cores.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from typing import Any

import pytest

from outlive.testing.simulation.faults import PAIRS
from outlive.testing.simulation.simulation import simulate
from tests.cuts import mutants as cut_mutants
from tests.cuts import plays
from tests.mutants.mutants import MUTANTS
from tests.queues import mutants as queue_mutants
from tests.seeds import HUNTED, PINNED, Kills

#: How often seeds are tried that are aimed at a pair; each turn has one for every pair.
TURNS_MAX = 6
#: In so many pinned seeds each pair is met, if there are as many.
TIMES = 3
#: Killing seeds that are pinned per mutant.
KILLERS = 3
#: Of fewer that still kill, others are looked for.
KEPT_MIN = 2
PROCESSES = 2

Patch = Callable[[pytest.MonkeyPatch], None]
Killing = dict[str, list[int]]
Met = dict[int, tuple[frozenset[tuple[str, str]], int]]


def meet(seed: int) -> tuple[int, frozenset[tuple[str, str]], int]:
    """A seed, the pairs that it meets, and what it costs."""
    logging.disable(logging.CRITICAL)
    report = simulate(seed)
    return seed, frozenset(report.struck) & set(PAIRS), report.callbacks


def times(met: Met) -> Counter[tuple[str, str]]:
    """In how many seeds each pair is met."""
    return Counter(pair for pairs, _ in met.values() for pair in pairs)


def find_pairs() -> list[int]:
    """Seeds that meet all pairs: those that are aimed at what was not met so far are tried."""
    met: Met = {}
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as processes:
        for turn in range(TURNS_MAX):
            found = times(met)
            lacking = [number for number, pair in enumerate(PAIRS) if found[pair] < TIMES]
            seeds = [turn * len(PAIRS) + number for number in lacking]
            print(f"{len(lacking)} pairs were not met {TIMES} times", flush=True)
            for seed, pairs, cost in processes.map(meet, seeds):
                met[seed] = pairs, cost
    return cover(met)


def cover(met: Met) -> list[int]:
    """Few and cheap seeds that meet every pair several times: each time the best for its price."""
    able = times(met)
    if missing := [pair for pair in PAIRS if not able[pair]]:
        raise SystemExit(f"no seed of {len(met)} meets {missing}")
    lacking: Counter[tuple[str, str]] = Counter({pair: min(TIMES, able[pair]) for pair in PAIRS})
    chosen: list[int] = []
    while +lacking:
        rest = (seed for seed in met if seed not in chosen)
        best = max(rest, key=lambda s: sum(lacking[p] > 0 for p in met[s][0]) / met[s][1])
        chosen.append(best)
        lacking.subtract(met[best][0])
    return sorted(chosen)


def hunt(name: str, mutants: Mapping[str, Patch], kills: Callable[[str], Kills]) -> Killing:
    """By mutant: seeds that kill it, and not the real code. Pinned ones that still do are kept."""
    found: Killing = {}
    for mutant, apply in mutants.items():
        pinned = _pinned().get(name, {}).get(mutant, [])
        found[mutant] = _killing(pinned, apply, kills(mutant))
        if len(found[mutant]) < KEPT_MIN:
            found[mutant] = _killing(range(HUNTED), apply, kills(mutant))
        print(name, mutant, found[mutant], flush=True)
        if not found[mutant]:
            raise SystemExit(f"no seed below {HUNTED} kills {mutant!r}")
    return found


def _killing(seeds: Sequence[int], apply: Patch, kills: Kills) -> list[int]:
    with pytest.MonkeyPatch.context() as patch:
        apply(patch)
        some = list(islice(filter(kills, seeds), 2 * KILLERS))
    return list(islice((seed for seed in some if not kills(seed)), KILLERS))


def is_broken(seed: int) -> bool:
    """Whether a promise is broken in a seed."""
    return bool(simulate(seed).broken)


def is_broken_sealed(seed: int) -> bool:
    """Whether a promise is broken in a seed with a sealed store."""
    return bool(simulate(seed, sealed=True).broken)


def simulated() -> dict[str, Patch]:
    """The mutants that simulations see."""
    return {name: each.apply for name, each in MUTANTS.items() if each.is_simulated}


FINDERS: dict[str, Callable[[], object]] = {
    "pairs": find_pairs,
    "simulation": lambda: hunt("simulation", simulated(), lambda _: is_broken),
    "sealed": lambda: hunt("sealed", simulated(), lambda _: is_broken_sealed),
    "queues": lambda: hunt("queues", queue_mutants.MUTANTS, queue_mutants.kills),
    "cuts": lambda: hunt("cuts", cut_mutants.MUTANTS, lambda _: plays.is_broken),
}


def main(arguments: list[str]) -> int:
    """Find what is named, or everything, and keep the rest as it is."""
    logging.disable(logging.CRITICAL)
    if unknown := set(arguments) - set(FINDERS):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(FINDERS)}")
    for name in arguments or FINDERS:
        found = FINDERS[name]()
        PINNED.write_text(_shown(_pinned() | {name: found}))
        print(f"{name}: written", flush=True)
    return 0


def _pinned() -> dict[str, Any]:
    return json.loads(PINNED.read_text()) if PINNED.exists() else {}


def _shown(seeds: dict[str, object]) -> str:
    """One line per list, so that changes are readable."""
    text = json.dumps(seeds, indent=1)
    return re.sub(r"\[[\d,\s]+\]", lambda found: "".join(found[0].split()), text) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
