"""A plain flow is the async one: the same journal, and from every cut it goes on as it could."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from outlive.model.events import (
    ChildEnded,
    Claimed,
    Event,
    Fault,
    Parked,
)
from tests.engine.scenarios import Scenario
from tests.engine.test_cuts import ENDS, by_name, check, go_on, play, record, same
from tests.harness.theatre import EVICTING, STAYING, Theatre
from tests.harness.world import world
from tests.sync.twins import PLAIN, TWINS

Figure = Callable[[str, object], None]

#: In these nothing comes from outside while something else is under way.
ORDERED = {"questioned", "limited", "undone", "calling"}


def told(events: list[Event]) -> list[Event]:
    """The story without its times, its drivers, its chance and the lines of its code."""
    told = []
    for event in events:
        if not isinstance(event, (Claimed, Parked)):
            fields: dict[str, object] = {
                "at": 0,
                "seed": b"",
                "started_at": 0,
                "deadline_at": None,
                "until": None,
            }
            fields |= {"not_after": 0, "retry_at": 0, "took": 0}
            if isinstance(fault := getattr(event, "error", None), Fault):
                fields["error"] = msgspec.structs.replace(fault, trace="")
            has = {name: value for name, value in fields.items() if hasattr(event, name)}
            told.append(msgspec.structs.replace(event, **has))
    return told


async def journal_of(scenario: Scenario, settings: Any) -> list[Event]:
    world.begin()
    theatre = Theatre(settings)
    await check(theatre, scenario, await play(theatre, scenario))
    events = await theatre.events("r")
    await theatre.close()
    return told(events)


@pytest.mark.parametrize("settings", [EVICTING, STAYING], ids=["evicting", "staying"])
@pytest.mark.parametrize(("twin", "plain"), TWINS, ids=[plain.name for _, plain in TWINS])
async def test_a_plain_flow_has_the_journal_of_its_async_twin(
    twin: Scenario, plain: Scenario, settings: Any
) -> None:
    """The same events with the same ids; in the same order, where people have no part in it."""
    wanted, journal = await journal_of(twin, settings), await journal_of(plain, settings)

    assert sorted(map(repr, wanted)) == sorted(map(repr, journal))
    if plain.name in ORDERED:
        assert wanted == journal


@pytest.mark.parametrize("settings", [EVICTING, STAYING], ids=["evicting", "staying"])
@pytest.mark.parametrize("scenario", PLAIN, ids=by_name)
async def test_a_plain_run_cut_anywhere_goes_on(
    scenario: Scenario, settings: Any, figure: Figure
) -> None:
    """Whatever had just happened outside: each effect once, each letter once, the same end."""
    tape, _ = await record(scenario, settings)
    cuts = [(at, tape[at - 1].after) for at in range(1, len(tape))]
    cuts += [(at, tape[at].before) for at in range(1, len(tape)) if not same(tape, at)]
    for at, kept in cuts:
        await go_on(tape, at, kept, scenario)
    figure(f"sync: cuts of {scenario.name}", len(cuts))


@pytest.mark.parametrize("scenario", PLAIN, ids=by_name)
async def test_a_plain_replay_runs_nothing_and_writes_nothing_new(scenario: Scenario) -> None:
    """All of it but the last word: no body runs, and only claim and end are new."""
    tape, _ = await record(scenario, EVICTING)
    last = next(
        at for at, deed in enumerate(tape) if deed.run_id == "r" and isinstance(deed.event, ENDS)
    )
    rest = [deed for deed in tape[last + 1 :] if deed.run_id != "r" and deed.run_id != "key/"]
    cut = tape[:last] + rest
    recorded = [deed.event for deed in cut if deed.run_id == "r" and deed.event is not None]

    theatre = await go_on(cut, len(cut), tape[-1].after, scenario)

    assert [each for each in world.ran if each != "finally"] == []
    new = (await theatre.events("r"))[len(recorded) :]
    # On a busy machine a child ends behind its parent's last word, and is heard of only now.
    kinds = [type(event) for event in new if not isinstance(event, (Claimed, Parked, ChildEnded))]
    assert [type(tape[last].event)] == kinds
    assert getattr(tape[last].event, "value", None) == getattr(new[-1], "value", None)
