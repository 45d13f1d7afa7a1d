"""The document's own samples, in our words: every call works as it says there."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive.checkpoints import (
    DurableAgentRunner,
    DurableRunner,
    RunSnapshot,
    SnapshotStore,
    SQLiteStorageBackend,
)
from outlive.checkpoints.backends import PostgresStorageBackend
from outlive.settings import Settings

STEPS = ["fetch_data", "process_data", "validate_results", "save_output"]


async def agent(runner: DurableRunner, run_id: str, crash_at: int | None = None) -> list[str]:
    """The document's first sample: one dict that is changed from step to step."""
    state = await runner.resume(run_id)
    start = 0 if state is None else state["last_step"] + 1
    state = state or {"items_processed": 0, "results": []}
    for number in range(start, len(STEPS)):
        if number == crash_at:
            raise KeyboardInterrupt
        state["last_step"] = number
        state["results"].append(f"{STEPS[number]} done")
        await runner.checkpoint(
            run_id=run_id, step_id=STEPS[number], state=state, metadata={"step_index": number}
        )
    results: list[str] = state["results"]
    return results


@pytest.mark.parametrize("crash_at", range(4))
async def test_a_run_goes_on_where_it_was(path: Path, crash_at: int) -> None:
    """Steps that were checkpointed are not run again, whatever process goes on."""
    with pytest.raises(KeyboardInterrupt):
        async with SnapshotStore(f"sqlite:///{path}") as store:
            await agent(DurableRunner(store), "run-123", crash_at)

    async with SnapshotStore(f"sqlite:///{path}") as store:
        runner = DurableRunner(store)
        done = [each.step_id for each in await runner.list_checkpoints("run-123")]
        results = await agent(runner, "run-123")

    assert STEPS[:crash_at] == done
    assert [f"{step} done" for step in STEPS] == results


async def test_checkpoints_are_managed(runner: DurableRunner) -> None:
    """Saved, resumed from the last or from a step, listed, cleaned up."""
    first = {"counter": 42, "processed_items": ["item1", "item2"], "metadata": {"at": "10:00"}}
    assert isinstance(runner.snapshot_store, SnapshotStore)
    saved = await runner.checkpoint("run-123", "step-1", first, {"agent": "my-agent"})
    await runner.checkpoint(run_id="run-123", step_id="step-2", state={"counter": 43})

    assert {"counter": 43} == await runner.resume("run-123")
    assert first == await runner.resume("run-123", from_step="step-1")
    assert await runner.resume("run-123", from_step="step-9") is None
    assert await runner.resume("run-124") is None
    listed = await runner.list_checkpoints("run-123")
    assert ["step-1", "step-2"] == [each.step_id for each in listed]
    assert saved == listed[0]
    assert {"agent": "my-agent"} == saved.metadata
    assert UTC == saved.created_at.tzinfo
    assert 2 == await runner.cleanup("run-123")
    assert await runner.resume("run-123") is None
    assert 0 == await runner.cleanup("run-123")


async def test_a_step_has_one_snapshot(runner: DurableRunner) -> None:
    """Saved again it is replaced, and what it was stays in the history."""
    await runner.checkpoint("run-123", "step-1", {"counter": 1})
    await runner.checkpoint("run-123", "step-1", {"counter": 2})

    (only,) = await runner.list_checkpoints("run-123")
    assert {"counter": 2} == only.state == await runner.resume("run-123")
    history = await runner.history("run-123")
    assert [False, True] == [each.is_current for each in history]
    old = await runner.store.get_snapshot("run-123", history[0].seq)
    assert old is not None
    assert {"counter": 1} == old.state


async def test_the_store_by_itself(snapshots: SnapshotStore) -> None:
    """Each of its six verbs."""
    await snapshots.ensure_run_initialized("r", {"agent_slug": "planner"})
    await snapshots.ensure_run_initialized("r")
    assert await snapshots.get_latest_snapshot("r") is None
    one = await snapshots.save_snapshot("r", "a", {"n": 1})
    two = await snapshots.save_snapshot("r", "b", {"n": 2}, {"why": "because"})

    assert two == await snapshots.get_latest_snapshot("r")
    assert one == await snapshots.get_snapshot_by_step("r", "a")
    assert await snapshots.get_snapshot_by_step("r", "c") is None
    assert [one, two] == await snapshots.list_snapshots("r")
    assert one.snapshot_id != two.snapshot_id
    assert "running" == await snapshots.status("r")
    assert 2 == await snapshots.delete_snapshots("r")
    assert [] == await snapshots.list_snapshots("r")
    assert await snapshots.status("r") is None


def test_a_snapshot_is_a_dict_and_back() -> None:
    """With the fields of the document, and the time as text."""
    at = datetime(2025, 10, 31, 10, tzinfo=UTC)
    snapshot = RunSnapshot("uuid", "run-123", "step-1", at, {"counter": 42}, {"agent": "a"})

    told = snapshot.to_dict()
    assert "2025-10-31T10:00:00Z" == told["created_at"]
    names = {"snapshot_id", "run_id", "step_id", "created_at", "state", "metadata"}
    assert names == told.keys()
    assert snapshot == RunSnapshot.from_dict(told)


async def test_a_postgresql_storage(url: str) -> None:
    """The document's third storage, which never saved a single snapshot."""
    storage = PostgresStorageBackend(dsn=url)
    await storage.initialize()
    runner = DurableRunner(SnapshotStore(storage_backend=storage))
    assert [f"{step} done" for step in STEPS] == await agent(runner, "run-123")
    await storage.close()
    again = PostgresStorageBackend(dsn=url)
    found = await DurableRunner(SnapshotStore(again)).resume("run-123")
    await again.close()

    assert found is not None
    assert 3 == found["last_step"]


