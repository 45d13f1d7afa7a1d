"""``outlive resume``: when it stops waiting, and what it says then."""

from __future__ import annotations

from pathlib import Path

import pytest

import outlive
from tests.doors.desk import Desk


@outlive.flow
async def ask_in_time() -> str:
    return str(await outlive.ask("Still there?", within="2d"))


def test_a_question_with_a_time_limit_is_not_slept_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limit is no reason to wait here for days: only a human can help."""
    desk = Desk(tmp_path, monkeypatch)
    desk.start(ask_in_time)

    code, _, said = desk("resume", "r", __name__)

    assert 1 == code
    assert "asks: Still there? (a text); answer with `outlive answer r TEXT`" in said
