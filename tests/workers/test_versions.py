"""A run keeps its version: who does not accept it leaves it alone, and says so when asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.errors import FlowNotRegistered, RunFailed, RunNotFound, UsageError, WrongVersion
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore
from outlive.stores.types import Reading
from outlive.worker.repertoire import Repertoire

QUICK = Settings(lease_seconds=60, poll_seconds=0.01, idle_seconds=0.0, drain_seconds=2)


async def _echo(text: str) -> str:
    return text


def echo(version: str, *accepts: str) -> outlive.Flow[Any, Any]:
    made: outlive.Flow[Any, Any] = outlive.flow(name="echo", version=version, accepts=accepts)(
        _echo
    )
    return made


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with App(MemoryStore(), settings=QUICK) as app:
        yield app


async def reading(app: App, run_id: str) -> Reading:
    return await app.read(run_id)


async def settle_down(app: App) -> None:
    """Let the workers look around several times."""
    await asyncio.sleep(0.1)


async def test_a_worker_leaves_other_versions_alone(app: App) -> None:
    """Nothing is appended, nothing counted; the header says what waits for whom."""
    await app.submit(echo("1"), "a", id="old")
    new = await app.submit(echo("2"), "b", id="new")
    async with app.worker([echo("2")]):
        assert "b" == await new.outcome(timeout=5)
        await settle_down(app)
        left = await reading(app, "old")
        assert ("pending", "1", None) == (left.header.status, left.header.version, left.head.worker)
        assert 1 == left.head.seq

    async with app.worker([echo("3", "2", "1")]):
        assert "a" == await (await app.get("old")).outcome(timeout=5)
    assert "1" == (await reading(app, "old")).header.version


@pytest.mark.parametrize("verb", ["start", "submit", "ensure", "resume"])
async def test_asking_for_a_run_of_another_version_names_both(app: App, verb: str) -> None:
    """Whoever has the wrong code is told at once, and the run is not touched."""
    await app.submit(echo("1"), "a", id="r")
    code = echo("3", "2")
    asking = app.resume("r", [code]) if verb == "resume" else getattr(app, verb)(code, "a", id="r")
    with pytest.raises(WrongVersion, match=r"version '1'.*this code drives 2, 3") as caught:
        await asking
    assert "accepts=('1',)" in str(caught.value)
    assert 1 == (await reading(app, "r")).head.seq


def test_each_version_has_its_own_code_where_both_are_known() -> None:
    """A run goes to the code of its version, else to what accepts it, the newest first."""
    first, second, third = echo("1"), echo("2", "1"), echo("3", "2", "0")
    both = Repertoire([first, second, third])
    assert first is both.find("echo", "1")
    assert second is both.find("echo", "2")
    assert third is both.find("echo", "0")
    assert {"echo": frozenset("0123")} == both.versions()
    with pytest.raises(WrongVersion, match=r"version '9'.*drives 0, 1, 2, 3"):
        both.find("echo", "9")
    with pytest.raises(FlowNotRegistered):
        both.find("other", "1")


def parent_of(version: str, child: outlive.Flow[Any, Any], *accepts: str) -> Any:
    async def parent(text: str) -> str:
        return str(await outlive.call(child, text)) + "!"

    return outlive.flow(name="parent", version=version, accepts=accepts)(parent)


is_open = False


@outlive.step
async def gate() -> None:
    while not is_open:
        await asyncio.sleep(0.005)


async def _slow(text: str) -> str:
    await gate()
    return text


def slow(version: str) -> outlive.Flow[Any, Any]:
    made: outlive.Flow[Any, Any] = outlive.flow(name="slow", version=version)(_slow)
    return made


async def test_a_child_keeps_the_version_it_was_started_with(app: App) -> None:
    """A parent that goes on with newer code waits for a child that only older code drives."""
    global is_open
    is_open = False
    old = parent_of("1", slow("1"))
    await app.submit(old, "a", id="p")
    async with app.worker([old], drain=0):
        while len((await app.find()).items) < 2:
            await asyncio.sleep(0.005)
    (child,) = [each.head.run_id for each in (await app.find()).items if each.head.run_id != "p"]

    is_open = True
    async with app.worker([parent_of("2", slow("2"), "1")]):
        await settle_down(app)
        left = await reading(app, child)
        assert ("1", None) == (left.header.version, left.header.ended_at)
        async with app.worker([slow("1")]):
            assert "a!" == await (await app.get("p")).outcome(timeout=5)


def _shop() -> outlive.Flow[Any, Any]:
    @outlive.flow
    async def process(text: str) -> str:
        return f"shop {text}"

    return process


def _bank() -> outlive.Flow[Any, Any]:
    @outlive.flow
    async def process(text: str) -> str:
        return f"bank {text}"

    return process


NAMESAKES = r"_shop.* and .*_bank.* both have a flow named 'process' of version '1'.*name="


async def test_two_flows_of_one_name_are_not_driven_by_one_worker(app: App) -> None:
    """Whoever comes second is refused, and nothing of it is written."""
    shop, bank = _shop(), _bank()
    with pytest.raises(UsageError, match=NAMESAKES):
        async with app.worker([shop, bank]):
            pass
    assert "shop a" == await (await app.start(shop, "a", id="a"))

    with pytest.raises(UsageError, match=NAMESAKES):
        await app.start(bank, "b", id="b")
    with pytest.raises(UsageError, match=NAMESAKES):
        await app.resume("a", [shop, bank])
    with pytest.raises(RunNotFound):
        await app.get("b")


async def test_a_child_of_a_name_that_is_taken_is_refused(app: App) -> None:
    """Its parent is told; no other code runs in its place."""
    shop, parent = _shop(), parent_of("1", _bank())
    await (await app.start(shop, "a"))

    with pytest.raises(RunFailed) as caught:
        await (await app.start(parent, "b"))

    assert isinstance(caught.value.__cause__, UsageError)
    assert "both have a flow named 'process'" in str(caught.value)
    assert 1 == len((await app.find(flow="process")).items)


async def test_a_flow_that_is_defined_anew_replaces_the_old_one(app: App) -> None:
    """As in a notebook, whose cell is run again."""
    await (await app.start(_shop(), "a"))

    assert "shop b" == await (await app.start(_shop(), "b"))
    with pytest.raises(UsageError, match="has two flows named 'process'"):
        async with app.worker([_shop(), _shop()]):
            pass
