"""The explicit loop, killed at each of its transitions, books one flight and sends one mail."""

from __future__ import annotations

import pytest

from tests.examples.conftest import Desk, Program

#: Planning; then executing, observing and reflecting for each of four things.
TRANSITIONS = 1 + 3 * 4
SECONDS = "0.15"


def travel(desk: Desk) -> Program:
    return desk.start("python", "explicit_loop.py", "trip-1", "a trip to Oslo")


def test_killed_at_each_transition(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on where it was each time, and ends as if nothing had been."""
    monkeypatch.setenv("EXAMPLE_SECONDS", SECONDS)
    for seq in range(TRANSITIONS):
        agent = travel(desk)
        said = agent.says(f"{seq} ")
        agent.kill()
        # From the last checkpoint on, not from the start.
        assert seq - 2 <= int(said.split()[0])

    said = travel(desk).end()
    assert (
        "COMPLETE: weather: all about it, museums: all about it, flight: seat 12A, itinerary: sent"
        in said
    )
    assert 1 == len(desk.lines("booked.jsonl"))
    assert 1 == len(desk.lines("sent.jsonl"))
    assert "Travel" in desk("outlive", "runs")


def test_undisturbed_it_takes_the_same_way(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once through all of its states."""
    monkeypatch.setenv("EXAMPLE_SECONDS", "0.01")
    said = travel(desk).end().splitlines()

    assert TRANSITIONS + 1 == len(said)
    assert ["0 PLANNING", "1 EXECUTING", "2 OBSERVING", "3 REFLECTING"] == said[:4]
