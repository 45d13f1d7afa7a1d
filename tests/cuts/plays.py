"""One seed: agents talk and are killed; cuts are taken meanwhile, restored, and gone on with."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from outlive.checkpoints import restore_cut
from outlive.checkpoints.agents.cuts import Cut
from outlive.checkpoints.runner import DurableRunner
from outlive.checkpoints.store import SnapshotStore
from outlive.errors import OutliveError
from outlive.journal.lane import run_immediate
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.testing.clock import FakeClock
from tests.cuts.stage import ByTurns, Stage, turn, view
from tests.cuts.talkers import NAMES, check_cut, check_end, others, talk

KILLS, TWINS = 0.004, 0.001
CUTS = 2
#: A cut begins after so many turns at most; few plays have come to their end by then.
BEFORE_CUT_MAX = 700


@dataclass
class Told:
    """What happened."""

    plays: int = 0
    cuts: int = 0
    in_flight: int = 0
    turns: int = 0
    kills: int = 0
    twins: int = 0
    zombies: int = 0

    def add(self, stage: Stage) -> None:
        self.turns += stage.turns
        self.kills += stage.kills
        self.twins += stage.twins
        self.zombies += stage.zombies


class Play:
    """Five agents on one store, which is empty at first."""

    def __init__(self, chance: Random, told: Told) -> None:
        self.chance, self.told = chance, told
        # Of the clock, too: what is written of the time must not make one seed two plays.
        self.ports = Ports(clock=FakeClock(), entropy=chance.randbytes)
        self.store = MemoryStore(ports=self.ports, lease_seconds=60)
        self.stage = Stage(chance)

    def runner(self) -> DurableRunner:
        """As one who is not on the stage has it: nobody acts in between."""
        return DurableRunner(self._view(self.store), enabled=True, ports=self.ports)

    def actor(self) -> DurableRunner:
        """As a process on the stage has it."""
        return DurableRunner(self._view(ByTurns(self.store)), enabled=True, ports=self.ports)

    def _view(self, store: Any) -> SnapshotStore:
        return view(store, self.ports)

    async def live(self, name: str) -> None:
        """An agent's life, from what is saved to its end."""
        await talk(await self.actor().exchange(name, others(name)), self.chance)

    async def take(self, name: str) -> None:
        while not self.has_begun():
            await turn()
        await self.actor().cut(NAMES, name)

    def has_begun(self) -> bool:
        """Somebody has saved a state: before there is nothing to be cut."""
        store = self.runner().store
        return any(run_immediate(store.get_latest_snapshot(name)) for name in NAMES)

    async def restore(self, cut: Cut) -> None:
        await restore_cut(cut, into=self.actor())

    def raise_curtain(self) -> None:
        for name in NAMES:
            self.stage.enter(partial(self.live, name))

    def act(self) -> None:
        """A turn, and the accidents behind it."""
        self.stage.act()
        draw = self.chance.random()
        if not self.stage.is_empty and draw < KILLS + TWINS:
            self.stage.kill_one() if draw < KILLS else self.stage.double_one()

    def close(self) -> None:
        """The curtain falls."""
        self.told.add(self.stage)
        self.stage.close()

    def end(self) -> None:
        """Play to the end, and look at what everybody has."""
        while not self.stage.is_empty:
            self.act()
        check_end({name: run_immediate(self.runner().resume(name)) for name in NAMES})


def play(seed: int, told: Told) -> None:
    """A whole play: the first performance, and one more from each cut."""
    chance = Random(seed)
    names = [f"cut-{number}" for number in range(CUTS)]
    first = Play(chance, told)
    with closing(first):
        turns = chance.sample(range(BEFORE_CUT_MAX), CUTS)
        perform(first, dict(zip(turns, names, strict=True)))
    told.plays += 1
    for name in names:
        cut = run_immediate(first.runner().get_cut(name))
        told.cuts += 1
        told.in_flight += check_cut(cut)
        again = Play(chance, told)
        with closing(again):
            perform_again(again, cut)


def is_broken(seed: int) -> bool:
    """Whether something goes wrong in the play of a seed."""
    try:
        play(seed, Told())
    except (AssertionError, OutliveError, LookupError):
        return True
    return False


def perform(play: Play, begins: Mapping[int, str]) -> None:
    """From the start to the end, with cuts that begin at these turns."""
    play.raise_curtain()
    for number in range(BEFORE_CUT_MAX):
        if number in begins:
            play.stage.enter(partial(play.take, begins[number]))
        if not play.stage.is_empty:
            play.act()
    play.end()


def perform_again(play: Play, cut: Cut) -> None:
    """Restore a cut into an empty store, where agents begin while that is still under way."""
    play.stage.enter(partial(play.restore, cut))
    while not play.stage.is_empty and not run_immediate(play.runner().list_cuts()):
        play.act()
    play.raise_curtain()
    play.end()
