"""Stores that an earlier release wrote are opened, upgraded, and gone on with to the expected end.

``write_golden.py`` made them, with processes that were killed in the middle of everything;
``manifest.json`` says of each run where it stood, what mail it had not read, how it must end, and
what must have happened outside: each thing once.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive.app.app import App
from outlive.app.open import open_app
from outlive.checkpoints import DurableRunner, SnapshotStore
from outlive.errors import RunFailed, RunIdTaken, StepNotInDoubt
from outlive.loop import State, load
from outlive.model.events import Event
from outlive.model.mail import Verdict
from outlive.testing.audit.auditor import JOURNAL_RULES, is_fork
from outlive.testing.audit.families import check_families
from tests.golden import flows
from tests.golden.flows import FLOWS, Errands, Here
from tests.golden.restored import NAMES, Golden, restore
from tests.harness.processes import eventually

pytestmark = pytest.mark.timeout(300)

MANIFEST: dict[str, Any] = json.loads((Path(__file__).parent / "manifest.json").read_text())
ENDED = ("completed", "failed", "cancelled")
PATIENCE_SECONDS = 120.0
VALUE_SHOWN = 1000


@pytest.fixture(params=NAMES)
def golden(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Golden:
    """Each of them, restored."""
    name: str = request.param
    server = request.getfixturevalue("postgres") if name.startswith("postgres") else None
    golden = restore(name, tmp_path, server)
    monkeypatch.setattr(Here, "ledger", tmp_path / "ledger.txt")
    for variable, value in golden.environment.items():
        monkeypatch.setenv(variable, value)
    return golden


def test_every_kind_is_there() -> None:
    sqlite = ("sqlite-mixed", "sqlite-plain", "sqlite-sealed")
    assert NAMES == ("postgres-plain", "postgres-sealed", *sqlite)
    letters = {kind for each in MANIFEST.values() for kind in each["mail"]}
    assert letters == {"Signal", "Answer", "Cancel", "ChildNews", "Resolve", "Nudge"}


def test_going_on(golden: Golden) -> None:
    """Read as it is, or refused; driven to its end; sound afterwards."""
    check_reading(golden)

    asyncio.run(go_on(golden))

    check_archive(golden)
    verified = golden.command("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "all sound" in verified.stdout


def check_reading(golden: Golden) -> None:
    """A command that only reads shows a store of this schema; another one it refuses (R32)."""
    listed = golden.command("runs", "--limit", "1000", "--json")
    if golden.is_old():
        assert listed.returncode == 3, listed.stdout + listed.stderr
        assert "schema" in listed.stderr
        assert "outlive " in listed.stderr.removeprefix("outlive: "), "it names the command"
        return
    assert listed.returncode == 0, listed.stderr
    found = {each["id"]: [each["status"], each["mail"]] for each in json.loads(listed.stdout)}
    assert found == {name: [each["before"], len(each["mail"])] for name, each in MANIFEST.items()}


async def go_on(golden: Golden) -> None:
    """A worker and those who talk to runs, on the store as it was left."""
    async with open_app() as app, app.worker(FLOWS):
        await asyncio.wait_for(asyncio.gather(talk(app), until_over(app)), PATIENCE_SECONDS)
        await check_ends(app)
        await check_schedules(app)
        await check_what_stays(app)
        await check_loops(app)
        await check_checkpoints(app)
        await check_laws(app)
    for name in ("row-after", "row-before"):
        rows = golden.rows(f"SELECT what FROM bookings WHERE what LIKE '{name}/%' ORDER BY what")
        assert rows == [f"{name}/{part}" for part in ("one", "three", "two")]


def check_archive(golden: Golden) -> None:
    """What was archived is sound, and can be restored elsewhere."""
    (path,) = golden.folder.glob("archive/*/*.outlive")
    verified = golden.command("verify", "--archive", str(path))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    elsewhere = f"sqlite:///{golden.folder}/elsewhere.db"
    restored = golden.command("restore", str(path), "--store", elsewhere)
    assert "deleted: restored" in restored.stdout, restored.stdout + restored.stderr


# what people and other programs say meanwhile


async def talk(app: App) -> None:
    """Everything that the manifest's ends need beside what was in the mail."""
    for run_id, value in (("ask-open", 3), ("approve-open", True), ("plain", 2)):
        handle = await app.get(run_id)
        await handle.answer(value, await handle.question(timeout="60s"), by="cleo")
    for child in ("spawned-child", "fan-b-child", "held-family-child"):
        await (await app.get(child)).signal("word", "hi")
    many = await app.get("signal-many")
    assert not await many.signal("go", "again", id="number-1"), "it was sent before"
    assert await many.signal("go", "by the test", id="number-4")
    chat = await app.get("chat")
    assert await chat.request("message", "hello", id="hello", timeout="60s") == "heard hello"
    assert await chat.request("message", "?", id="letter-chat", timeout="60s") == "heard unread"
    assert await chat.request("message", "bye", timeout="60s") == "heard bye"
    await app.retry("failed-again", by="cleo")
    await asyncio.gather(*(settle(app, name) for name in ("asked-before", "asked-after")))
    await asyncio.gather(*(settle(app, name) for name in ("doubt-open", "doubt-not")))


