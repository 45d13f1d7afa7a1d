"""SIGTERM: a worker takes nothing more, lets what runs end, hands over the rest, and goes."""

from __future__ import annotations

import signal

import pytest

from outlive.model.events import EffectDoubted, EffectIntended, Parked
from tests.harness.processes import until
from tests.workers import deploy
from tests.workers.yard import Command, Yard

pytestmark = pytest.mark.alone("processes")

#: What the end of a process may take on a busy machine, beside the limits under test.
SLACK_SECONDS = 6.0


def begun(yard: Yard, what: str, count: int = 1) -> None:
    """Wait until a body was begun so often."""
    until(lambda: yard.bodies()[what] >= count, f"{what} to begin")


def let_go(yard: Yard, *run_ids: str) -> None:
    (yard.folder / "go").touch()
    until(lambda: all(yard.status(r) == "completed" for r in run_ids), "all to end")


def gone(worker: Command, seconds: float) -> str:
    assert 0 == worker.wait(seconds + SLACK_SECONDS), worker.said("err")
    return worker.said("err")


def test_a_long_step_ends_before_its_worker_goes(yard: Yard) -> None:
    """It is not repeated; the rest of the run is another's, at once."""
    yard.submit(("r", deploy.lingering, (1.5,)))
    first = yard.hire_ready()
    begun(yard, "r linger")
    first.tell()
    said = gone(first, 1.5)
    assert "cut off" not in said
    assert f"`outlive worker {'tests.workers.deploy'}` goes on" in said
    assert None is yard.reading("r").head.worker

    second = yard.hire_ready()
    until(lambda: yard.status("r") == "completed", "the end")
    assert {"r linger": 1, "r think 1": 1} == yard.bodies()
    assert [first.worker_id, second.worker_id] == yard.claimers("r")
    assert [] == yard.audit()


def test_others_are_handed_over_while_a_long_step_goes_on(yard: Yard) -> None:
    """A run that is between two steps is driven elsewhere long before the worker is gone."""
    yard.submit(("long", deploy.lingering, (60.0,)), ("short", deploy.ticking, ()))
    first = yard.hire_ready()
    begun(yard, "long linger")
    begun(yard, "short think 1")
    second = yard.hire_ready()
    first.tell()
    until(lambda: second.worker_id in yard.claimers("short"), "the takeover")
    assert first.is_alive
    assert [first.worker_id] == yard.claimers("long")
    # Once it is past what is recorded: before, being let go would be another past than that.
    turns = len(yard.bodies())
    until(lambda: len(yard.bodies()) > turns, "a turn of the second's own")

    let_go(yard, "short", "long")
    assert "cut off" not in gone(first, 0)
    assert {1} == set(yard.bodies().values())
    assert [] == yard.audit()


def test_a_step_at_the_limit_is_cut_off_and_done_again(yard: Yard) -> None:
    """Its run is free at once, and the next worker begins the step anew."""
    yard.submit(("r", deploy.lingering, (60.0,)))
    first = yard.hire_ready(OUTLIVE_DRAIN_SECONDS="0.3")
    begun(yard, "r linger")
    first.tell()
    assert "cut off" in gone(first, 0.3)
    assert "" == yard.events("r", Parked)[-1].reason

    yard.hire_ready()
    begun(yard, "r linger", 2)
    let_go(yard, "r")
    assert [] == yard.audit()


@pytest.mark.parametrize("kind", ["long", "thread"])
def test_an_effect_at_the_limit_is_settled_by_the_next(yard: Yard, kind: str) -> None:
    """It is never lost and never done twice; a thread that does not end holds up no process."""
    yard.submit(("r", deploy.paying, (kind,)))
    effect = {"long": "pay_long", "thread": "pay_in_thread"}[kind]
    first = yard.hire_ready(OUTLIVE_DRAIN_SECONDS="0.3")
    begun(yard, f"r {effect}")
    first.tell()
    assert "cut off" in gone(first, 1.5)
    doubts = yard.events("r", EffectDoubted)
    assert [(True, "DriverEnded")] * (kind == "long") == [
        (d.over, d.error.type_name) for d in doubts
    ]
    assert None is yard.reading("r").head.worker

    yard.hire_ready()
    begun(yard, f"r {effect}", 2)
    let_go(yard, "r")
    assert 1 == len(yard.receipts())
    assert [1, 1] == [intent.attempt for intent in yard.events("r", EffectIntended)]
    assert [] == yard.audit()


def test_an_effect_at_the_limit_that_only_a_human_can_judge_is_in_doubt(yard: Yard) -> None:
    """The next driver does not touch it."""
    yard.submit(("r", deploy.paying, ("blind",)))
    first = yard.hire_ready(OUTLIVE_DRAIN_SECONDS="0.3")
    begun(yard, "r pay_blindly")
    first.tell()
    gone(first, 1.5)
    assert "in_doubt" == yard.status("r")

    second = yard.hire_ready()
    until(lambda: second.worker_id in yard.claimers("r"), "the takeover")
    until(lambda: yard.reading("r").head.worker is None, "it to be parked again")
    assert "in_doubt" == yard.status("r")
    assert 1 == yard.bodies()["r pay_blindly"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_hands_over_at_once(yard: Yard, number: signal.Signals) -> None:
    """However long the limit is."""
    yard.submit(("r", deploy.lingering, (60.0,)))
    worker = yard.hire_ready(OUTLIVE_DRAIN_SECONDS="600")
    begun(yard, "r linger")
    worker.tell(number)
    until(lambda: "a second signal stops at once" in worker.said("err"), "the first to be heard")
    worker.tell(number)
    assert "cut off" in gone(worker, 0)
    assert None is yard.reading("r").head.worker


def test_ctrl_c_on_a_run_says_how_to_go_on(yard: Yard) -> None:
    """The step that runs is finished; the command that is named goes on behind it."""
    words = ("run", "tests.workers.deploy:lingering", "--id", "r", "--input", "[1.0]")
    running = yard.command(*words)
    begun(yard, "r linger")
    running.tell(signal.SIGINT)
    assert 130 == running.wait(1.0 + SLACK_SECONDS)
    assert "`outlive resume r tests.workers.deploy` goes on with it" in running.said("err")
    assert "waiting" == yard.status("r")

    resumed = yard.command("resume", "r", "tests.workers.deploy")
    assert 0 == resumed.wait(), resumed.said("err")
    assert {"r linger": 1, "r think 1": 1} == yard.bodies()
