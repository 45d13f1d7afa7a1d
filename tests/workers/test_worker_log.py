"""What a worker logs: a line for each start, end, failure, doubt, question, mismatch, takeover."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import outlive
import outlive.sync
from outlive.app.app import App
from outlive.app.open import open_app
from outlive.errors import StoreFailed
from outlive.journal.seal.keys import new_key
from outlive.model.decide import CLAIMS_MAX
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.worker.repertoire import all_of

QUICK = Settings(lease_seconds=60, poll_seconds=0.01, idle_seconds=0.0)
own = logging.getLogger("shop")


@outlive.step
async def look(what: str) -> str:
    if what == "nettles":
        raise ValueError(f"nobody sells {what}")
    return what


@outlive.effect(doubt="ask")
async def pay(what: str) -> str:
    raise ConnectionResetError(f"no word about {what}")


@outlive.flow
async def buys(what: str) -> str:
    return await look(what)


@outlive.flow
async def pays(what: str) -> str:
    return await pay(what)


@outlive.flow
async def asks(what: str) -> bool:
    own.warning("begin")
    await look(what)
    own.warning("looked")
    yes = await outlive.ask(f"Buy {what}?", type=bool)
    own.warning("answered")
    return yes


def asks_otherwise() -> Any:
    @outlive.flow(name="asks")
    async def changed(what: str) -> str:
        return await look(what + "!")

    return changed


@outlive.flow
async def naps() -> None:
    await doze()


@outlive.flow
async def stirs() -> None:
    for _ in range(200):
        await doze(0.1)


@outlive.step
async def doze(seconds: float = 60) -> None:
    await asyncio.sleep(seconds)


SHOP = """
import outlive

@outlive.flow
async def buys(what: str) -> str:
    if what == "nettles":
        raise ValueError("nobody sells them")
    return what
"""


def an_app() -> App:
    return App(MemoryStore(ports=Ports(), lease_seconds=60), settings=QUICK)


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    found = [each for each in caplog.records if each.name == "outlive" and each.levelno == level]
    return [each.getMessage() for each in found]


async def see(caplog: pytest.LogCaptureFixture, level: int, text: str) -> str:
    async with asyncio.timeout(20):
        while not (found := [line for line in lines(caplog, level) if text in line]):
            await asyncio.sleep(0.01)
    (line,) = found
    return line


async def test_ordinary_runs_are_logged_as_information(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "outlive")
    app = an_app()
    async with app.worker([buys]):
        await (await app.submit(buys, "tulips", id="r"))

    assert ["run r (flow buys) started", "run r (flow buys) completed"] == lines(caplog, 20)
    assert [] == lines(caplog, logging.WARNING)


async def test_what_is_bad_or_needs_a_human_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    app = an_app()
    async with app.worker([buys, pays, asks]):
        for flow, name in ((buys, "b"), (pays, "p"), (asks, "a")):
            await app.submit(flow, "nettles" if flow is buys else "tulips", id=name)
        failed = await see(caplog, 30, "run b (flow buys) failed")
        doubted = await see(caplog, 30, "run p (flow pays) is in doubt about effect 0/pay#1")
        asked = await see(caplog, 30, "run a (flow asks) asks: Buy tulips?")

    assert "nobody sells nettles" in failed
    assert "outlive resolve p '0/pay#1'" in doubted
    assert "outlive answer a yes" in asked


async def test_a_mismatch_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    app = an_app()
    async with app.worker([asks]):
        handle = await app.submit(asks, "tulips", id="a")
        await see(caplog, 30, "asks: Buy tulips?")
    async with app.worker([asks_otherwise()]):
        await handle.answer(True)
        line = await see(caplog, 30, "run a (flow asks) can't go on: mismatch: ")

    assert "outlive show a" in line
    assert "waiting" == await handle.status()
    assert (await handle.run()).reason.startswith("mismatch: ")


async def test_a_failure_is_logged_with_the_users_frames(caplog: pytest.LogCaptureFixture) -> None:
    """Where it was raised stands below the line, as in a traceback."""
    app = an_app()
    async with app.worker([buys]):
        await app.submit(buys, "nettles", id="b")
        line, *frames = (await see(caplog, 30, "run b (flow buys) failed")).split("\n")

    assert "run b (flow buys) failed: ValueError: nobody sells nettles" == line
    assert any("test_worker_log.py" in frame and "in buys" in frame for frame in frames)
    assert any("test_worker_log.py" in frame and "in look" in frame for frame in frames)


async def test_a_takeover_is_logged_with_the_worker_that_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "outlive")
    store = MemoryStore(ports=Ports(), lease_seconds=60)
    gone = App(store, settings=QUICK)
    worker = gone._workers.make(all_of([naps]), everything=True, concurrency=1)
    worker.start()
    await gone.submit(naps, id="n")
    await see(caplog, 20, "run n (flow naps) started")
    gone._writer.keeper.end(StoreFailed("the process is gone"))
    await worker.stop()
    gone._reader.is_closed = True
    store.kill(worker.id)

    async with App(store, settings=QUICK) as app, app.worker([naps]):
        await see(caplog, 20, f"run n (flow naps) taken over from worker {worker.id}")


async def test_a_lost_lease_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The worker that drove the run is told by the store that another one does."""
    store = MemoryStore(ports=Ports(), lease_seconds=60)
    app, other = App(store, settings=QUICK), App(store, settings=QUICK)
    async with app.worker([stirs]) as worker:
        await app.submit(stirs, id="n")
        async with asyncio.timeout(20):
            while "n" not in worker.driving:
                await asyncio.sleep(0.01)
        store.kill(worker.id)  # as others see it: it goes on
        async with other.worker([stirs]):
            line = await see(caplog, 30, "run n (flow stirs) was taken over")

    assert "this worker lost its lease" in line


