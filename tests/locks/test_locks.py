"""Locks in one process: who holds one, how it is waited for, how its loss is noticed."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import outlive
from outlive.errors import LockLost, TimedOut, UsageError
from outlive.journal.lane import run_immediate
from outlive.locks import DistributedLock, Semaphore
from outlive.locks.place import StorePlace
from tests.harness.postgres_server import PostgresServer


@pytest.fixture(params=["memory", "sqlite", "sealed", "postgres"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StorePlace]:
    kind = request.param
    if kind == "sealed":
        monkeypatch.setenv("OUTLIVE_KEY", base64.b64encode(b"1" * 32).decode())
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        where = request.getfixturevalue("url")
        assert server
    else:
        where = "memory://" if kind == "memory" else f"sqlite:///{tmp_path}/locks.db"
    place = StorePlace(where)
    yield place
    place.close()


def other(place: StorePlace, resource: str = "gate", timeout: float = 0.05) -> DistributedLock:
    return DistributedLock(resource=resource, persistence=place, timeout_seconds=timeout)


def lost(lock: DistributedLock, place: StorePlace) -> None:
    """Have somebody else take the lock, as if this process had been silent for too long."""
    from outlive.locks.lock import Slots

    opened = place.open()
    run_immediate(opened.store.release(opened.holder.id))
    taken = run_immediate(Slots(opened, [lock.resource]).take())
    assert taken is not None
    assert taken.token > lock.token


def test_one_holder_at_a_time(place: StorePlace) -> None:
    """Item 62: while a lock is held nobody else gets it, and each holder has a higher token."""
    first, second = other(place), other(place)
    one = first.acquire()
    with pytest.raises(TimedOut, match=r"'gate' was held by others for 0\.05 s"):
        second.acquire()
    assert first.is_held
    first.release()
    assert not first.is_held

    assert second.acquire() > one
    second.release()


def test_another_resource_is_another_lock(place: StorePlace) -> None:
    """Locks of different resources do not disturb each other."""
    with other(place, "a") as a, other(place, "b") as b:
        assert a.is_held
        assert b.is_held


async def test_the_planned_form(tmp_path: Path) -> None:
    """Item 62: the form of the document works as it is written, and frees the lock at its end."""
    url = f"sqlite:///{tmp_path}/locks.db"
    with outlive.open(url, drive=False) as persistence:
        async with DistributedLock(
            persistence=persistence, resource="agent:task-123", timeout_seconds=30
        ) as lock:
            assert 1 == lock.token
        with pytest.raises(UsageError, match="not held here"):
            lock.check()


async def test_plain_and_async_forms_exclude_each_other(place: StorePlace) -> None:
    """A lock of plain code, taken inside a running loop, keeps async code out, and back."""
    with other(place), pytest.raises(TimedOut):
        await other(place).aacquire()
    async with other(place):
        with pytest.raises(TimedOut):
            other(place).acquire()


async def test_waiting_does_not_block_the_loop(place: StorePlace) -> None:
    """While a task waits for a lock, others go on, and it gets the lock when it is free."""
    order: list[str] = []

    async def wait() -> None:
        async with other(place, timeout=60):
            order.append("second")

    async with other(place):
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.05)
        order.append("first")
    await waiting
    assert ["first", "second"] == order


async def test_a_cancelled_wait_holds_nothing(place: StorePlace) -> None:
    """Whoever stops waiting does not hold the lock afterwards."""
    lock = other(place, timeout=60)
    for _ in range(20):
        task = asyncio.create_task(lock.aacquire())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not lock.is_held
    with other(place, timeout=10):
        pass


def test_a_lock_is_not_reentrant(place: StorePlace) -> None:
    """Item 62: taking a lock object twice is refused, and says why."""
    lock = other(place)
    with lock, pytest.raises(UsageError, match="not reentrant"):
        lock.acquire()
    with lock:
        pass


def test_plain_code_notices_a_loss(place: StorePlace) -> None:
    """A lost lock is told by ``check`` and at the end of the block."""
    lock = other(place)
    with pytest.raises(LockLost, match="'gate' was lost: somebody else held it"), lock:
        lost(lock, place)
    assert not lock.is_held


def test_the_error_of_a_block_wins(place: StorePlace) -> None:
    """If the block raised, its error is not hidden by the loss."""
    lock = other(place)

    def work() -> None:
        with lock:
            lost(lock, place)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()


async def test_a_loss_cancels_an_async_block(
    place: StorePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block that only waits ends with ``LockLost`` soon after the lock was lost."""
    monkeypatch.setenv("OUTLIVE_LEASE_SECONDS", "1")
    told = threading.Event()
    lock = DistributedLock(resource="gate", persistence=place, on_loss=told.set)

    async def work() -> None:
        async with lock:
            lost(lock, place)
            await asyncio.sleep(60)

    with pytest.raises(LockLost):
        await work()
    assert told.is_set()
    assert 0 == asyncio.current_task().cancelling()  # type: ignore[union-attr]  # in a task


def test_a_semaphore_lets_n_in(place: StorePlace) -> None:
    """Of three who want one of two places, two get one; the third when one is given back."""
    first, second, third = (
        Semaphore(2, resource="pool", persistence=place, timeout_seconds=0.05) for _ in range(3)
    )
    first.acquire()
    second.acquire()
    assert {0, 1} == {first.slot, second.slot}
    with pytest.raises(TimedOut):
        third.acquire()
    slot = first.slot
    first.release()
    third.acquire()
    assert slot == third.slot
    second.release()
    third.release()


def test_threads_take_turns(place: StorePlace) -> None:
    """Threads of one process exclude each other, too: no increment of a counter gets lost."""
    counter = [0]

    def work() -> None:
        lock = other(place, timeout=120)
        for _ in range(10):
            with lock:
                seen = counter[0]
                threading.Event().wait(0.001)
                counter[0] = seen + 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 40 == counter[0]


@pytest.mark.parametrize("resource", ["", "a\0b", "x" * 401, 7, "\ud800"])
def test_hostile_names_are_refused(resource: object) -> None:
    """Item 74: a name that a store can't keep is refused before anything is written."""
    with pytest.raises(UsageError, match="resource"):
        DistributedLock(resource=resource, persistence="memory://")  # type: ignore[arg-type]  # so


def test_names_are_never_paths(tmp_path: Path) -> None:
    """Item 74: a resource that looks like a path makes no file."""
    place = StorePlace(f"sqlite:///{tmp_path}/store/locks.db")
    (tmp_path / "store").mkdir()
    with DistributedLock(resource="../../evil", persistence=place):
        pass
    place.close()
    assert ["store"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("timeout", [-1, "1", True])
def test_a_timeout_is_a_number_of_seconds(timeout: object) -> None:
    """Anything else is refused."""
    with pytest.raises(UsageError, match="timeout_seconds"):
        DistributedLock(resource="a", timeout_seconds=timeout)  # type: ignore[arg-type]  # so


def test_what_names_no_store_is_refused() -> None:
    """A persistence without a store has no locks."""
    with pytest.raises(UsageError, match="names no store"):
        DistributedLock(resource="a", persistence=object())
