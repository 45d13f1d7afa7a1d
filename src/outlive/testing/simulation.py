"""A whole installation in one seed: several workers, a bad line, a bad bank, and bad luck.

``simulate(seed)`` runs the real engine, worker, keeper and journal on virtual time, with crashes,
pauses, lost replies, outages and clock jumps, and lets the auditor judge what came of it. The same
seed is the same simulation, down to the last callback. A seed that fails is run again with

    python -m outlive.testing.simulation SEED
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass, field

from outlive.journal.keeper import run_immediate
from outlive.ports import Ports
from outlive.store import Query
from outlive.stores.memory import MemoryStore
from outlive.testing.sim_faults import FAULTY_SECONDS, STORE_FAULTS, FaultKind, Marksman, make_plan
from outlive.testing.sim_flows import tell_story
from outlive.testing.sim_judge import judge
from outlive.testing.sim_loop import OutOfTime
from outlive.testing.sim_nature import Nature, SimClock
from outlive.testing.sim_people import Client, Human, make_client
from outlive.testing.sim_process import SimProcess, Surroundings
from outlive.testing.sim_programs import make_programs
from outlive.testing.sim_store import Line, SimStore
from outlive.testing.sim_witness import Witness
from outlive.testing.sim_world import SETTLE_SECONDS, World

SECONDS_MAX = 400.0
CALLBACKS_MAX = 400_000
#: From here on the bank and the model behave, so that everything can come to an end.
CALM_SECONDS = 60.0
#: When nothing was committed for so long, the wall clocks go on to the next thing that is due.
QUIET_SECONDS = 6.0
TICK_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of one seed."""

    seed: int
    #: A hash of all that happened, the same at every simulation of this seed.
    trace: str
    #: Broken promises in words.
    broken: tuple[str, ...]
    #: Virtual seconds that passed.
    seconds: float
    callbacks: int
    events: int
    #: Appends of drivers that had been taken over; all were refused, unless ``broken`` says so.
    zombies: int
    faults: Counter[str] = field(default_factory=Counter)
    #: (kind of event, kind of fault): how often the one struck the other.
    struck: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __str__(self) -> str:
        said = "\n  ".join(self.broken) or "all promises kept"
        return (
            f"seed {self.seed}: {self.seconds:.1f} s, {self.events} events, trace {self.trace}\n"
            f"  {said}\nreplay it with: python -m outlive.testing.simulation {self.seed}"
        )


def simulate(seed: int) -> Report:
    """Run one seed and judge it."""
    simulation = Simulation(seed)
    return simulation.run()


class Simulation:
    """Everything that one seed sets up."""

    def __init__(self, seed: int) -> None:
        self.nature = Nature(seed)
        programs = make_programs(random.Random(f"programs {seed}"), self._wanted(seed))
        names = [f"run-{number}" for number in range(1, len(programs) + 1)]
        self.plan = make_plan(self.nature, names)
        self.world, self.witness = World(self.nature), Witness()
        self.line, self.marksman = Line(self.nature), Marksman(self.plan)
        ports = Ports(clock=SimClock(self.nature), entropy=self.nature.entropy)
        self.disk = MemoryStore(ports=ports, lease_seconds=self.plan.lease_seconds)
        self._around = Surroundings(
            self.nature, self.plan, self.disk, self.world, self.witness, self._open_store
        )
        self.processes: list[SimProcess] = []
        self._made = 0
        self.clients = [
            make_client(tell_story, name, program, self.nature, self._pick)
            for name, program in zip(names, programs, strict=True)
        ]
        self._over_at: float | None = None
        self._commits, self._commits_since = 0, 0.0

    @staticmethod
    def _wanted(seed: int) -> str:
        from outlive.testing.sim_faults import PAIRS

        return PAIRS[seed % len(PAIRS)][0]

    def _open_store(self) -> SimStore:
        return SimStore(self.disk, self.line, self.nature, self.witness, self.marksman)
