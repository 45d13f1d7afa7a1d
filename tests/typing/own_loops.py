"""What users' editors infer of checkpoints; checked, never run."""

from __future__ import annotations

from typing import Any, assert_type

from outlive import Retry, checkpoints
from outlive.checkpoints import Change, DurableRunner, RunSnapshot, SnapshotInfo, SnapshotStore
from outlive.sync import checkpoints as plain

runner = DurableRunner(SnapshotStore("memory://"), retry=Retry(attempts=3))


@runner.step
async def fetch(state: dict[str, Any], url: str) -> int:
    return len(url)


@runner.step(name="store", retry=Retry(attempts=2))
async def put(number: int) -> str:
    return str(number)


async def awaited() -> None:
    assert_type(await runner.checkpoint("r", "s", {"n": 1}), RunSnapshot)
    assert_type(await runner.resume("r", from_step="s"), dict[str, Any] | None)
    assert_type(await runner.list_checkpoints("r"), list[RunSnapshot])
    assert_type(await runner.cleanup("r"), int)
    assert_type(await runner.history("r"), list[SnapshotInfo])
    assert_type(await runner.diff("r", "s"), list[Change])
    assert_type(await runner.store.get_latest_snapshot("r"), RunSnapshot | None)
    async with runner.auto("r", {"n": 0}) as run:
        assert_type(run, checkpoints.AutoRun)
        assert_type(await fetch(run.state, "a"), int)
        assert_type(await put(7), str)
        assert_type(await run.step("again", put.body, 7), str)
        await fetch(run.state)  # type: ignore[call-arg]  # a URL is needed
        await run.step("again", put.body, "7")  # type: ignore[arg-type]  # a number is needed
    await runner.finish("r", "done")  # type: ignore[arg-type]  # there is no such end


def blocking() -> None:
    here = plain.DurableRunner("memory://")
    assert_type(here.resume("r"), dict[str, Any] | None)
    with here.auto("r") as run:
        assert_type(run.step("one", len, "a"), int)
