"""Every scenario on every store; and from every cut of its tape it goes on as it could have."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from outlive.errors import RunCancelled, RunFailed
from outlive.model.events import (
    Claimed,
    Event,
    Parked,
    Replied,
    RunCompleted,
    SignalReceived,
)
from outlive.model.events import RunCancelled as RunWasCancelled
from outlive.model.events import RunFailed as RunHasFailed
from outlive.model.run import fold
from outlive.stores.types import Query
from outlive.testing.audit.auditor import JOURNAL_RULES
from tests.engine.chapters import whispering
from tests.engine.scenarios import SCENARIOS, Scenario, calling, leaf, waiting_leaf
from tests.engine.tape import Deed, TapedStore, rebuild
from tests.harness.theatre import EVICTING, PATIENCE_SECONDS, STAYING, Theatre, breathe
from tests.harness.world import world

Figure = Callable[[str, object], None]

ENDS = (RunCompleted, RunHasFailed, RunWasCancelled)
#: Cuts of one scenario and setting, unless all are wanted.
SAMPLE = 14


def by_name(scenario: Scenario) -> str:
    return scenario.name


async def play(theatre: Theatre, scenario: Scenario) -> Any:
    """Drive the run to its end; whoever is left of its family is driven by a worker for all."""
    app = theatre.open()
    handle = await app.start(scenario.flow, *scenario.args, id="r")
    waiting = asyncio.ensure_future(handle.outcome())
    await tick_until(theatre, scenario, waiting.done)
    async with theatre.open().worker([leaf, waiting_leaf, calling, whispering]):
        await tick_until(theatre, scenario, partial(all_over, theatre))
    try:
        return waiting.result()
    except RunCancelled:
        return "cancelled"
    except RunFailed as error:
        return f"failed {error.type_name}"


async def tick_until(theatre: Theatre, scenario: Scenario, condition: Any) -> None:
    """Let people act and time pass until it is true."""
    began = time.monotonic()
    while True:
        met = condition()
        if await met if asyncio.iscoroutine(met) else met:
            return
        assert time.monotonic() - began < PATIENCE_SECONDS, await story(theatre)
        await scenario.tick(theatre)
        theatre.pass_time(0.05)
        await breathe()


async def all_over(theatre: Theatre) -> bool:
    found = (await theatre.store.find(Query())).items
    return all(each.header.ended_at for each in found if each.header.flow)


async def story(theatre: Theatre) -> str:
    """What there is, where somebody must find out why it does not end."""
    lines = []
    for found in (await theatre.store.find(Query())).items:
        lines.append(f"{found.head} {found.header}")
        lines += [f"    {event}" for event in await theatre.events(found.head.run_id)]
    return "\n".join(lines)


async def check(theatre: Theatre, scenario: Scenario, end: Any) -> None:
    """It ended as it could have, and so did everybody else."""
    assert end in scenario.ends, await story(theatre)
    assert world.names() in [sorted(names) for names in scenario.left], await story(theatre)
    for found in (await theatre.store.find(Query())).items:
        if found.header.flow:
            events = await theatre.events(found.head.run_id)
            broken = [words for rule in JOURNAL_RULES for words in rule(events)]
            broken += list(check_journal(events))
            assert not broken, (broken, await story(theatre))


def check_journal(events: list[Event]) -> list[str]:
    """What the auditor does not know of: each signal once, each reply once, nothing left open."""
    broken = []
    signals = [event.signal_id for event in events if isinstance(event, SignalReceived)]
    replies = [event.signal_id for event in events if isinstance(event, Replied)]
    for kind, ids in (("signal", signals), ("reply", replies)):
        if len(ids) != len(set(ids)):
            broken.append(f"a {kind} came twice: {ids}")
    run = fold(events)
    if run.effects or run.questions or run.tells_parent:
        broken.append("something was left open")
    if 1 != sum(isinstance(event, ENDS) for event in events):
        broken.append("it did not end once")
    return broken


@pytest.mark.parametrize("scenario", SCENARIOS, ids=by_name)
async def test_a_scenario_ends_as_it_should(theatre: Theatre, scenario: Scenario) -> None:
    """On every store, leaving memory at every wait or only at long ones."""
    await check(theatre, scenario, await play(theatre, scenario))


async def record(scenario: Scenario, settings: Any) -> tuple[list[Deed], Any]:
    """Play it once, undisturbed."""
    world.begin()
    theatre = Theatre(settings, store=TapedStore(lease_seconds=80_000))
    end = await play(theatre, scenario)
    await check(theatre, scenario, end)
    await theatre.close()
    return list(theatre.store.tape), end


async def go_on(tape: list[Deed], at: int, kept: Any, scenario: Scenario) -> Theatre:
    """Everybody is killed behind so many deeds; somebody starts the run again."""
    world.restore(kept)
    store = rebuild(tape[:at])
    theatre = Theatre(EVICTING if at % 2 else STAYING, store=store, now_ms=tape[at - 1].at)
    before = await theatre.events("r")
    end = await play(theatre, scenario)
    await check(theatre, scenario, end)
    after = await theatre.events("r")
    assert after[: len(before)] == before
    await theatre.close()
    return theatre


@pytest.mark.parametrize("settings", [EVICTING, STAYING], ids=["evicting", "staying"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=by_name)
async def test_a_run_cut_anywhere_goes_on(
    scenario: Scenario, settings: Any, full: bool, figure: Figure
) -> None:
    """Whatever had just happened outside: each effect once, each letter once, the same end."""
    tape, _ = await record(scenario, settings)
    cuts = [(at, tape[at - 1].after) for at in range(1, len(tape))]
    cuts += [(at, tape[at].before) for at in range(1, len(tape)) if not same(tape, at)]
    if not full:
        seed = Random(f"{scenario.name} {settings.idle_seconds}")
        cuts = seed.sample(cuts, min(SAMPLE, len(cuts)))
    for at, kept in cuts:
        await go_on(tape, at, kept, scenario)
    figure(f"engine: cuts of {scenario.name}", len(cuts))


def same(tape: list[Deed], at: int) -> bool:
    return tape[at - 1].after == tape[at].before


@pytest.mark.parametrize("scenario", SCENARIOS, ids=by_name)
async def test_a_replay_runs_nothing_and_writes_nothing_new(scenario: Scenario) -> None:
    """All of it but the last word: no body runs, and only claim and end are new."""
    tape, _ = await record(scenario, EVICTING)
    last = next(
        at for at, deed in enumerate(tape) if deed.run_id == "r" and isinstance(deed.event, ENDS)
    )
    rest = [deed for deed in tape[last + 1 :] if deed.run_id != "r" and deed.run_id != "key/"]
    cut = tape[:last] + rest
    recorded = [deed.event for deed in cut if deed.run_id == "r" and deed.event is not None]

    theatre = await go_on(cut, len(cut), tape[-1].after, scenario)

    assert [] == world.ran
    new = (await theatre.events("r"))[len(recorded) :]
    kinds = [type(event) for event in new if not isinstance(event, (Claimed, Parked))]
    assert [type(tape[last].event)] == kinds
    was, now = tape[last].event, new[-1]
    assert getattr(was, "value", None) == getattr(now, "value", None)
    assert getattr(was, "error", None) == getattr(now, "error", None)
