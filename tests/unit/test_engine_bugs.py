"""A bug of our own stops the run that met it: loudly, and with nothing lost."""

from __future__ import annotations

import pytest

import outlive
from outlive.app.app import App
from outlive.engine.steps import StepRunner
from outlive.errors import RunError
from outlive.stores.memory import MemoryStore


@outlive.step
async def think() -> str:
    return "thought"


@outlive.flow
async def thinker() -> str:
    return await think()


async def test_a_bug_in_the_engine_parks_the_run_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run does not hang: whoever waits is told, and it can go on once the bug is mended."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    async with App(MemoryStore()) as app:
        with monkeypatch.context() as patch:
            patch.setattr(StepRunner, "_returned", fail)
            with pytest.raises(RunError, match="a bug in Outlive"):
                await (await app.start(thinker, id="r")).outcome("10s")
            assert "a bug in Outlive" in (await app.read("r")).header.reason

        assert "thought" == await (await app.start(thinker, id="r")).outcome("10s")
