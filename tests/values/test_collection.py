"""Collection: families go as a whole, and never anything that a run still names.

Writers, their successors and zombies, children (also those that come late) and a collector take
turns at one store in every order that a seed makes. After each turn every run that there is reads
back as it was written, and of families without runs nothing is left.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from outlive.errors import LeaseLost
from outlive.journal.codec.values import node_of
from outlive.journal.lane import run_immediate
from outlive.model.events import RunCompleted
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
from outlive.testing.suite.entries import delete_one
from outlive.worker.entries import start_entry
from tests.values.test_stored_once import ALL, START, Writer, values_in

SEED = 20_270_104
ACTIONS = 40

Figure = Callable[[str, object], None]
Count = Callable[[str], int]


class Scene:
    """One store, and everybody who acts on it."""

    def __init__(self, seed: int, store: Any, count: Count) -> None:
        self.rng, self.store, self._count = random.Random(seed), store, count
        self.drivers: dict[str, Writer] = {}
        self.zombies: list[Writer] = []
        self.families: dict[str, str] = {}
        self.expected: dict[str, list[tuple[Any, Any]]] = {}
        self.ended: dict[str, int] = {}
        #: Ends that the collector saw, perhaps some time ago.
        self.seen: dict[str, int] = {}
        self.dead: set[str] = set()
        self.refused = self.deleted = self.joined = self.late = 0
        #: All that ever were, and their families.
        self._parents: dict[str, str] = {}
        self._names = 0

    def act(self) -> None:
        actions = [self.begin, self.step, self.step, self.step, self.take_over, self.haunt]
        actions += [self.join, self.join_late, self.end, self.look, self.collect, self.put]
        self.rng.choice(actions)()

    def _pick(self, names: Any) -> str | None:
        return self.rng.choice(sorted(names)) if names else None

    def _begin(self, family: str, run_id: str) -> None:
        self.drivers[run_id] = Writer(self.store, run_id, family)
        self.families[run_id], self.expected[run_id] = family, []
        self._parents[run_id] = family

    def begin(self) -> None:
        """A root begins a family."""
        self._names += 1
        self._begin(f"r{self._names}", f"r{self._names}")

    def join(self) -> None:
        """A living run starts a child."""
        parent = self._pick(self.drivers)
        if parent is not None:
            self._names += 1
            self._begin(self.families[parent], f"c{self._names}")

    def join_late(self) -> None:
        """A parent's zombie starts a child: where the parent is gone, it comes too late."""
        parent = self._pick(self._parents)
        if parent is None:
            return
        self._names += 1
        child, family = f"c{self._names}", self._parents[parent]
        start = replace(START, family=family, parent=parent, args=ALL.write(self._state()))
        (refused,) = run_immediate(self.store.commit([start_entry(child, start)]))
        assert (refused is None) == (parent in self.families)
        if refused is None:
            self.drivers[child] = Writer(self.store, child)
            self.families[child] = self._parents[child] = family
            self.expected[child] = []
            self.joined += 1
        else:
            self.late += 1

    def _state(self) -> Any:
        texts = [f"{self.rng.randrange(12):02}" * 400 for _ in range(self.rng.choice((1, 3, 30)))]
        return {"messages": [{"role": "user", "content": text} for text in texts]}

    def step(self) -> None:
        """Texts that others of the family may have stored."""
        run_id = self._pick(self.drivers)
        if run_id is not None:
            given, value = self._state(), self._state()
            self.drivers[run_id].step(given, value)
            self.expected[run_id].append((given, value))

    def take_over(self) -> None:
        """Another driver goes on; the one before does not know yet."""
        run_id = self._pick(self.drivers)
        if run_id is not None:
            self.zombies.append(self.drivers[run_id])
            self.drivers[run_id] = Writer(self.store, run_id)
            self.step_of(run_id)

    def step_of(self, run_id: str) -> None:
        given = self._state()
        self.drivers[run_id].step(given, None)
        self.expected[run_id].append((given, None))

    def haunt(self) -> None:
        """A zombie writes: refused, and it leaves nothing."""
        if self.zombies:
            zombie = self.zombies.pop(self.rng.randrange(len(self.zombies)))
            with pytest.raises(AssertionError):
                zombie.step({"zombie": f"{self.rng.random()}" * 100}, None)
            assert isinstance(zombie.log.failure, LeaseLost)
            self.refused += 1

    def put(self) -> None:
        """A chunk that no value will ever name."""
        run_id = self._pick(self.drivers)
        if run_id is not None:
            node = node_of(self.rng.randbytes(700))
            run_immediate(self.store.put_blob(self.families[run_id], node))

    def end(self) -> None:
        run_id = self._pick(self.drivers)
        if run_id is not None:
            writer = self.drivers.pop(run_id)
            writer.log.append(RunCompleted(0, ALL.write(self._state())))
            writer.flush()
            self.ended[run_id] = writer.log.seq

    def look(self) -> None:
        """The collector sees what may go."""
        self.seen = {**self.ended, **{run: writer.log.seq for run, writer in self.drivers.items()}}

    def collect(self) -> None:
        """It deletes one of these, which may have gone on meanwhile."""
        run_id = self._pick(self.seen)
        if run_id is None:
            return
        seq = self.seen.pop(run_id)
        delete = delete_one(self.store, run_id, seq=seq, digest=b"", keep_until=1 << 60)
        is_gone = run_immediate(delete)
        assert is_gone == (self.ended.get(run_id) == seq)
        if is_gone:
            del self.ended[run_id], self.expected[run_id]
            self.deleted += 1
            family = self.families.pop(run_id)
            if family not in self.families.values():
                self.dead.add(family)

    def check(self) -> None:
        for run_id, expected in self.expected.items():
            assert expected == values_in(self.store, run_id), run_id
        for family in self.dead:
            assert 0 == self._count(family), f"{family} is gone, and nodes of it are there"
        for family in set(self.families.values()):
            assert self._count(family) >= 0


