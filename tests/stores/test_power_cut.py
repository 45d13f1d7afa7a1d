"""The SQLite store loses nothing that it acknowledged, wherever the power fails.

The production store runs a small life of journals on a disk that writes down every operation;
then every operation is cut, in every mode. What is found must be, in every part, the state after
all that was acknowledged, or with the one thing besides that was under way. The same things done
to a store in memory say what those states are. Unsafe variants must fail in the same harness.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from outlive.errors import OutliveError
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from outlive.stores.sqlite.connections import Value
from outlive.stores.sqlite.health import spill
from outlive.stores.sqlite.schema import PAGE_BYTES
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Deletion, Node, Query
from outlive.testing.suite.entries import (
    START_MS,
    WANTED,
    HandClock,
    delete_one,
    entry,
    header,
    held,
    parked,
    post_one,
    takeover,
)
from tests.harness.power_cut import Cut, Flush, Operation, Trace, Write, cuts
from tests.harness.power_cut_sqlite import TracedConnection, traced_disk

Instead = Mapping[str, str | tuple[Value, ...]]
Verb = Callable[[Store], Coroutine[Any, Any, object]]

#: So that a small life meets many checkpoints, not just the one of closing.
OFTEN: Instead = {"PRAGMA wal_autocheckpoint = 500": "PRAGMA wal_autocheckpoint = 12"}
NORMAL: Instead = {
    "PRAGMA synchronous = FULL": "PRAGMA synchronous = NORMAL",
    "PRAGMA synchronous": (2,),
}
#: More than the few pages that the cache has then.
ROOM_BYTES = 20 * PAGE_BYTES
DONE = header(status="done", ended_at=START_MS)
ADDRESSES = [b"n1", b"n2", b"n3"]

LIFE: list[Verb] = [
    lambda s: s.commit([held("r", "w", header=header(tags={"a": "b"})), parked("p", START_MS)]),
    lambda s: s.commit([entry("r", 1)]),
    lambda s: s.commit([entry("r", 2), entry("p", 1, last=4)]),
    lambda s: post_one(s, "p", "m1", b"mail"),
    lambda s: s.claim("x", WANTED, 5),
    lambda s: s.commit([takeover("p", 4, "x", epoch=2), entry("r", 3)]),
    lambda s: s.commit(
        [entry("p", 5, epoch=2, consumed=("m1",), nodes=(Node(b"n1", bytes(9000)),))]
    ),
    lambda s: post_one(s, "p", "m2", b"more"),
    lambda s: s.commit(
        [
            entry(
                "p", 6, epoch=2, lease="free", header=header(wake_at=START_MS + 9), consumed=("m2",)
            )
        ]
    ),
    lambda s: s.commit([entry("r", 4, bytes(20_000)), entry("r", 5), entry("q", 0)]),
    lambda s: s.put_blob("family-1", Node(b"n2", b"blob")),
    lambda s: s.commit([entry("r", 3, b"zombie"), entry("q", 1)]),
    lambda s: s.release("w"),
    lambda s: s.commit([entry("q", 2, header=DONE)]),
    lambda s: delete_one(s, "q", seq=3, digest=b"d", keep_until=START_MS + 1),
    lambda s: s.commit([entry(f"k{number}", 0, epoch=0) for number in range(20)]),
    lambda s: s.commit([entry(f"k{number}", 1, epoch=0) for number in range(20)]),
    lambda s: s.commit([entry("r", 6, header=DONE), entry("q", 0)]),
    lambda s: s.commit([entry(f"k{number}", 2, epoch=0, header=DONE) for number in range(9)]),
    lambda s: s.delete(
        [
            Deletion(run_id=f"k{number}", seq=3, digest=b"d", keep_until=START_MS + 1)
            for number in range(9)
        ]
    ),
]


def do(verb: Coroutine[Any, Any, Any]) -> Any:
    """Drive a verb of a local store, which never suspends."""
    try:
        verb.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a local store suspended")


def state_of(store: Store) -> bytes:
    """Everything that can be seen of a store, as bytes to compare."""
    page = do(store.find(Query(), limit=1000))
    readings = [do(store.read(found.head.run_id)) for found in page.items]
    nodes = sorted(do(store.get_blobs("family-1", ADDRESSES)).items())
    posted = {
        run.head.run_id: do(post_one(store, run.head.run_id, "m1", b"")) for run in page.items
    }
    gone = do(store.commit([entry("q", 5, epoch=9)]))
    return msgspec.msgpack.encode([page, readings, nodes, posted, gone])


def expected_states() -> list[bytes]:
    """What can be seen after none, one, two ... of the verbs."""
    states = []
    for count in range(len(LIFE) + 1):
        store = MemoryStore(ports=Ports(clock=HandClock()))
        for verb in LIFE[:count]:
            do(verb(store))
        states.append(state_of(store))
    return states


@dataclass
class Harness:
    """The production store on traced disks; only its connections are exchanged."""

    folder: Path
    instead: Instead
    #: Make room in the log before every other verb, so that there is always some to write over.
    makes_room: bool = False
    trace: Trace = field(default_factory=Trace)
    #: From this operation on the store's mark may be there.
    marked: int = 0

    def open(self, disk: Any) -> SQLiteStore:
        for name in ("o.db", "o.db-wal"):
            self._show(self.folder / name, disk.files)
        return SQLiteStore(
            self.folder / "o.db",
            ports=Ports(clock=HandClock()),
            connect=lambda path: TracedConnection(path, disk, {**OFTEN, **self.instead}),
        )

    def _show(self, path: Path, files: Mapping[str, bytearray]) -> None:
        """Whoever asks the operating system sees what the traced disk has."""
        path.unlink(missing_ok=True)
        if str(path) in files:
            path.write_bytes(files[str(path)])

    def live(self) -> None:
        """Write down a whole life, with one closing and opening in the midst of it."""
        with traced_disk({}, self.trace) as disk:
            store = self.open(disk)
            self.marked = len(self.trace.operations)
            for number, verb in enumerate(LIFE):
                if self.makes_room and number % 2:
                    with store._connections.rolling_back() as db:
                        spill(db, ROOM_BYTES)
                do(verb(store))
                self.trace.done = number + 1
                if number == len(LIFE) // 2:
                    do(store.close())
                    store = self.open(disk)
            do(store.close())

    def find(self, cut: Cut) -> bytes:
        """What is there when the power is back; and the store must work again."""
        mark = self.folder / "o.db-workers" / "made"
        mark.touch() if cut.position >= self.marked else mark.unlink(missing_ok=True)
        with traced_disk(cut.image, Trace()) as disk:
            store = self.open(disk)
            try:
                found = state_of(store)
                assert [None] == do(store.commit([entry("afterwards", 0)]))
                return found
            finally:
                do(store.close())


@dataclass
class Tally:
    """How the trials of one variant ended."""

    trials: int = 0
    lost: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.trials} trials, {len(self.lost)} lost, {len(self.broken)} unreadable"


def judge(tally: Tally, harness: Harness, states: list[bytes], cut: Cut) -> None:
    tally.trials += 1
    name = f"cut {cut.position} {cut.mode} {cut.seed}"
    try:
        found = harness.find(cut)
    except OutliveError as error:
        tally.broken.append(f"{name}: {error}")
        return
    if found not in states[cut.acknowledged : cut.acknowledged + 2]:
        tally.lost.append(name)


def try_all(folder: Path, instead: Instead, *, seeds: int, flushes_lie: bool = False) -> Tally:
    """Every cut of one variant."""
    harness, states, tally = Harness(folder, instead), expected_states(), Tally()
    harness.live()
    for cut in cuts(harness.trace, seeds, flushes_lie=flushes_lie):
        judge(tally, harness, states, cut)
    return tally


def test_nothing_acknowledged_is_lost(
    tmp_path: Path, figure: Callable[[str, object], None], full: bool
) -> None:
    """Cut anywhere: all that was acknowledged is there, the rest wholly or not at all."""
    tally = try_all(tmp_path, {}, seeds=26 if full else 2)

    figure("power cut, production settings", tally)
    assert ([], []) == (tally.lost, tally.broken)
    assert tally.trials >= (5_000 if full else 1_000)


def is_spilled(operation: Operation) -> bool:
    """A page of nothing, but for the number of the page that follows it."""
    if type(operation) is not Write or not operation.name.endswith("-wal"):
        return False
    return operation.data[4:] == bytes(PAGE_BYTES - 4)


def test_room_in_the_log_costs_nothing(
    tmp_path: Path, figure: Callable[[str, object], None], full: bool
) -> None:
    """The same when the log is given room again and again: what was rolled back is never seen."""
    harness, states, tally = Harness(tmp_path, {}, makes_room=True), expected_states(), Tally()
    harness.live()
    for cut in cuts(harness.trace, 6 if full else 1):
        judge(tally, harness, states, cut)

    figure("power cut, room in the log", tally)
    assert len(list(filter(is_spilled, harness.trace.operations))) >= 10 * len(LIFE) // 2
    assert ([], []) == (tally.lost, tally.broken)


def test_without_a_flush_per_commit_events_are_lost(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    """The harness sees what synchronous=NORMAL loses."""
    tally = try_all(tmp_path, NORMAL, seeds=1)

    figure("power cut, synchronous=NORMAL", tally)
    assert len(tally.lost) > tally.trials // 10


def test_with_a_disk_that_lies_events_are_lost(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    """The harness sees what a disk loses that only says it flushed."""
    tally = try_all(tmp_path, {}, seeds=1, flushes_lie=True)

    figure("power cut, flushes that lie", tally)
    assert tally.lost
    assert len(tally.lost) + len(tally.broken) > tally.trials // 10


def test_the_life_meets_everything(tmp_path: Path) -> None:
    """The trace has many flushes, checkpoints into the file, and every verb was acknowledged."""
    harness = Harness(tmp_path, {})
    harness.live()

    flushed = [operation.name for operation in harness.trace.operations if type(operation) is Flush]
    assert len(LIFE) == harness.trace.done
    assert len([name for name in flushed if name.endswith("-wal")]) >= len(LIFE) - 2
    assert len([name for name in flushed if name.endswith("o.db")]) >= 5
