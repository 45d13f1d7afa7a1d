"""A driver that lives keeps its runs, however long something takes or blocks."""

from __future__ import annotations

import sqlite3
import time

import pytest

from outlive.model.events import RunCompleted
from tests.conftest import Figure
from tests.harness.processes import until
from tests.processes import players
from tests.processes.players import LEASE_SECONDS
from tests.processes.stage import Stage, submit

pytestmark = pytest.mark.alone("processes")

LONG = 3 * LEASE_SECONDS
RUNS = [
    ("slowly", "patient", ["slowly", LONG]),
    ("in_thread", "patient", ["in_thread", LONG]),
    ("rudely", "patient", ["rudely", LONG]),
    ("rude", "rude", [LONG]),
]


def test_what_takes_longer_than_the_lease_is_not_taken_over(stage: Stage, figure: Figure) -> None:
    """Waiting, in a thread, blocking the loop in a body or in flow code: one driver, done once."""
    stage.spawn_worker(players.work, ["patient", "rude", "busy"])
    children = [stage.spawn(players.start, run, None) for run in RUNS]

    for child in children:
        child.join(60)

    assert [0] * len(RUNS) == [child.exitcode for child in children]
    assert [1] * len(RUNS) == [len(stage.claims(run_id)) for run_id, _, _ in RUNS]
    assert [] == stage.audit()
    assert len(RUNS) == len(stage.receipts())
    figure("leases: seconds of effect per second of lease", LONG / LEASE_SECONDS)


def test_a_blocked_loop_keeps_nobodys_commits(stage: Stage, figure: Figure) -> None:
    """Runs on other loops of the same app go on while two loops are blocked."""
    stage.spawn_worker(players.work, ["patient", "rude", "busy"])

    child = stage.spawn(players.start_beside, RUNS[2:], 20)
    child.join(60)

    assert 0 == child.exitcode
    ends = {run_id: end_of(stage, run_id) for run_id in ("rudely", "rude", "busy")}
    assert ends["busy"] < min(ends["rudely"], ends["rude"])
    assert [1] * 3 == [len(stage.claims(run_id)) for run_id in ends]
    assert [] == stage.audit()
    figure("leases: seconds for 20 effects beside two blocked loops", ends["busy"] / 1000)


def test_beats_do_not_queue_behind_commits(stage: Stage) -> None:
    """Somebody locks the file for several leases: nobody's lease is lost, and all go on."""
    for _ in range(2):
        stage.spawn_worker(players.work, ["ticking"])
    submit(stage, "ticking", 6)
    run_ids = stage.run_ids()
    until(lambda: all(stage.claims(run_id) for run_id in run_ids), "all to be driven")

    db = sqlite3.connect(stage.database, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    time.sleep(LONG)
    db.execute("ROLLBACK")
    db.close()

    (stage.folder / "go").touch()
    until(lambda: all("completed" == stage.status(r) for r in run_ids), "all runs to end")
    assert [1] * len(run_ids) == [len(stage.claims(run_id)) for run_id in run_ids]
    assert [] == stage.audit()


def end_of(stage: Stage, run_id: str) -> int:
    """ms from the run's start to its end."""
    end = stage.events(run_id)[-1]
    assert isinstance(end, RunCompleted)
    return end.at
