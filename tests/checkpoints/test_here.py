"""Appends on the caller's own loop: only while that is quick, and nothing is lost when not."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from outlive.checkpoints import DurableRunner, SnapshotStore
from outlive.errors import StoreUnavailable
from outlive.journal import lane as immediate
from outlive.journal.lane import QUICK_TIMES
from outlive.stores.memory import MemoryStore
from outlive.stores.postgres import commit as postgres_prompt
from outlive.stores.types import Entry
from tests.checkpoints.victim import PATIENT_SECONDS

MANY = 8


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no slow disk."""
    monkeypatch.setattr(immediate, "SLOW_SECONDS", PATIENT_SECONDS)


class Watched(MemoryStore):
    """Tells on which threads it was written to; may be busy, and keep its answers back."""

    def __init__(self) -> None:
        super().__init__()
        self.writers: list[str] = []
        self.is_busy, self.fails = False, False
        self.late: list[Entry] = []
        self.given: list[Entry] = []
        self.answers = threading.Event()
        self.answers.set()

    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
        if not wait and self.is_busy:
            self.late += batch
            return None
        self.answers.wait(PATIENT_SECONDS)
        if self.fails:
            raise StoreUnavailable("on purpose")
        self.writers.append(threading.current_thread().name.split("_")[0])
        self.given += batch
        return await super().commit(batch, wait=wait)


async def save(runner: DurableRunner, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        await runner.checkpoint("r", f"s{number}", {"texts": ["t" * 600] * number})


async def steps(runner: DurableRunner) -> list[int]:
    return [int(each.step_id[1:]) for each in await runner.list_checkpoints("r")]


async def quick(store: Watched) -> DurableRunner:
    """A runner that appends on the caller's loop from now on."""
    runner = DurableRunner(SnapshotStore(store))
    await save(runner, QUICK_TIMES)
    return runner


async def test_after_some_quick_ones_it_is_the_callers_thread() -> None:
    """Until then a thread of the lane."""
    store = Watched()
    runner = await quick(store)
    await save(runner, 5, QUICK_TIMES)

    assert ["outlive-lane"] * QUICK_TIMES + ["MainThread"] * 5 == store.writers
    assert list(range(QUICK_TIMES + 5)) == await steps(runner)


async def test_a_slow_store_keeps_no_loop_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """One slow answer, and the lane has it again."""
    store = Watched()
    runner = await quick(store)
    monkeypatch.setattr(immediate, "SLOW_SECONDS", -1.0)
    await save(runner, 3, QUICK_TIMES)

    assert ["MainThread", "outlive-lane", "outlive-lane"] == store.writers[QUICK_TIMES:]


async def test_a_busy_store_is_asked_again_aside() -> None:
    """For the very same entry, and the answer is the caller's."""
    store = Watched()
    runner = await quick(store)
    store.is_busy = True
    snapshot = await runner.checkpoint("r", f"s{QUICK_TIMES}", {"n": 1})

    assert "outlive-rest" == store.writers[-1]
    assert store.late == store.given[-1:]
    assert f"s{QUICK_TIMES}" == snapshot.step_id
    assert list(range(QUICK_TIMES + 1)) == await steps(runner)


async def test_who_is_behind_a_late_answer_waits_for_it() -> None:
    """Though more wait than the lane has threads, and the loop goes on meanwhile."""
    store = Watched()
    runner = await quick(store)
    store.is_busy = True
    store.answers.clear()
    saves = [asyncio.create_task(save(runner, 1, QUICK_TIMES + number)) for number in range(MANY)]
    while not store.late:
        await asyncio.sleep(0)
    looks = [asyncio.create_task(steps(runner)) for _ in range(MANY)]
    for _ in range(MANY):
        await asyncio.sleep(0)
    assert not any(task.done() for task in [*saves, *looks])
    store.answers.set()
    async with asyncio.timeout(PATIENT_SECONDS):
        await asyncio.gather(*saves, *looks)

    assert set(range(QUICK_TIMES + MANY)) == set(await steps(runner))


async def test_what_was_begun_is_carried_to_its_end() -> None:
    """Also when nobody waits for it any more."""
    store = Watched()
    runner = await quick(store)
    store.is_busy = True
    store.answers.clear()
    saving = asyncio.create_task(save(runner, 1, QUICK_TIMES))
    while not store.late:
        await asyncio.sleep(0)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    store.answers.set()
    await save(runner, 1, QUICK_TIMES + 1)

    assert list(range(QUICK_TIMES + 2)) == await steps(runner)


@pytest.mark.parametrize("is_busy", [True, False])
async def test_a_failure_leaves_the_turn_to_others(is_busy: bool) -> None:
    """Nothing is known of the journal then; it is read again."""
    store = Watched()
    runner = await quick(store)
    store.is_busy, store.fails = is_busy, True
    with pytest.raises(StoreUnavailable, match="on purpose"):
        await save(runner, 1, QUICK_TIMES)
    store.fails = False
    async with asyncio.timeout(PATIENT_SECONDS):
        await save(runner, 1, QUICK_TIMES + 1)

    assert [*range(QUICK_TIMES), QUICK_TIMES + 1] == await steps(runner)


async def test_what_another_process_wrote_is_read_aside() -> None:
    """A conflict leads away from the loop, too: reading may take long."""
    store = Watched()
    runner = await quick(store)
    other = DurableRunner(SnapshotStore(store))
    await save(other, 1, QUICK_TIMES)
    threads: list[str] = []
    read = store.read

    async def watched(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name.split("_")[0])
        return await read(*arguments, **options)

    store.read = watched  # type: ignore[method-assign]
    await save(runner, 1, QUICK_TIMES + 1)

    assert ["outlive-rest"] == threads
    assert list(range(QUICK_TIMES + 2)) == await steps(runner)


async def test_a_server_whose_answers_are_late_keeps_all(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit is under way when the loop goes on; some callers give up, and nothing doubles."""
    monkeypatch.setattr(immediate, "QUICK_TIMES", 0)
    monkeypatch.setattr(postgres_prompt, "MOMENT_SECONDS", 0.0)
    dice = random.Random(20)
    async with SnapshotStore(url) as store:
        runner = DurableRunner(store)
        await save(runner, 1)
        acknowledged = {0}
        for number in range(1, 60):
            saving = asyncio.create_task(save(runner, 1, number))
            for _ in range(dice.randrange(6)):
                await asyncio.sleep(0)
            if dice.random() < 0.3:
                saving.cancel()
            with suppress(asyncio.CancelledError):
                await saving
                acknowledged.add(number)
        assert any(each.name.startswith("outlive-rest") for each in threading.enumerate())
        kept = [int(each.step_id[1:]) for each in await runner.history("r")]
    async with SnapshotStore(url) as store:
        again = [int(each.step_id[1:]) for each in await DurableRunner(store).history("r")]

    assert kept == again == sorted(set(kept))
    assert acknowledged <= set(kept)
