"""Decisions, whatever was wished when and however late somebody woke: each instant once."""

from __future__ import annotations

import random

from outlive.model.schedules import (
    LATE_MS_MAX,
    Advance,
    Firing,
    Plan,
    Wish,
    decide,
    first_standing,
    foresee,
    instant_of,
    render_instant,
    run_id_of,
)
from tests.conftest import Figure
from tests.schedules.laws import instants

BEGIN = 1_770_000_000_000
LIVES, LIVES_FULL = 300, 20_000
TURNS = 40


def some_plan(dice: random.Random) -> Plan:
    return Plan(
        flow=dice.choice(["a", "b"]),
        version="1",
        args=b"",
        every_ms=dice.choice([1000, 7000, 60_000, 3_600_000]),
        missed=dice.choice(["once", "skip"]),
    )


def some_wish(dice: random.Random, at: int) -> Wish | None:
    what = dice.choice(["define", "pause", "resume", "resume", "remove", "", "", ""])
    if what == "define":
        return Wish(what="define", at=at, plan=some_plan(dice))
    return Wish(what=what, at=at) if what else None  # type: ignore[arg-type]


def test_windows_between_decisions_cover_all_time(
    figure: Figure, full: bool, chance: random.Random
) -> None:
    """Of each window the last instant is fired, if it is not too late; windows never overlap."""
    fired: list[Firing] = []
    for _ in range(LIVES_FULL if full else LIVES):
        plan = some_plan(chance)
        turn, now = Advance(plan=plan, standing=first_standing("s", plan, BEGIN)), BEGIN
        seen: set[str] = set()
        for _ in range(TURNS):
            now += chance.choice([1, 999, 1000, 60_000, 7_200_000])
            wish = some_wish(chance, now - chance.choice([0, 0, 5, 50_000, -3000]))
            before, turn = turn, decide(turn, wish, now)
            check(before, turn, wish, now)
            if turn.firing is not None:
                assert turn.firing.run_id not in seen
                seen.add(turn.firing.run_id)
                fired.append(turn.firing)
    figure("schedules: decisions that fired", len(fired))
    assert len(fired) > LIVES


def check(before: Advance, after: Advance, wish: Wish | None, now: int) -> None:
    until = after.standing.decided_until
    assert before.standing.decided_until <= until <= now
    if wish is None:
        assert now == until
    due = instants(before.plan, before.standing, until)
    is_worth = bool(due) and (before.plan.missed == "once" or now - due[-1] <= LATE_MS_MAX)
    wanted = Firing(run_id_of("s", due[-1]), due[-1]) if is_worth else None
    assert wanted == after.firing
    if after.standing.state == "active":
        assert after.standing.next_at is not None
        assert after.standing.next_at > until
        next_ones = instants(after.plan, after.standing, after.standing.next_at)
        assert [after.standing.next_at] == next_ones
    else:
        assert after.standing.next_at is None


def test_what_is_foreseen_is_what_comes() -> None:
    """A wish that nobody has heard yet shows what it will do."""
    plan = Plan(flow="a", version="1", args=b"", every_ms=60_000)
    turn = Advance(plan=plan, standing=first_standing("s", plan, BEGIN))
    at = BEGIN + 5
    for wish in (
        Wish(what="pause", at=at),
        Wish(what="resume", at=at),
        Wish(what="remove", at=at),
        Wish(what="pause", at=at),
        Wish(what="define", at=at, plan=plan),
    ):
        assert decide(turn, wish, BEGIN + 10) == foresee(turn, wish)
        turn = foresee(turn, wish)
    assert "active" == turn.standing.state


def test_a_busy_schedule_leaves_the_instant_out() -> None:
    """It is decided about all the same, and does not come later."""
    plan = Plan(flow="a", version="1", args=b"", every_ms=1000, overlap="skip")
    turn = Advance(plan=plan, standing=first_standing("s", plan, BEGIN))

    busy = decide(turn, None, BEGIN + 1000, is_busy=True)
    free = decide(busy, None, BEGIN + 2000)

    assert busy.firing is None
    assert free.firing == Firing(run_id_of("s", BEGIN + 2000), BEGIN + 2000)


def test_of_instants_that_passed_the_last_is_fired() -> None:
    """Those before it are left out, though all are hardly late."""
    plan = Plan(flow="a", version="1", args=b"", every_ms=2000)
    turn = Advance(plan=plan, standing=first_standing("s", plan, BEGIN))

    late = decide(turn, None, BEGIN + 9000)
    after = decide(late, None, BEGIN + 10_000)

    assert [BEGIN + 8000, BEGIN + 10_000] == [each.at for each in after.standing.recent]


def test_the_last_runs_are_remembered() -> None:
    """A few of them: a schedule stays small however old it is."""
    plan = Plan(flow="a", version="1", args=b"", every_ms=1000)
    turn = Advance(plan=plan, standing=first_standing("s", plan, BEGIN))
    for number in range(1, 20):
        turn = decide(turn, None, BEGIN + number * 1000)

    assert [BEGIN + n * 1000 for n in range(15, 20)] == [each.at for each in turn.standing.recent]


def test_instants_are_texts_and_back() -> None:
    """To the millisecond; what is no instant is none."""
    for instant in (BEGIN, BEGIN + 1, BEGIN + 999):
        assert instant == instant_of({"fired_at": render_instant(instant)})
    assert instant_of({}) is None
    assert instant_of({"fired_at": "soon"}) is None
