"""Processes that are stopped in mid-run, taken over, and woken: they find out, and do no harm."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

import pytest

from outlive.errors import StepNotInDoubt
from outlive.model.events import RunCompleted
from outlive.model.mail import Verdict
from tests.conftest import Figure
from tests.harness.processes import pid_of, state_of, until
from tests.processes import players
from tests.processes.cast import EFFECTS, POSITIONS, Position
from tests.processes.stage import Stage

pytestmark = pytest.mark.alone("processes")

REPEATS, REPEATS_FULL = 1, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A zombie: where it stops, at what kind of effect, and when it is woken."""

    run_id: str
    position: Position
    kind: str
    early: bool
    zombie: BaseProcess


def cast_zombies(stage: Stage, repeats: int) -> list[Case]:
    """Start them all and wait until each has stopped."""
    kinds = itertools.product(POSITIONS, EFFECTS, (True, False), range(repeats))
    cases = []
    for number, (position, kind, early, _) in enumerate(kinds):
        run_id = f"z{number}"
        zombie = stage.spawn(players.start, (run_id, "paying", [kind]), position)
        cases.append(Case(run_id=run_id, position=position, kind=kind, early=early, zombie=zombie))
    until(lambda: all("T" == state_of(case.zombie) for case in cases), "all to stop")
    return cases


def is_settled(stage: Stage, case: Case) -> bool:
    """The run went on as far as it can without a human."""
    return stage.status(case.run_id) in ("completed", "in_doubt")


def wake(cases: Sequence[Case]) -> None:
    for case in cases:
        os.kill(pid_of(case.zombie), signal.SIGCONT)


async def resolve_doubts(stage: Stage, cases: Sequence[Case]) -> int:
    """Tell each run that asks what the ledger says, as a human would."""
    told = 0
    keys = {receipt.run_id for receipt in stage.receipts()}
    async with stage.open_app() as app:
        for case in cases:
            if "in_doubt" == stage.status(case.run_id):
                verdict = "happened" if case.run_id in keys else "not_happened"
                await app.resolve(case.run_id, "0/pay_blindly#1", verdict, b'"seen"')
                told += 1
    return told


def refusals(stage: Stage, case: Case) -> int:
    """Appends of a driver (not claims) that the zombie tried in the epoch it had lost."""
    return sum(
        not done and lease != "take"
        for run_id, _, _, lease, done, _ in stage.appends(case.zombie)
        if run_id == case.run_id
    )


def test_zombies_are_refused_at_their_first_append(
    stage: Stage, figure: Figure, full: bool
) -> None:
    """Wherever they stopped: each tries, none succeeds, and what they did happens once."""
    cases = cast_zombies(stage, REPEATS_FULL if full else REPEATS)
    for _ in range(2):
        stage.spawn_worker(players.work, ["paying"])

    early = [case for case in cases if case.early]
    until(lambda: all(len(stage.claims(c.run_id)) > 1 for c in early), "the takeover of all")
    wake(early)
    until(lambda: all(is_settled(stage, case) for case in cases), "all to settle")
    wake([case for case in cases if not case.early])
    until(lambda: all(refusals(stage, case) for case in cases), "all zombies to try")

    doubts = asyncio.run(resolve_doubts(stage, cases))
    for case in cases:
        case.zombie.join(10)
    assert_harmless(stage, cases)
    figure("zombies: cases", len(cases))
    figure("zombies: refused at their first append", sum(refusals(stage, c) > 0 for c in cases))
    figure("zombies: doubts that a human settled", doubts)


def assert_harmless(stage: Stage, cases: Sequence[Case]) -> None:
    assert [] == stage.audit()
    assert [0] * len(cases) == [stage.stale_appends(case.run_id) for case in cases]
    assert [0] * len(cases) == [case.zombie.exitcode for case in cases]
    keys = [receipt.key for receipt in stage.receipts()]
    assert len(keys) == len(set(keys)) == len(cases)
    for case in cases:
        end = stage.events(case.run_id)[-1]
        assert isinstance(end, RunCompleted)
        assert stage.outcome(case.zombie)[1] in (*keys, "seen")


async def say(stage: Stage, verdict: Verdict) -> None:
    async with stage.open_app() as app:
        await app.resolve("z", "0/pay_blindly#1", verdict, b'"seen"')


def test_nobody_can_say_too_early_that_it_did_not_happen(stage: Stage) -> None:
    """While a paused driver may still do it, a human's "it did not" is refused."""
    zombie = stage.spawn(players.start, ("z", "paying", ["blind"]), "before effect")
    until(lambda: "T" == state_of(zombie), "the zombie to stop")
    stage.spawn_worker(players.work, ["paying"])
    until(lambda: "in_doubt" == stage.status("z"), "the doubt")

    with pytest.raises(StepNotInDoubt, match="may still be running"):
        asyncio.run(say(stage, "not_happened"))
    os.kill(pid_of(zombie), signal.SIGCONT)
    until(lambda: 1 == len(stage.receipts()), "the zombie's payment")
    asyncio.run(say(stage, "happened"))
    zombie.join(30)

    assert "completed" == stage.status("z")
    assert [] == stage.audit()
