"""What writing the examples has found: each was in a new user's way once."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import outlive
from outlive.cli.modules import flows_of
from outlive.ports import Ports
from outlive.settings import Settings
from outlive.stores.memory import MemoryStore

MANY = 1500


class Counter:
    """A step that is called often, and fails for some."""

    def __init__(self, *bad: int) -> None:
        self.bad = set(bad)
        self.calls: list[int] = []

        @outlive.step
        async def work(number: int) -> int:
            self.calls.append(number)
            if number in self.bad:
                raise ValueError(f"{number} is bad")
            return number

        @outlive.flow(name="everything")
        async def everything(count: int) -> int:
            outcomes = await outlive.map(work, range(count))
            failures = [outcome.error for outcome in outcomes if outcome.error]
            if failures:
                raise ExceptionGroup("not done", failures)
            return len(outcomes)

        self.flow = everything


@pytest.mark.parametrize("bad", [(0,), (3, 700, 1499), tuple(range(0, MANY, 3))])
async def test_a_retry_runs_all_failures_of_a_group_again(bad: tuple[int, ...]) -> None:
    """And nothing else, however much is known from before."""
    counter = Counter(*bad)
    async with outlive.open("memory://") as app:
        handle = await app.start(counter.flow, MANY, id="r")
        with pytest.raises(outlive.errors.RunFailed, match=rf"\({len(bad)} sub-exception"):
            await handle
        counter.bad.clear()
        counter.calls.clear()
        await app.retry("r")

        assert MANY == await (await app.start(counter.flow, MANY, id="r"))
    assert sorted(bad) == sorted(counter.calls)


async def test_a_failure_that_was_dealt_with_is_left_alone() -> None:
    """A retry goes back no further than the group that ended the run."""
    early, late = Counter(1), Counter(2)

    @outlive.flow
    async def in_two_turns() -> int:
        try:
            await early.flow(3)
        except ExceptionGroup:
            return await late.flow(3)
        return 0

    async with outlive.open("memory://") as app:
        with pytest.raises(outlive.errors.RunFailed):
            await (await app.start(in_two_turns, id="r"))
        for counter in (early, late):
            counter.bad.clear()
            counter.calls.clear()
        await app.retry("r")

        assert 3 == await (await app.start(in_two_turns, id="r"))
    assert ([], [2]) == (early.calls, late.calls)


@outlive.step
async def read(path: str) -> str:
    return Path(path).read_text()


async def test_an_error_still_names_the_file() -> None:
    """What comes back from the journal says what the first one said."""

    @outlive.flow
    async def reading(path: str) -> str:
        try:
            return await read(path)
        except FileNotFoundError as error:
            return f"{error.filename}: {error}"

    async with outlive.open("memory://") as app:
        said = await (await app.start(reading, "missing.txt", id="r"))
    assert "missing.txt: [Errno 2] No such file or directory: 'missing.txt'" == said


@outlive.flow
async def echo() -> None:
    async for request in outlive.requests("say", type=str):
        await request.reply(request.value)
        if request.value == "bye":
            return


async def test_who_drives_a_run_need_not_look_for_its_mail() -> None:
    """A reply does not wait until the worker looks around, nor does an end."""
    ports, settings = Ports(), Settings(poll_seconds=600, idle_seconds=0)
    async with outlive.App(MemoryStore(ports=ports), ports=ports, settings=settings) as app:
        handle = await app.start(echo, id="r")
        for word in ("one", "two", "bye"):
            assert word == await handle.request("say", word, timeout="60s")
        await handle.outcome(timeout="60s")


@dataclass(frozen=True)
class Report:
    lines: int


@outlive.flow
async def report() -> Report:
    return Report(3)


async def test_an_outcome_of_ones_own_class_is_got_with_the_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever has only the id, as a web page has."""
    monkeypatch.setenv("OUTLIVE_STORE", f"sqlite:///{tmp_path}/reports.db")
    async with outlive.open() as app:
        await (await app.start(report, id="r"))

    assert Report(3) == await (await outlive.get("r", report)).outcome()


@outlive.flow(name="changing")
async def changing_1() -> str:
    await outlive.wait_signal("go")
    return "one"


@outlive.flow(name="changing", version="2")
async def changing_2() -> str:
    await outlive.wait_signal("go")
    return "two"


async def test_a_module_may_have_two_versions_of_a_flow() -> None:
    """Each run is resumed by the code of its own version."""
    both = flows_of([sys.modules[__name__]])
    assert {changing_1, changing_2} <= set(both)
    async with outlive.open("memory://") as app:
        for run_id, flow in (("1", changing_1), ("2", changing_2)):
            await (await app.submit(flow, id=run_id)).signal("go")

        assert ["one", "two"] == [await (await app.resume(run_id, both)) for run_id in ("1", "2")]
