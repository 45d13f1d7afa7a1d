"""Journals of checkpoints among others: verified, shown, never taken for runs, never swept away."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from pathlib import Path

import pytest

import outlive
from outlive import Retention
from outlive.checkpoints import DurableRunner, SnapshotStore
from outlive.cli import main
from outlive.model.checkpoints import Checkpoints, OfCheckpoints
from outlive.model.events import decode_events, encode_events
from tests.unit.every_event import EVERY_EVENT

#: What the first release wrote. A release that can't read it has lost its users' checkpoints.
GOLDEN = bytes.fromhex(
    "969750ce000f4240a172a96f75746c6976652f66c40981a56167656e74a161c4017392a171039a51"
    "75a56665746368c40481a16e01c4018004a132a168a26964a43230323595527602a56665746368a1"
    "6895537702a56665746368a26e6f945478a66661696c6564a86e6f206d6f6e657993557901"
)


async def fill(path: Path) -> None:
    async with SnapshotStore(f"sqlite:///{path}") as store:
        runner = DurableRunner(store)
        texts: list[str] = []
        for number in range(12):
            texts.append(f"{number} " * 400)
            await runner.checkpoint("r", f"s{number}", {"texts": texts}, {"n": number})
        await runner.resume("r", "s3")
        await runner.rollback("r", "s5", why="a test")
        await runner.fork("r", "f", at="s2")
        await runner.finish("f", "failed", "no money")
        async with runner.auto("auto") as run:
            await run.checkpoint("only")


def call(*arguments: str) -> tuple[int, str]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = main(list(arguments))
    return code, output.getvalue()


@pytest.fixture
def filled(path: Path) -> str:
    """A store with checkpoints, by its URL."""
    asyncio.run(fill(path))
    return f"sqlite:///{path}"


def test_they_are_verified_as_every_journal(filled: str) -> None:
    """Records, links, values, and headers that say what the journal says."""
    code, told = call("verify", "--store", filled)
    assert (0, "all sound") == (code, told.strip().rpartition("; ")[2])
    assert "journals: 3," in told


def test_whoever_lists_runs_sees_them(filled: str) -> None:
    """By the ids of their runs, with a word instead of a flow; a flow's runs are listed alone."""
    told = json.loads(call("runs", "--json", "--store", filled)[1])
    assert [("r", "running"), ("f", "failed"), ("auto", "succeeded")] == [
        (each["id"], each["status"]) for each in told
    ]
    assert {"(checkpoints)"} == {each["flow"] for each in told}
    for status, found in (("completed", ["auto"]), ("failed", ["f"]), ("cancelled", [])):
        told = json.loads(call("runs", "--json", "--status", status, "--store", filled)[1])
        assert found == [each["id"] for each in told]
    assert [] == json.loads(call("runs", "--json", "--flow", "x", "--store", filled)[1])
    told = json.loads(call("runs", "--json", "--limit", "1", "--store", filled)[1])
    assert ["auto"] == [each["id"] for each in told]


@pytest.mark.parametrize("name", ["r", "outlive/checkpoints/r"])
def test_they_are_shown_by_the_ids_of_their_runs(filled: str, name: str) -> None:
    """Everything that happened to them; an id that nothing has is refused as ever."""
    code, told = call("show", name, "--store", filled)
    assert 0 == code
    for what in ("checkpoints began", "saved", "restored", "rolled back"):
        assert what in told
    assert "version" not in told.partition("SEQ")[0]
    assert 0 != call("show", "nobody", "--store", filled)[0]


async def test_no_rule_for_runs_lets_them_go(path: Path) -> None:
    """They go when their owner says so."""
    await fill(path)
    rules = Retention(completed=0, failed=0, cancelled=0, ttl=0)
    async with outlive.open(f"sqlite:///{path}", drive=False) as app:
        swept = await app.retain(rules)
    async with SnapshotStore(f"sqlite:///{path}") as store:
        runs = {run.run_id: run.status for run in await store.runs()}
        found = await DurableRunner(store).resume("r")

    assert {} == dict(swept.fates)
    assert {"r": "running", "f": "failed", "auto": "succeeded"} == runs
    assert found is not None
    assert 6 == len(found["texts"])


def test_a_fold_is_what_its_events_say() -> None:
    """Whatever order they come in: one per step counts, and going back cuts the line."""
    events = [each for each in EVERY_EVENT if isinstance(each, OfCheckpoints)]
    fold = Checkpoints()
    for event in events[:-1]:
        fold.apply(event)
    assert ["fetch"] == [saved.event.step for saved in fold.current]
    assert fold.at_seq(2) is fold.latest is fold.at_step("fetch")
    assert fold.at_seq(1) is fold.at_seq(9) is None
    fold.apply(events[-1])

    assert [] == fold.saved == list(fold.current)
    assert (1, "cleared") == (fold.cleared, fold.brief and fold.brief.status)


def test_events_are_read_as_they_were_written() -> None:
    """Tags and the order of fields never change; new fields come last and have defaults."""
    events = [each for each in EVERY_EVENT if isinstance(each, OfCheckpoints)]
    raw = encode_events(events)

    assert events == decode_events(raw) == decode_events(GOLDEN)
