"""Deaths of workers count against a run only if something of it was tried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import outlive
from outlive.app.app import App
from outlive.app.handle import Handle
from outlive.engine.definitions import Flow
from outlive.errors import StoreFailed
from outlive.model.decide import CLAIMS_MAX
from outlive.model.events import Claimed, DriveBegan, RunQuarantined
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.worker.repertoire import all_of
from outlive.worker.worker import Worker

PATIENT = Settings(lease_seconds=60, poll_seconds=0.01, idle_seconds=60.0, drain_seconds=2)
DEATHS = 3 * CLAIMS_MAX

When = Callable[[Worker], Awaitable[object]]


@outlive.flow(name="deaths_wait")
async def wait() -> str:
    return str(await outlive.wait_signal("go", type=str))


@outlive.flow(name="deaths_nap")
async def nap() -> str:
    await outlive.sleep(50)
    return "slept"


@outlive.step(name="deaths_never")
async def never() -> None:
    await asyncio.sleep(3600)


@outlive.flow(name="deaths_busy")
async def busy() -> None:
    await never()


async def at_its_claim(worker: Worker) -> None:
    """The worker dies when the claim is durable, and nothing else was done."""
    died = asyncio.Event()
    worker._loading._go_on = lambda chapter: _die(died)  # type: ignore[method-assign,assignment]
    await died.wait()


async def _die(died: asyncio.Event) -> None:
    died.set()
    await asyncio.Event().wait()


async def while_it_waits(worker: Worker) -> None:
    """The worker dies a while after the run is in memory, or was there."""
    while not worker._env.keeper.counters.entries:
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.05)


async def dies(store: MemoryStore, flow: Flow[[], object], when: When) -> None:
    doomed = App(store, settings=PATIENT)
    worker = doomed._workers.make(all_of([flow]), everything=True, concurrency=10)
    worker.start()
    try:
        async with asyncio.timeout(1):
            await when(worker)
    except TimeoutError:
        pass  # nobody offers it: it left memory, and waits
    doomed._writer.keeper.end(StoreFailed("the process is gone"))
    worker._leave_loop()
    await worker.stop()
    store.kill(worker.id)
    doomed._reader.is_closed = True


async def after_deaths(flow: Flow[[], object], when: When) -> tuple[Handle[object], MemoryStore]:
    store = MemoryStore(lease_seconds=60)
    app = App(store, settings=PATIENT)
    handle = await app.submit(flow, id="r")
    for _ in range(DEATHS):
        await dies(store, flow, when)
        if (await store.read("r")).head.worker is None:
            break
    return handle, store


async def test_a_run_that_was_only_claimed_is_never_quarantined() -> None:
    """However many workers die before they come to drive it; the next one does."""
    handle, store = await after_deaths(wait, at_its_claim)
    events = await handle.read()
    async with App(store, settings=PATIENT) as app, app.worker([wait]):
        await handle.signal("go", "on")
        assert "on" == await handle.outcome(timeout=5)

    assert DEATHS == sum(isinstance(event, Claimed) for event in events)
    assert not any(isinstance(event, (RunQuarantined, DriveBegan)) for event in events)


async def test_a_run_that_only_waits_is_never_quarantined() -> None:
    """After a death it leaves memory as soon as it waits; nobody holds it any more."""
    for flow in (wait, nap):
        handle, store = await after_deaths(flow, while_it_waits)
        events = await handle.read()

        assert (await store.read("r")).head.worker is None
        assert 2 == sum(isinstance(event, Claimed) for event in events)
        assert "waiting" == await handle.status()


async def test_a_run_whose_step_kills_is_quarantined() -> None:
    """A body was begun each time, and nothing came of it: five deaths are enough."""
    handle, _ = await after_deaths(busy, while_it_waits)
    events = await handle.read()

    assert CLAIMS_MAX + 1 == sum(isinstance(event, Claimed) for event in events)
    assert isinstance(events[-1], RunQuarantined)


async def test_a_schedule_is_never_quarantined() -> None:
    """Its workers die again and again; it still rings."""
    store = MemoryStore(lease_seconds=60)
    async with App(store, settings=PATIENT) as app:
        await app.schedule("tick", nap, every=timedelta(seconds=50))
        for _ in range(DEATHS):
            await dies(store, nap, while_it_waits)
        page = await app.store.find(outlive.stores.types.Query(status="quarantined"))

    assert [] == list(page.items)