def play(seed: int, store: Store, count: Count) -> Scene:
    scene = Scene(seed, store, count)
    for number in range(ACTIONS):
        scene.act()
        if number % 8 == 7:
            scene.check()
    while scene.drivers:
        scene.end()
    scene.look()
    while scene.seen:
        scene.collect()
    scene.check()
    return scene


def test_nothing_named_goes_and_all_else_does(full: bool, figure: Figure) -> None:
    """Over many schedules: nothing reachable is ever missing, everything unreachable goes."""
    schedules = 2_000 if full else 60
    deleted = refused = joined = late = 0
    for seed in range(SEED, SEED + schedules):
        store = MemoryStore()

        def count(family: str, store: MemoryStore = store) -> int:
            return len(store._nodes.get(family, ()))

        scene = play(seed, store, count)
        deleted, refused = deleted + scene.deleted, refused + scene.refused
        joined, late = joined + scene.joined, late + scene.late
        assert {} == store._nodes, seed
    assert joined
    assert late
    figure(
        "collection: schedules (runs deleted, zombies refused, late children in and refused)",
        f"{schedules} ({deleted}, {refused}, {joined}, {late})",
    )


def test_the_same_in_a_file(tmp_path: Path, full: bool, figure: Figure) -> None:
    """The statements of SQLite do what the memory store does."""
    schedules = 200 if full else 4
    for seed in range(SEED, SEED + schedules):
        path = tmp_path / f"{seed}.db"
        store = SQLiteStore(str(path))
        db = sqlite3.connect(path)

        def count(family: str, db: sqlite3.Connection = db) -> int:
            found = db.execute("SELECT count(*) FROM nodes WHERE family = ?", (family,)).fetchone()
            return int(found[0])

        play(seed, store, count)
        assert (0,) == db.execute("SELECT count(*) FROM nodes").fetchone(), seed
        db.close()
        run_immediate(store.close())
    figure("collection: schedules on SQLite", schedules)
