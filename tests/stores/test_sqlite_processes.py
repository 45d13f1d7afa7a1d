"""Several processes on one SQLite file: who is dead, who only sleeps, and what a fork leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from outlive.ports import Ports
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Offer, Query
from outlive.testing.suite.entries import LEASE_SECONDS, WANTED, HandClock, entry, takeover

HERE = Path(__file__).parent
#: New files that eight processes open at once.
OPENINGS = 40
Start = Callable[[str], "Process"]


class Process:
    """A worker process and the line to it."""

    def __init__(self, path: Path, worker: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, str(HERE / "worker_process.py"), str(path), worker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert "ready" == self._answer()

    def tell(self, command: str) -> str:
        self.send(command)
        return self._answer()

    def send(self, command: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(command + "\n")
        self.popen.stdin.flush()

    def _answer(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "o.db"


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    processes: list[Process] = []

    def begin(worker: str) -> Process:
        processes.append(Process(path, worker))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(path: Path, clock: HandClock) -> Iterator[SQLiteStore]:
    store = SQLiteStore(path, ports=Ports(clock=clock), lease_seconds=LEASE_SECONDS)
    yield store
    asyncio.run(store.close())


async def offers(store: SQLiteStore) -> list[Offer]:
    return list((await store.claim("watcher", WANTED, 10)).offers)


async def test_a_killed_process_is_dead_at_once(store: SQLiteStore, start: Start) -> None:
    """The kernel frees the lock: no time goes by on the watcher's clock."""
    process = start("w")
    assert "done" == process.tell("hold r")
    assert [] == await offers(store)

    process.kill()

    (offer,) = await offers(store)
    assert ("r", "w", True) == (offer.head.run_id, offer.head.worker, offer.certain)


async def test_a_stopped_process_is_silent_not_dead(
    store: SQLiteStore, start: Start, clock: HandClock
) -> None:
    """Its run is offered after a lease; when it wakes, it is refused at its first append."""
    process = start("w")
    process.tell("hold r")
    process.popen.send_signal(signal.SIGSTOP)
    process.send("append r 1")
    assert [] == await offers(store)
    clock.advance(LEASE_SECONDS)
    (offer,) = await offers(store)
    assert not offer.certain
    assert [None] == list(await store.commit([takeover("r", 1, "watcher", epoch=2)]))

    process.popen.send_signal(signal.SIGCONT)

    assert "conflict 2 2" == process._answer()
    assert "conflict 2 2" == process.tell("append r 2")
    assert "conflict 2 2" == process.tell("take r 1 2")


async def test_a_closed_store_frees_its_workers(store: SQLiteStore, start: Start) -> None:
    """A process that ended in order is as dead as one that did not."""
    process = start("w")
    process.tell("hold r")

    assert "closed" == process.tell("close")

    (offer,) = await offers(store)
    assert offer.certain


async def test_a_forked_child_does_not_keep_its_parent_alive(
    store: SQLiteStore, start: Start
) -> None:
    """The lock is the parent's alone: it dies with it, though the child lives on."""
    process = start("w")
    process.tell("hold r")
    child = int(process.tell("fork"))
    assert [] == await offers(store)

    process.kill()

    (offer,) = await offers(store)
    assert offer.certain
    os.kill(child, signal.SIGKILL)


async def test_a_parent_goes_on_after_a_fork(store: SQLiteStore, start: Start) -> None:
    """Forking costs the parent neither its store nor its lock."""
    process = start("w")
    process.tell("hold r")
    child = int(process.tell("fork"))

    assert "done" == process.tell("append r 1")
    assert [] == await offers(store)
    os.kill(child, signal.SIGKILL)


FORKED = """
import asyncio, os, sys, threading
from outlive.errors import AppClosed
from outlive.stores.sqlite.store import SQLiteStore
from outlive.testing.suite.entries import entry

path = sys.argv[1]
store = SQLiteStore(path)
asyncio.run(store.beat("w"))
asyncio.run(store.commit([entry("parent", 0)]))
to_child, from_parent = os.pipe()
to_parent, from_child = os.pipe()
if os.fork() == 0:
    for verb in (store.commit([entry("parent", 1)]), store.read("parent"), store.beat("w")):
        try:
            asyncio.run(verb)
            os._exit(1)
        except AppClosed:
            pass
    asyncio.run(store.close())
    again = SQLiteStore(path)
    asyncio.run(again.commit([entry("child", 0)]))
    os.write(from_child, b"x")
    os.read(to_child, 1)
    for after in range(1, 20):
        assert [None] == asyncio.run(again.commit([entry("child", after)]))
    sys.exit(0)
os.read(to_parent, 1)
asyncio.run(store.commit([entry("parent", 1)]))
asyncio.run(store.close())
os.write(from_parent, b"x")
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_forked_child_must_open_the_store_anew(path: Path) -> None:
    """It is refused what it inherited; what it opens is its own, whatever its parent closes."""
    ended = subprocess.run([sys.executable, "-c", FORKED, str(path)], timeout=60)

    assert 0 == ended.returncode
    store = SQLiteStore(path)
    readings = [asyncio.run(store.read(run_id)) for run_id in ("parent", "child")]
    assert [2, 20] == [reading.head.seq for reading in readings if reading]
    asyncio.run(store.close())


def test_many_processes_open_a_new_file_at_once(tmp_path: Path) -> None:
    """The tables are made once, and nobody is turned away."""
    code = (
        "import asyncio, sys; from outlive.stores.sqlite.store import SQLiteStore\n"
        "from outlive.testing.suite.entries import entry\n"
        "for line in sys.stdin:\n"
        "    store = SQLiteStore(line.strip())\n"
        "    assert [None] == asyncio.run(store.commit([entry(sys.argv[1], 0)]))\n"
        "    asyncio.run(store.close())\n"
        "    print('done', flush=True)\n"
    )
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([sys.executable, "-c", code, f"r{n}"], stdin=pipe, stdout=pipe, bufsize=0)
        for n in range(8)
    ]
    for number in range(OPENINGS):
        path = tmp_path / str(number) / "o.db"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(f"{path}\n".encode())
        for process in processes:
            assert process.stdout is not None
            assert b"done\n" == process.stdout.readline()
        store = SQLiteStore(path)
        assert 8 == len(asyncio.run(store.find(Query())).items)
        asyncio.run(store.close())
    for process in processes:
        process.communicate()


def test_of_processes_that_race_for_a_run_one_has_it(path: Path, start: Start) -> None:
    """Whoever appends its claim first owns the epoch; all others are told so."""
    store = SQLiteStore(path)
    asyncio.run(store.commit([entry("r", 0)]))
    workers = [start(f"w{number}") for number in range(4)]

    for turn in range(1, 11):
        for worker in workers:
            worker.send(f"take r {turn} {turn + 1}")
        answers = [worker._answer() for worker in workers]
        assert ["done"] == [answer for answer in answers if not answer.startswith("conflict")]

    asyncio.run(store.close())
