"""A process that drives runs forks: its child has no part in them."""

from __future__ import annotations

import json

import pytest

from tests.processes import players
from tests.processes.stage import Stage

pytestmark = pytest.mark.alone("processes")

VERBS = ("start", "submit", "find", "get", "nudge", "resolve", "status", "outcome")


def test_the_app_of_a_forked_child_is_closed(stage: Stage) -> None:
    """Every verb says so at once; the parent's runs go on and keep their driver."""
    parent = stage.spawn(players.fork)
    parent.join(60)

    said = json.loads((stage.folder / "said.json").read_text())
    assert dict.fromkeys(VERBS, "AppClosed") == said
    assert 0 == parent.exitcode
    assert "completed" == stage.status("going")
    assert "" == stage.status("child")
    assert 1 == len(stage.claims("going"))
    assert [] == stage.audit()