class Agents:
    """Any async agent runner."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def invoke_mag(self, slug: str, payload: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(slug)
        return {"answer": payload["question"].upper()}


async def test_an_agent_runner_of_ones_own(runner: DurableRunner) -> None:
    """The document's subclass, as it is written there."""

    class OwnRunner(Agents):
        async def invoke_mag_durable(
            self, slug: str, payload: dict[str, Any], run_id: str
        ) -> dict[str, Any]:
            state = await runner.resume(run_id)
            if state:
                found: dict[str, Any] = state["result"]
                return found
            result = await self.invoke_mag(slug, payload)
            await runner.checkpoint(run_id=run_id, step_id="final", state={"result": result})
            return result

    agents = OwnRunner()
    for _ in range(2):
        found = await agents.invoke_mag_durable("planner", {"question": "why"}, "run-1")
        assert {"answer": "WHY"} == found
    assert ["planner"] == agents.calls


async def test_any_agent_runner_is_made_durable(runner: DurableRunner) -> None:
    """It is called once per run; everything else of it is there."""
    agents = Agents()
    durable = DurableAgentRunner(agents, runner)
    for _ in range(2):
        found = await durable.invoke_mag_durable("planner", {"question": "why"}, "run-1")
        assert {"answer": "WHY"} == found

    assert ["planner"] == agents.calls == durable.calls
    assert "succeeded" == await runner.store.status("run-1")


async def test_a_failed_agent_is_called_again(runner: DurableRunner) -> None:
    """What it raises is raised, and nothing of it is saved but that it failed."""
    tries = []

    async def flaky(question: str) -> str:
        tries.append(question)
        if len(tries) == 1:
            raise OSError("down")
        return question.upper()

    durable = DurableAgentRunner(flaky, runner)
    with pytest.raises(OSError, match="down"):
        await durable.invoke_durable("r", "why")
    assert "failed" == await runner.store.status("r")
    assert "WHY" == await durable.invoke_durable("r", "why")


async def test_an_agent_may_have_a_final_step(runner: DurableRunner) -> None:
    """It is not taken for the agent's answer; the answer of an earlier release still is."""
    ran: list[str] = []

    @runner.step
    async def final(question: str) -> str:
        ran.append(question)
        return question.upper()

    async def agent(question: str) -> dict[str, str]:
        answer = await final(question)
        if len(ran) == 1 and not ran.append("died"):
            raise KeyboardInterrupt
        return {"answer": answer}

    durable = DurableAgentRunner(agent, runner)
    with pytest.raises(KeyboardInterrupt):
        await durable.invoke_durable("r", "why")
    for _ in range(2):
        assert {"answer": "WHY"} == await durable.invoke_durable("r", "why")
    await runner.checkpoint("old", "final", {"result": {"answer": "OLD"}})
    assert {"answer": "OLD"} == await durable.invoke_durable("old", "why")
    assert ["why", "died"] == ran


async def test_an_app_lends_its_store(path: Path) -> None:
    """Runs and checkpoints beside one another, in one file, by one opening."""
    async with outlive.open(f"sqlite:///{path}") as app:
        async with SnapshotStore(app) as store:
            await store.save_snapshot("r", "a", {"n": 1})
        assert [] == list((await app.find()).items)
    async with SnapshotStore(f"sqlite:///{path}") as store:
        assert await store.get_latest_snapshot("r") is not None


async def test_a_storage_is_opened_when_it_is_used(path: Path) -> None:
    """``initialize`` may be forgotten; after ``close`` it is needed."""
    storage = SQLiteStorageBackend(db_path=str(path))
    store = SnapshotStore(storage)
    await store.save_snapshot("r", "a", {"n": 1})
    await storage.close()
    await storage.close()
    await storage.initialize()

    assert await store.get_latest_snapshot("r") is not None
    await storage.close()


async def test_what_happens_to_checkpoints_is_logged(
    runner: DurableRunner, caplog: pytest.LogCaptureFixture
) -> None:
    """One line of JSON each, with the document's names; nothing that users said but ids."""
    caplog.set_level("INFO", logger="outlive.checkpoints")
    saved = await runner.checkpoint("run-123", "step-1", {"c": 1, "word": "lighthouse"}, {"a": "b"})
    await runner.resume("run-123")
    await runner.finish("run-123", "failed", "lighthouse")
    await runner.cleanup("run-123")
    lines = [json.loads(each.message) for each in caplog.records]

    names = "run.started checkpoint.saved checkpoint.restored run.ended run.cleared"
    assert names.split() == [each["event_type"] for each in lines]
    assert {
        "event_type": "checkpoint.saved",
        "run_id": "run-123",
        "seq": 2,
        "step_id": "step-1",
        "snapshot_id": saved.snapshot_id,
        "state_size_bytes": len('{"c":1,"word":"lighthouse"}'),
        "created_at": saved.to_dict()["created_at"],
    } == lines[1]
    assert (saved.snapshot_id, "failed") == (lines[2]["snapshot_id"], lines[3]["status"])
    assert "lighthouse" not in caplog.text


def test_the_documents_switch_is_understood() -> None:
    """With a warning that names ours, which comes first."""
    theirs = {"MAGSAG_DURABLE_ENABLED": "false"}
    with pytest.warns(UserWarning, match="MAGSAG_DURABLE_ENABLED is read as OUTLIVE_DURABLE_ENA"):
        assert not Settings.from_environment(theirs).durable_enabled
    both = theirs | {"OUTLIVE_DURABLE_ENABLED": "true"}
    assert Settings.from_environment(both).durable_enabled
    with pytest.warns(UserWarning, match=r"write that instead"):
        settings = Settings(DURABLE_ENABLED=False)
    assert not settings.durable_enabled
    assert not replace(settings, store="memory://").durable_enabled
