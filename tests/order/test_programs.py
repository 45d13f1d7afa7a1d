"""Random flows replay as they ran, whatever their shape, and go on behind any cut."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from outlive.model.events import Claimed, DriveBegan
from outlive.stores.memory import MemoryStore
from tests.order.bodies import world
from tests.order.journals import EVICTING, STAYING, Driven, drive, drive_on
from tests.order.programs import program
from tests.order.test_order import happened

Figure = Callable[[str, object], None]
PARTS = 2


async def replay_whole(seed: int, run_id: str, driven: Driven) -> None:
    recorded = driven.events[:-1]
    world.go_on(0, remembers=happened(run_id, recorded))
    again = await drive_on(recorded, program, seed, run_id=run_id)

    assert again.outcome == driven.outcome, seed
    assert world.ran == [], seed
    assert again.events[: len(recorded)] == recorded, seed
    claim, *tried, _ = again.events[len(recorded) :]
    assert isinstance(claim, Claimed), seed
    # Of a run that somebody claimed before, to no avail, it is also told that it is tried.
    assert [DriveBegan] * isinstance(recorded[-1], Claimed) == [type(x) for x in tried], seed


def check_end(driven: Driven, seed: int) -> None:
    """It returned, or it waits for a queue that a cancelled branch never filled."""
    stuck = ("failed", "FlowStuck")
    assert driven.outcome[0] == "returned" or driven.outcome == stuck, (seed, driven.outcome)


@pytest.mark.parametrize("part", range(PARTS))
async def test_random_flows_replay_and_go_on(part: int, full: bool, figure: Figure) -> None:
    """A full replay of each, and some cuts; a failing seed is in the message."""
    seeds = range(part, 2000 if full else 100, PARTS)
    events = cuts = 0
    for seed in seeds:
        world.begin(seed)
        run_id, settings = f"p{seed}", EVICTING if seed % 3 == 2 else STAYING
        driven = await drive(MemoryStore(), program, seed, run_id=run_id, settings=settings)
        check_end(driven, seed)
        await replay_whole(seed, run_id, driven)
        events += len(driven.events)
        chance = Random(seed)
        for cut in chance.sample(range(1, len(driven.events)), min(3, len(driven.events) - 1)):
            prefix = driven.events[:cut]
            world.go_on(chance.randrange(1 << 30), remembers=happened(run_id, prefix))
            gone_on = await drive_on(prefix, program, seed, run_id=run_id, settings=settings)
            check_end(gone_on, seed)
            assert gone_on.events[:cut] == prefix, (seed, cut)
            await replay_whole(seed, run_id, gone_on)
            cuts += 1
    figure(f"order: random flows replayed ({part + 1})", f"{len(seeds)}, {events} events")
    figure(f"order: cuts of random flows gone on with ({part + 1})", cuts)
