"""A schedule is a run of this flow: it sleeps until its next instant, fires, and turns the page.

Each chapter takes one decision, which is recorded before anything comes of it: what a change of
the zone's rules or of this code would decide otherwise stays as it was decided. The run that it
starts is named by schedule and instant, and intended before it is started: whoever goes on after a
kill starts the same one. It is nobody's child: a schedule lives on, its runs come and go.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from outlive.engine.decorators import step
from outlive.engine.definitions import Flow, RunOptions, nobody
from outlive.engine.people import wait_signal
from outlive.engine.place import Branch, branch_for
from outlive.engine.verbs import carry
from outlive.errors import RunIdTaken, TimedOut, ValueRefused
from outlive.journal.codec.parts import part
from outlive.model.retry import Retry
from outlive.model.schedules import (
    INSTANT_TAG,
    NAME_TAG,
    SCHEDULE_FLOW,
    WISH_SIGNAL,
    Advance,
    Firing,
    Plan,
    Standing,
    Wish,
    decide,
    render_instant,
)

#: No two instants are closer than this.
LATE_MS = 1000
#: A store that fails, or a worker that lacks the zone, must not end the schedule.
PATIENT = Retry(attempts=1_000_000, delay="5s", delay_max="10m")


@step(name="decide", retry=PATIENT)
async def _decide(turn: Advance, wish: Wish | None, now: int, is_busy: bool) -> Advance:
    return decide(turn, wish, now, is_busy=is_busy)


async def _keep(plan: Plan, standing: Standing) -> None:
    branch = branch_for("outlive.schedule")
    wish = await _hear(branch, standing)
    is_busy = await _is_busy(branch, plan, standing)
    now = branch.drive.now_ms()
    turn = await _decide(Advance(plan=plan, standing=standing), wish, now, is_busy)
    if turn.firing is not None:
        # The id is in use: a run for this instant is there, though another.
        with suppress(RunIdTaken):
            flow = target_of(plan, standing.name, turn.firing)
            await branch.drive.launch(branch, flow, part(plan.args))
    await carry(turn.plan, turn.standing)


async def _hear(branch: Branch, standing: Standing) -> Wish | None:
    """What somebody wishes before the next instant comes; None: it came."""
    wish, next_at = await _wish_until(branch, standing.next_at), standing.next_at
    if wish is None and next_at is not None and branch.drive.now_ms() - next_at >= LATE_MS:
        # Nobody was there for a while: what was wished meanwhile counts from when it was uttered.
        return await _wish_until(branch, next_at)
    return wish


async def _wish_until(branch: Branch, until: int | None) -> Wish | None:
    while True:
        within = None if until is None else max(1, until - branch.drive.now_ms()) / 1000
        try:
            wish: Wish = await wait_signal(WISH_SIGNAL, Wish, within)
            return wish
        except TimedOut:
            return None
        except ValueRefused:
            continue  # it was none of ours, and an earlier release told so


async def _is_busy(branch: Branch, plan: Plan, standing: Standing) -> bool:
    """Whether the last run still goes on, if that matters."""
    if plan.overlap == "allow" or not standing.recent:
        return False
    is_over = step(branch.drive.is_over, name="is_over", retry=PATIENT)
    return not await is_over(standing.recent[-1].run_id)


def target_of(plan: Plan, name: str, firing: Firing) -> Flow[Any, Any]:
    """The run to start: by the name of its flow, since its code may be elsewhere."""
    own = {NAME_TAG: name, INSTANT_TAG: render_instant(firing.at)}
    place = plan.place
    options = RunOptions(
        id=firing.run_id,
        tags={**plan.tags, **own},
        queue=plan.queue,
        queue_key=None if place is None else place.key or None,
        priority=None if place is None else place.priority,
        units=None if place is None else place.units,
        deadline=None if plan.deadline_ms is None else plan.deadline_ms / 1000,
        pins=plan.pins,
    )
    return Flow(name=plan.flow, fn=nobody, version=plan.version, preset=options)


#: In every worker that drives whatever its flows can.
SCHEDULE = Flow(name=SCHEDULE_FLOW, fn=_keep, version="1")
