"""Nobody waits in silence: what a run waits for is logged with what to do, or raised."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive import errors
from outlive.app.app import App
from outlive.app.open import open_app
from outlive.engine.notices import AGAIN_SECONDS, Notices, signal_of, wait_of
from outlive.journal.seal.keys import new_key
from outlive.model.events import Parked, RunStarted
from outlive.model.run import fold
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.testing.clock import FakeClock
from tests.harness.programs import end_program, start_python

#: Who waits in silence waits for ever.
pytestmark = pytest.mark.timeout(60)

QUICK = Settings(lease_seconds=60, poll_seconds=0.01, idle_seconds=0.0)
PATIENCE_SECONDS = 20
SECRET = "tulip bulbs"


@outlive.effect(doubt="ask")
async def pay(what: str) -> str:
    raise ConnectionResetError(f"no word about {what}")


@outlive.flow
async def buys(what: str) -> str:
    return await pay(what)


@outlive.flow
async def asks(what: str) -> bool:
    return await outlive.ask(f"Buy {what}?", type=bool)


@outlive.flow
async def listens_for(what: str) -> Any:
    return await outlive.wait_signal(what, within="1h")


@outlive.flow
async def listens(what: str) -> Any:
    return await outlive.wait_signal("go", within="1h")


@outlive.flow
async def calls(what: str) -> bool:
    return await outlive.call(asks, what, id="below")


@outlive.flow
async def sleeps(what: str) -> None:
    await outlive.sleep("1h")


WAITS = [
    pytest.param(buys, "0/pay#1", "outlive resolve r '0/pay#1' --happened JSON", id="doubt"),
    pytest.param(asks, "0/ask#1", "outlive answer r yes", id="question"),
    pytest.param(listens, "go", "outlive signal r go VALUE", id="signal"),
]


def an_app(**more: Any) -> App:
    return App(MemoryStore(ports=Ports(), lease_seconds=60), settings=QUICK, **more)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [each for each in caplog.records if each.levelno >= logging.WARNING]
    return [each.getMessage() for each in records if each.name == "outlive"]


async def waits_until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("flow", "step", "command"), WAITS)
async def test_whoever_awaits_a_handle_is_told_once(
    caplog: pytest.LogCaptureFixture, flow: Any, step: str, command: str
) -> None:
    """In one sentence, with run, flow and the next command; a second look adds nothing."""
    async with an_app() as app:
        waiter = asyncio.ensure_future((await app.start(flow, SECRET, id="r")).outcome())
        await waits_until(lambda: told(caplog))
        await asyncio.sleep(0.6)
        waiter.cancel()

    (line,) = told(caplog)
    assert f"run r (flow {flow.name})" in line
    assert command in line


@pytest.mark.parametrize(("flow", "step", "command"), WAITS)
async def test_so_is_whoever_waits_where_the_run_is_not_driven(
    caplog: pytest.LogCaptureFixture, flow: Any, step: str, command: str
) -> None:
    app = an_app()
    async with app.worker([flow]):
        handle = await app.submit(flow, SECRET, id="r")
        await asyncio.sleep(0.3)
        caplog.clear()
        elsewhere = App(app.store, settings=QUICK, drive=False)
        waiter = asyncio.ensure_future((await elsewhere.get(handle.id)).outcome())
        await waits_until(lambda: told(caplog))
        waiter.cancel()

    assert command in told(caplog)[0]


@pytest.mark.parametrize(("flow", "step", "command"), WAITS)
def test_run_raises_instead_if_it_is_told_to(flow: Any, step: str, command: str) -> None:
    """With the facts as attributes; the run keeps its place, and can be gone on with."""
    error = errors.InDoubt if flow is buys else errors.Waiting
    with an_app() as app, pytest.raises(error) as raised:
        app.run(flow, SECRET, id="r", on_wait="raise")

    failed: Any = raised.value
    assert ("r", step) == (failed.run_id, failed.step)
    assert command in str(failed)
    if error is errors.Waiting:
        assert (flow.name, True) == (failed.flow, command in failed.command)


async def test_a_sleep_is_progress(caplog: pytest.LogCaptureFixture) -> None:
    async with an_app() as app:
        handle = await app.start(sleeps, SECRET, id="r")
        with pytest.raises(errors.TimedOut):
            await handle.outcome(timeout=1, on_wait="raise")

    assert [] == told(caplog)


async def test_what_a_child_waits_for_is_told_to_whoever_waits_for_its_parent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = an_app()
    async with app.worker([calls, asks]):
        await app.submit(calls, SECRET, id="above")
        elsewhere = App(app.store, settings=QUICK, drive=False)
        with pytest.raises(errors.Waiting) as raised:
            await (await elsewhere.get("above")).outcome(timeout=20, on_wait="raise")

    assert "below" == raised.value.run_id


async def test_whoever_waits_for_a_run_that_nobody_drives_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with an_app() as app:
        handle = await app.submit(asks, SECRET, id="r")
        with pytest.raises(errors.Waiting, match="outlive worker MODULE") as raised:
            await handle.outcome(timeout=PATIENCE_SECONDS, on_wait="raise")

    assert "unattended" == raised.value.kind


@pytest.mark.parametrize("flow", [buys, asks, listens, listens_for], ids=lambda flow: flow.name)
async def test_of_a_sealed_run_nothing_recorded_is_told(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, flow: Any
) -> None:
    """The line names run, flow, step and kind only, and so does the command in it."""
    key = new_key(os.urandom)
    async with open_app(f"sqlite:///{tmp_path}/s.db", key=key, settings=QUICK) as app:
        waiter = asyncio.ensure_future((await app.start(flow, SECRET, id="r")).outcome())
        await waits_until(lambda: told(caplog))
        waiter.cancel()

    assert "run r" in caplog.text
    assert SECRET not in caplog.text


def test_what_is_neither_logged_nor_raised_is_refused() -> None:
    with an_app() as app, pytest.raises(errors.UsageError, match='"log" or "raise"'):
        app.run(asks, SECRET, on_wait="print")  # type: ignore[arg-type]  # on purpose


def test_it_is_told_at_once_then_rarely(caplog: pytest.LogCaptureFixture) -> None:
    clock, wait = FakeClock(), signal_of("r", "listens", ["go"])
    notices = Notices(clock)
    lines = []
    for _ in range(3 * 600):
        notices.tell(wait)
        lines.append(len(told(caplog)))
        clock.advance(1)

    assert [0, 60, 660, 1260] == [lines.index(count) for count in (1, 2, 3, 4)]
    assert (60, 600) == AGAIN_SECONDS


def test_a_journal_that_does_not_name_its_signals_is_understood() -> None:
    """Earlier releases wrote down only that the run waits for mail."""
    start = RunStarted("listens", "1", b"", b"", b"", "3.11", 0, "r")
    wait = wait_of("r", fold([start, Parked(0, None)]))

    assert wait is not None
    assert "outlive signal r NAME VALUE" in wait.sentence(secret=False)


SCRIPT = """
import sys
import outlive

@outlive.effect(doubt="ask")
async def pay(what: str) -> str:
    raise ConnectionResetError("hung up")

@outlive.flow
async def buys(what: str) -> str:
    return await pay(what)

outlive.run(buys, "tulips", id="r", store=sys.argv[1])
"""


def test_a_script_that_configures_no_logging_shows_the_line(tmp_path: Path) -> None:
    """On standard error, as Python does with warnings that nobody handles."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = start_python(script, f"sqlite:///{tmp_path}/s.db", stderr=-1)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
    finally:
        end_program(process)

    assert "run r (flow buys) is in doubt about effect 0/pay#1" in line
    assert "outlive resolve r '0/pay#1' --happened JSON" in line
