"""Many processes go for one run at the same instant: one drives, all get the same outcome."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from multiprocessing.connection import Connection

import pytest

from tests.conftest import Figure
from tests.harness.processes import CHILDREN
from tests.processes.cast import EFFECTS
from tests.processes.racers import WAYS, Heat, race
from tests.processes.stage import Stage

pytestmark = pytest.mark.alone("processes")

RACES, RACES_FULL = 60, 200
RACERS_MAX = 8
#: Enough for the message to arrive everywhere before the start.
HEAD_START_SECONDS = 0.01
HEAT_SECONDS_MAX = 30.0


def line_up(stage: Stage) -> list[Connection]:
    lines = []
    for _ in range(RACERS_MAX):
        mine, theirs = CHILDREN.Pipe()
        stage.spawn(race, theirs)
        theirs.close()
        lines.append(mine)
    return lines


def run_race(lines: list[Connection], number: int, dice: random.Random) -> list[object]:
    """2 to 8 racers, each in its way; the answers of all of them."""
    racers = dice.sample(lines, dice.randint(2, RACERS_MAX))
    flow, kind = dice.choice(["paying", "napping"]), dice.choice(list(EFFECTS))
    start_at = time.monotonic() + HEAD_START_SECONDS
    for line in racers:
        way = dice.choice(list(WAYS))
        heat = Heat(run_id=f"r{number}", flow=flow, args=(kind,), way=way, start_at=start_at)
        line.send(heat)
    for line in racers:
        assert line.poll(HEAT_SECONDS_MAX), f"race {number}: no answer in {HEAT_SECONDS_MAX} s"
    return [line.recv() for line in racers]


def owners(stage: Stage) -> dict[tuple[str, int], set[int | None]]:
    """By run and epoch: the processes that appended anything."""
    found: dict[tuple[str, int], set[int | None]] = defaultdict(set)
    for child in stage.children:
        for run_id, _, epoch, _, done, _ in stage.appends(child):
            if done and epoch > 0:
                found[run_id, epoch].add(child.pid)
    return found


def test_of_all_who_race_for_a_run_one_drives_it(stage: Stage, figure: Figure, full: bool) -> None:
    """One owner per epoch, every effect once, and the same outcome for every caller."""
    seed = random.randrange(1 << 32)
    figure("races: seed", seed)
    dice = random.Random(seed)
    lines, races = line_up(stage), RACES_FULL if full else RACES

    answers = {number: run_race(lines, number, dice) for number in range(races)}

    for line in lines:
        line.send(None)
    for number, given in answers.items():
        assert all(each == given[0] for each in given), (number, given)
        assert isinstance(given[0], list), (number, given)
    assert {1} == {len(pids) for pids in owners(stage).values()}
    assert [] == stage.audit()
    keys = [receipt.key for receipt in stage.receipts()]
    assert races == len(keys) == len(set(keys))
    claims = [len(stage.claims(f"r{number}")) for number in answers]
    figure("races: races", races)
    figure("races: racers", sum(map(len, answers.values())))
    figure("races: owners of the busiest run", max(claims))
