"""Flow code that blocks its loop is told of, with the line."""

from __future__ import annotations

import logging
import time

import pytest

import outlive


@outlive.flow
async def blocking(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


def test_a_flow_that_blocks_its_loop_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Once per line, with file, line and function, and what to do."""
    with caplog.at_level(logging.WARNING, "outlive"), outlive.open("memory://") as app:
        for run_id in ("first", "second"):
            assert app.run(blocking, 0.6, id=run_id) == "done"

    told = [record.getMessage() for record in caplog.records if "blocks" in record.getMessage()]
    line = blocking.fn.__code__.co_firstlineno + 2
    assert len(told) == 2, "an app looks anew for each loop"
    assert all(f"{__file__}, line {line}, in blocking" in text for text in told)
    assert "do this in a step" in told[0]


def test_a_short_computation_is_not(caplog: pytest.LogCaptureFixture) -> None:
    """Nor is one that waits."""
    with caplog.at_level(logging.WARNING, "outlive"), outlive.open("memory://") as app:
        assert app.run(blocking, 0.01, id="short") == "done"

    assert "blocks" not in caplog.text
