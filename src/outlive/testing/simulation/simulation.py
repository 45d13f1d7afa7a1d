"""A whole installation in one seed: several workers, an unreliable network, bank and model.

``simulate(seed)`` runs the real engine, worker, keeper and journal on virtual time, with crashes,
pauses, lost replies, outages and clock jumps, and lets the auditor judge the result. The same
seed is the same simulation, down to the last callback. To run a failed seed again:

    python -m outlive.testing.simulation.simulation SEED
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from outlive.journal.codec.restore import read_whole
from outlive.journal.fork import events_of
from outlive.journal.lane import run_immediate
from outlive.model.run import Run, fold
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from outlive.stores.types import LAST_CHAPTER, Query
from outlive.testing.simulation.crowd import Client, Crowd, Forger, Forker, Human
from outlive.testing.simulation.faults import (
    FAULTY_SECONDS,
    FaultKind,
    Marksman,
    aimed_at,
    is_forged,
    make_plan,
)
from outlive.testing.simulation.judge import judge
from outlive.testing.simulation.loop import Nature, OutOfTime, SimClock, SimLoop
from outlive.testing.simulation.process import SimProcess, Surroundings
from outlive.testing.simulation.programs import make_programs
from outlive.testing.simulation.store import Link, SimDisk, SimStore
from outlive.testing.simulation.witness import Witness
from outlive.testing.simulation.world import SETTLE_SECONDS, BankRequest, ProcessContext, World

if TYPE_CHECKING:  # what seals need not be installed
    from outlive.testing.simulation.store import SimSeal

SECONDS_MAX = 400.0
CALLBACKS_MAX = 400_000
#: From here on the bank and the model behave, so that everything can come to an end.
CALM_SECONDS = 60.0
#: If no run progressed for so long, the wall clocks advance to the next thing that is due.
QUIET_SECONDS = 6.0
LONG_MS = 2000
TICK_SECONDS = 0.5
#: The share of seeds whose store is sealed.
SEALED = 0.25
#: The share of seeds in which somebody forks runs.
FORKED = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationReport:
    """The result of one seed."""

    seed: int
    #: A hash of all that happened, the same at every simulation of this seed.
    trace: str
    #: Broken promises in words.
    broken: tuple[str, ...]
    #: Virtual seconds that passed.
    seconds: float
    callbacks: int
    commits: int
    #: Appends of drivers that had been taken over; all were refused, unless ``broken`` says so.
    zombies: int
    faults: Counter[str] = field(default_factory=Counter)
    #: (kind of event, kind of fault): how often the one struck the other.
    struck: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __str__(self) -> str:
        said = "\n  ".join(self.broken) or "all promises kept"
        return (
            f"seed {self.seed}: {self.seconds:.1f} s, {self.commits} commits, trace {self.trace}\n"
            f"  {said}\nreplay it with: python -m outlive.testing.simulation.simulation {self.seed}"
        )


def simulate(seed: int, *, sealed: bool | None = None) -> SimulationReport:
    """Run one seed and judge it; the seed decides whether its store is sealed, unless told."""
    return Simulation(seed, sealed=is_sealed(seed) if sealed is None else sealed).run()


def is_sealed(seed: int) -> bool:
    """Whether a seed's store is sealed: some are, where cryptography is installed."""
    is_chosen = random.Random(f"sealed {seed}").random() < SEALED
    return is_chosen and find_spec("cryptography") is not None


def is_forked(seed: int) -> bool:
    """Whether somebody forks runs of a seed."""
    return random.Random(f"forked {seed}").random() < FORKED


def _seal(disk: MemoryStore, nature: Nature) -> SimSeal:
    from outlive.testing.simulation.store import SimSeal

    return SimSeal(disk, nature)