async def test_a_quarantine_is_a_warning_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore(ports=Ports(), lease_seconds=60)
    app = App(store, settings=QUICK)
    await app.submit(naps, id="n")
    for _ in range(CLAIMS_MAX):
        doomed = App(store, settings=QUICK)
        worker = doomed._workers.make(all_of([naps]), everything=True, concurrency=1)
        worker.start()
        async with asyncio.timeout(20):
            while "n" not in worker.driving or worker.log_of("n").durable < worker.log_of("n").seq:
                await asyncio.sleep(0.01)
        doomed._writer.keeper.end(StoreFailed("the process is gone"))
        await worker.stop()
        doomed._reader.is_closed = True
        store.kill(worker.id)
    async with app.worker([naps]):
        line = await see(caplog, 30, "run n (flow naps) is quarantined, for it killed its workers")

    assert "`outlive show n`, then `outlive resume n MODULE`" in line


@pytest.mark.parametrize(("level", "said"), [("info", True), ("warning", False)])
def test_the_level_of_a_workers_log_is_chosen(tmp_path: Path, level: str, *, said: bool) -> None:
    """At warning ordinary runs are not told of; a failure is, at any level."""
    (tmp_path / "shop.py").write_text(SHOP)
    environment = {**os.environ, "OUTLIVE_STORE": f"sqlite:///{tmp_path}/s.db"}
    words = [sys.executable, "-m", "outlive", "worker", "shop", "--log-level", level]
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=-1, text=True) as worker:
        assert worker.stderr is not None
        with outlive.sync.open(environment["OUTLIVE_STORE"]) as app:
            for name in ("tulips", "nettles"):
                app.submit("buys", name, id=name)
        text = ""
        while "nettles (flow buys) failed" not in text:
            text += (line := worker.stderr.readline())
            assert line, text
        worker.terminate()

    assert said is ("run tulips (flow buys) completed" in text)


async def test_of_a_sealed_run_no_payload_is_logged(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG, "outlive")
    url, key = f"sqlite:///{tmp_path}/s.db", new_key(os.urandom)
    async with open_app(url, key=key, settings=QUICK) as app, app.worker([buys, pays, asks]):
        for flow, name in ((buys, "b"), (pays, "p"), (asks, "a")):
            await app.submit(flow, "nettles" if flow is buys else "tulips", id=name)
        await see(caplog, 30, "run b (flow buys) failed")
        await see(caplog, 30, "run p (flow pays)")
        await see(caplog, 30, "run a (flow asks)")

    assert not any(word in caplog.text for word in ("nettles", "tulips"))


async def test_flow_code_logs_each_line_once_whoever_drives_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The replay of a run says nothing again; what comes after it is news."""
    app = an_app()
    filters = [list(handler.filters) for handler in logging.root.handlers]
    async with app.worker([asks]):
        handle = await app.submit(asks, "tulips", id="a")
        await see(caplog, 30, "asks: Buy tulips?")
    async with app.worker([asks]):
        await handle.answer(True)
        assert await handle

    said = [each.getMessage() for each in caplog.records if each.name == "shop"]
    assert ["begin", "looked", "answered"] == said
    assert filters == [list(handler.filters) for handler in logging.root.handlers]