async def settle(app: App, run_id: str) -> None:
    """Somebody who looks into the ledger, for as long as the run may be in doubt."""
    handle, said = await app.get(run_id), f"asked {run_id}"
    while (status := await handle.status()) not in ENDED:
        if status == "in_doubt":
            verdict: Verdict = "happened" if flows.counted(run_id) else "not_happened"
            with suppress(StepNotInDoubt):  # it was just said, or it is too early to tell
                await app.resolve(run_id, "0/asked#1", verdict, json.dumps(said).encode())
        await asyncio.sleep(0.1)


async def until_over(app: App) -> None:
    """Every run that ends has ended, and every letter to it was read."""
    ending = {name for name, each in MANIFEST.items() if each["end"] in ENDED}

    async def over() -> bool:
        page = await app.find(limit=1000)
        return ending <= {x.head.run_id for x in page.items if x.header.ended_at is not None}

    try:
        await eventually(over, "the end of every run", seconds=2 * PATIENCE_SECONDS)
    except asyncio.CancelledError:
        page = await app.find(limit=1000)
        left = {x.head.run_id: x.header.status for x in page.items if x.header.ended_at is None}
        raise AssertionError(f"these did not end: {left}") from None


# what must be so then


async def check_ends(app: App) -> None:
    """As the manifest says, of all runs at once."""
    found = {name: await end_of(app, name) for name in MANIFEST}
    wanted = {
        name: {key: each[key] for key in ("end", "value", "error", "happened") if key in each}
        for name, each in MANIFEST.items()
    }
    wrong = {name: found[name] for name in wanted if found[name] != wanted[name]}
    assert not wrong, "\n".join(f"{k}: {v}, not {wanted[k]}" for k, v in wrong.items())


async def end_of(app: App, run_id: str) -> dict[str, Any]:
    """How a run ended, and what happened for it, each as often as it did."""
    handle = await app.get(run_id)
    end: dict[str, Any] = {"end": await handle.status()}
    if end["end"] == "completed":
        outcome = await handle.outcome()
        shown = repr(outcome["results"] if run_id.startswith("loop-") else outcome)
        end["value"] = shown if len(shown) < VALUE_SHOWN else f"<{len(shown)} characters>"
    elif end["end"] == "failed":
        with pytest.raises(RunFailed) as failed:
            await handle.outcome()
        end["error"] = failed.value.type_name
    counted = flows.counted(run_id)
    return {**end, "happened": sorted(n for n, times in counted.items() for _ in range(times))}


async def check_schedules(app: App) -> None:
    """The missed instant was fired; wishes that nobody had heard count."""
    found = {schedule.name: schedule for schedule in await app.schedules()}
    assert sorted(found) == ["changed", "minutely", "paused"]
    assert found["changed"].cron == "0 4 * * *"
    assert found["paused"].paused

    async def fired() -> bool:
        return bool((await app.find(tag=("schedule", "minutely"))).items)

    await eventually(fired, "a firing of the schedule", seconds=PATIENCE_SECONDS)
    page = await app.find(tag=("schedule", "minutely"))
    handle = await app.get(page.items[0].head.run_id)
    assert await handle.outcome(timeout="60s") == "thought of Berlin"