class Simulation:
    """Everything that one seed sets up."""

    def __init__(self, seed: int, *, sealed: bool = False) -> None:
        nature = self.nature = Nature(seed)
        programs = make_programs(random.Random(f"programs {seed}"), aimed_at(seed)[0])
        names = [f"run-{number}" for number in range(1, len(programs) + 1)]
        self.plan = make_plan(nature, names)
        self.world, self.witness = World(nature), Witness()
        self.world.on_begin = self._check_driver
        self.line, self.marksman = Link(nature), Marksman(self.plan)
        ports = Ports(clock=SimClock(nature), entropy=nature.entropy)
        self.disk = SimDisk(ports=ports, lease_seconds=self.plan.lease_seconds)
        seal = _seal(self.disk, nature) if sealed else None
        #: The disk as a client with the key sees it.
        self.view: Store = self.disk if seal is None else seal.view
        self._around = Surroundings(
            nature=nature,
            plan=self.plan,
            disk=self.disk,
            world=self.world,
            witness=self.witness,
            open_line=self._open_line,
            seal=seal,
        )
        self.processes: list[SimProcess] = []
        self._made = 0
        self.clients = [
            Client(name, program, nature, self._pick, self.plan.deadlines.get(name))
            for name, program in zip(names, programs, strict=True)
        ]
        self._over_at: float | None = None
        self._moves, self._moved_at = 0, 0.0

    def _open_line(self) -> SimStore:
        return SimStore(self.disk, self.line, self.nature, self.witness, self.marksman)

    def _pick(self) -> SimProcess | None:
        living = [each for each in self.processes if each.is_serving]
        return self.nature.rng.choice(living) if living else None

    def _check_driver(self, process: ProcessContext, request: BankRequest) -> None:
        """Check that only the holder of the lease begins an effect."""
        reading = run_immediate(self.disk.read(request.run_id, 1 << 62))
        holder = None if reading is None else reading.head.worker
        worker = process.worker_id()
        if holder != worker:
            self.witness.broken.append(
                f"run {request.run_id}: effect {request.effect} (key {request.key}) was begun by "
                f"worker {worker}; worker {holder} had the lease"
            )

    # running

    def run(self) -> SimulationReport:
        """Run the simulation, then judge it."""
        nature = self.nature
        for _ in range(self.plan.workers):
            self._start_process()
        for client in self.clients:
            nature.after(nature.mostly_short(8.0), client.ask)
        for when, fault in self.plan.at:
            nature.after(when, self._strike, fault)
        for when in self.plan.leaving:
            nature.after(when, self._let_go)
        nature.after(1.0, Human(nature, self.view, self.world, self.plan.meddling).look)
        crowd = Crowd(nature, self.view, self.witness, self.plan, self._pick)
        nature.after(1.0, crowd.look)
        if is_forked(nature.seed):
            nature.after(2.0, Forker(nature, self.view, self._pick).look)
        if is_forged(nature.seed):
            sealed = self.view is not self.disk
            nature.after(1.5, Forger(nature, self.disk, self.witness, sealed=sealed).look)
        nature.after(FAULTY_SECONDS, self._heal)
        nature.after(CALM_SECONDS, self._calm)
        nature.after(TICK_SECONDS, self._tick)
        unfinished = []
        try:
            nature.timeline.run(self._is_over, seconds_max=SECONDS_MAX, handles_max=CALLBACKS_MAX)
        except OutOfTime as error:
            unfinished = [f"{error}; not ended: {', '.join(self._open_runs())}"]
        errors = [f"{each.name}: {error}" for each in self._loops() for error in each.errors]
        broken = [*unfinished, *errors, *judge(nature, self.view, self.world, self.witness)]
        for process in self.processes:
            process.die(certain=False)
            process.bury()
        return self._report(broken)

    def _loops(self) -> list[SimLoop]:
        return [self.nature.loop, *(process.loop for process in self.processes)]

    def _report(self, broken: list[str]) -> SimulationReport:
        witness, timeline = self.witness, self.nature.timeline
        for receipt in self.world.receipts:
            witness.note(repr(receipt))
        witness.note(f"{timeline.now:.6f} {timeline.handles}")
        return SimulationReport(
            seed=self.nature.seed,
            trace=witness.trace,
            broken=tuple(broken),
            seconds=timeline.now,
            callbacks=timeline.handles,
            commits=witness.commits,
            zombies=witness.zombies,
            faults=witness.faults,
            struck=witness.struck,
        )

    def _start_process(self) -> None:
        self._made += 1
        self.processes.append(SimProcess(f"p{self._made}", self._around))

    # what happens beside the processes

    def _tick(self) -> None:
        """Replace dead processes, and advance the clocks when nothing happens."""
        nature = self.nature
        for process in self.processes:
            if process.is_alive and process.is_failed and nature.chance(0.5):
                process.die(certain=True)
        living = sum(process.is_alive for process in self.processes)
        if living < self.plan.workers and nature.chance(0.4):
            self._start_process()
        is_open = bool(self._open_runs())
        self._over_at = None if is_open else self._over_at or nature.now
        if is_open and nature.now > self._quiet_since() + QUIET_SECONDS:
            self._pass_time()
        nature.after(TICK_SECONDS, self._tick)

    def _quiet_since(self) -> float:
        if self.witness.moves != self._moves:
            self._moves, self._moved_at = self.witness.moves, self.nature.now
        return self._moved_at

    def _pass_time(self) -> None:
        """Advance all wall clocks to the next thing that is due."""
        now = SimClock(self.nature).now_ms()
        items = run_immediate(self.view.find(Query(flow="story"), None, 1000)).items
        waiting = [item for item in items if item.header.ended_at is None]
        due = [item.header.wake_at for item in waiting]
        # A header tells what is due first, which may be a look at what is due later.
        due += [when for item in waiting for when in self._attempts_due(item.head.run_id)]
        later = [when for when in due if when is not None and when - now > LONG_MS]
        if later:
            self.nature.set_wall(min(later) - now)
            self._moved_at = self.nature.now

    def _attempts_due(self, run_id: str) -> list[int | None]:
        reading = run_immediate(read_whole(self.view, run_id, LAST_CHAPTER))
        events = [] if reading is None else run_immediate(events_of(self.view, reading))
        run = fold(events) if events else Run()
        return [effect.retry_at for effect in run.effects.values()]

    def _open_runs(self) -> list[str]:
        """Runs that did not end, children included, and those that were not started."""
        items = run_immediate(self.view.find(Query(flow="story"), None, 1000)).items
        begun = {item.head.run_id for item in items} | self.witness.buried.keys()
        wanted = [client.run_id for client in self.clients if client.run_id not in begun]
        return wanted + [item.head.run_id for item in items if item.header.ended_at is None]

    def _is_over(self) -> bool:
        """Whether all runs ended, all messages arrived, and every paused process resumed."""
        over = self._over_at
        return self.witness.is_off or (
            over is not None
            and self.nature.now > over + SETTLE_SECONDS
            and all(each.loop.held is None or not each.is_alive for each in self.processes)
        )

    def _strike(self, fault: FaultKind) -> None:
        match fault:
            case "lost_reply":
                self.line.loses_next_reply = True
            case "slow_store":
                self.line.get_slow()
            case "store_down":
                self.line.go_down()
            case _:
                process = self._pick()
                if process is not None:
                    process.strike(fault)

    def _let_go(self) -> None:
        process = self._pick()
        if process is not None:
            process.leave()

    def _heal(self) -> None:
        self.marksman.put_down()
        self.line.heal()

    def _calm(self) -> None:
        self.world.calm = True


def main(arguments: list[str]) -> int:
    """Replay the seeds that are named."""
    reports = [simulate(int(argument)) for argument in arguments]
    for report in reports:
        sys.stdout.write(f"{report}\n")
    return 1 if any(report.broken for report in reports) or not reports else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
