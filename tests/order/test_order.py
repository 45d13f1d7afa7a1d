"""A run replays as it ran, and a run cut anywhere goes on as it could have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from outlive.model.events import Claimed, DriveBegan, EffectDone, Event, RunCompleted
from outlive.model.ids import derived_key
from outlive.stores.memory import MemoryStore
from outlive.stores.sqlite.store import SQLiteStore
from tests.order.bodies import world
from tests.order.cases import CASES, Case
from tests.order.journals import EVICTING, STAYING, Driven, drive, drive_on

Figure = Callable[[str, object], None]
PARTS = 3


def by_name(case: Case) -> str:
    return case.name


async def run_live(case: Case, seed: int) -> Driven:
    """The run that everything else is compared with; every third seed evicts at every wait."""
    world.begin(seed)
    settings = EVICTING if seed % 3 == 2 else STAYING
    driven = await drive(MemoryStore(), case.flow, run_id=f"{case.name}-{seed}", settings=settings)
    check_outcome(case, driven)
    return driven


def check_outcome(case: Case, driven: Driven) -> None:
    how, value = driven.outcome
    assert how == "returned", value
    assert case.fits(value), value


async def replay_whole(case: Case, run_id: str, driven: Driven) -> None:
    """All of it but the end: no body runs, the same comes out, only claim and end are new."""
    recorded = driven.events[:-1]
    world.go_on(0, remembers=happened(run_id, recorded))
    again = await drive_on(recorded, case.flow, run_id=run_id)

    assert world.ran == []
    assert again.outcome == driven.outcome
    assert again.events[: len(recorded)] == recorded
    claim, *tried, end = again.events[len(recorded) :]
    assert isinstance(claim, Claimed)
    # Of a run that somebody claimed before, to no avail, it is also told that it is tried.
    assert [DriveBegan] * isinstance(recorded[-1], Claimed) == [type(each) for each in tried]
    assert isinstance(end, RunCompleted)


def happened(run_id: str, events: list[Event]) -> set[str]:
    """The keys of effects that these events say happened."""
    steps = {event.step for event in events if isinstance(event, EffectDone)}
    return {derived_key(run_id, step) for step in steps}


@pytest.mark.parametrize("part", range(PARTS))
async def test_a_run_replays_as_it_ran(part: int, full: bool, figure: Figure) -> None:
    """Whatever the timing was: same outcome, no body runs, the journal does not grow."""
    seeds = 200 if full else 24
    outcomes = set()
    for case in CASES[part::PARTS]:
        for seed in range(seeds):
            driven = await run_live(case, seed)
            outcomes.add((case.name, repr(driven.outcome)))
            await replay_whole(case, f"{case.name}-{seed}", driven)
    runs = seeds * len(CASES[part::PARTS])
    figure(f"order: different outcomes in {runs} runs, all replayed ({part + 1})", len(outcomes))


@pytest.mark.parametrize("part", range(PARTS))
async def test_a_run_cut_anywhere_goes_on_as_it_could_have(
    part: int, full: bool, figure: Figure
) -> None:
    """Behind every prefix: the prefix is kept, the outcome is possible, and it replays again."""
    cuts = 0
    for case in CASES[part::PARTS]:
        for seed in range(60 if full else 5):
            driven = await run_live(case, seed)
            for cut in range(1, len(driven.events)):
                await go_on_behind(case, seed, driven.events[:cut])
                cuts += 1
    figure(f"order: cuts behind which a run went on, then replayed ({part + 1})", cuts)


async def go_on_behind(case: Case, seed: int, prefix: list[Event]) -> None:
    run_id, cut = f"{case.name}-{seed}", len(prefix)
    chance = Random(f"{seed} {cut}").randrange(1 << 30)
    world.go_on(chance, remembers=happened(run_id, prefix))
    settings = EVICTING if cut % 3 == 2 else STAYING
    gone_on = await drive_on(prefix, case.flow, run_id=run_id, settings=settings)

    check_outcome(case, gone_on)
    assert gone_on.events[:cut] == prefix
    await replay_whole(case, run_id, gone_on)


@pytest.mark.parametrize("case", CASES, ids=by_name)
async def test_a_run_in_a_file_goes_on_in_the_same_way(case: Case, tmp_path: Path) -> None:
    """The same with records in SQLite, cut in the middle."""
    world.begin(1)
    store = SQLiteStore(tmp_path / "live.db")
    driven = await drive(store, case.flow, run_id=case.name)
    check_outcome(case, driven)
    prefix = driven.events[: len(driven.events) // 2]
    world.go_on(2, remembers=happened(case.name, prefix))

    gone_on = await drive_on(prefix, case.flow, run_id=case.name, file=tmp_path / "cut.db")

    check_outcome(case, gone_on)
    assert gone_on.events[: len(prefix)] == prefix