async def check_what_stays(app: App) -> None:
    """Ids of the deleted, limits, what runs had not taken yet; tags and keys."""
    await check_what_is_found(app)
    with pytest.raises(RunIdTaken):
        await app.submit(flows.buy, "named", "forgotten", id="deleted")
    queues = {each.name: each for each in await app.queues()}
    limits = queues["models"].limits
    assert limits is not None
    assert (limits.concurrency, queues["models"].held) == (1, 0)
    fork = await app.fork("origin", set={"think#1": "a late thought"}, id="fork-late")
    assert "train after a late thought" in (await fork.outcome(timeout="60s"))[1]
    waiting = await app.get("signal-none")
    await waiting.signal("go", "at last")
    assert await waiting.outcome(timeout="60s") == ["at last"]


async def check_what_is_found(app: App) -> None:
    """By tag and by key: an effect whose key was used is not done again."""
    tagged = await app.find(tag=("team", "a"))
    assert {each.head.run_id for each in tagged.items} == {"signal-unread", "pending-name"}
    for item in ("over", "forgotten"):
        handle = await app.submit(flows.buy, "named", item, id=f"again-{item}")
        assert await handle.outcome(timeout="60s") == f"thought of {item}; named {item}"
        assert flows.counted(handle.id) == {}, "another run did it"


async def check_laws(app: App) -> None:
    """Journals that two releases wrote keep every law; what happened outside was counted before."""
    journals: dict[str, list[Event]] = {}
    for each in (await app.find(limit=1000)).items:
        journals[each.head.run_id] = await (await app.get(each.head.run_id)).read()
    whole = {name: events for name, events in journals.items() if not is_fork(events)}
    broken = list(check_families(journals))
    for name, events in whole.items():
        broken += [f"{name}: {words}" for rule in JOURNAL_RULES for words in rule(events)]
    assert not broken, "\n".join(broken)


async def check_loops(app: App) -> None:
    for run_id, transitions in (("loop-held", 10), ("loop-pending", 7)):
        loop = await load(app, run_id, Errands)
        assert loop is not None
        assert (loop.state, loop.seq) == (State.COMPLETE, transitions)


async def check_checkpoints(app: App) -> None:
    """Snapshots are where they were, and everybody goes on from the last."""
    runner = DurableRunner(SnapshotStore(app))
    results = [f"result {number} " * 40 for number in range(3)]
    assert await runner.resume("plain") == {"results": results}
    assert [each.step_id for each in await runner.list_checkpoints("plain")] == ["s0", "s1", "s2"]
    assert len(await runner.history("plain")) == 4
    assert await runner.resume("forked") == {"results": results[:2]}
    assert await runner.store.status("over") == "succeeded"
    await runner.checkpoint("plain", "s4", {"results": [*results, "new"]})
    add = flows.adder(runner)
    async with runner.auto("auto", {"sum": 0}) as run:
        assert [await add(run.state, number) for number in (1, 2, 3)] == [1, 3, 6]
    assert flows.counted("auto") == {"add 1": 1, "add 2": 1, "add 3": 1}
    await check_exchange(runner)


async def check_exchange(runner: DurableRunner) -> None:
    """What was under way is taken, by agents and in the cut."""
    cut = await runner.get_cut("noon")
    assert cut.in_flight == {
        ("planner", "writer"): [{"chapter": 2}],
        ("writer", "planner"): ["text of chapter 1"],
    }
    planner = await runner.exchange("planner", peers=["writer"])
    writer = await runner.exchange("writer", peers=["planner"])
    assert (planner.state, writer.state) == ({"planned": 2}, {"count": 1})
    taken = [await agent.receive(timeout="20s") for agent in (planner, writer)]
    assert [each and each.body for each in taken] == ["text of chapter 1", {"chapter": 2}]


def test_outlive_is_what_is_tested() -> None:
    """Not the release that wrote the stores."""
    assert Path(outlive.__file__).is_relative_to(Path(__file__).parents[2])
