"""Whoever asks where the time goes is told of layers, and of all of the time."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from bench import where


def test_a_stack_counts_for_its_innermost_layer() -> None:
    """Not for who called it; what is nobody's is told apart."""
    assert where.OTHER == where.layer_of(sys._getframe())
    assert where.OTHER == where.layer_of(None)


async def test_all_of_the_time_is_somebodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shares make up the whole, and the engine has one of them."""
    monkeypatch.setattr(where, "RUNS", 20)
    monkeypatch.setattr(where, "STARTS", 50)

    told: dict[str, Any] = await where.look_at("memory://")
    page = "\n".join(where.written({"memory": told}))

    assert {"effects", "starts"} == set(told)
    for each in told.values():
        assert 0.99 < sum(each["shares"].values()) < 1.01
    assert "the engine" in page
    assert "**all of it**" in page
