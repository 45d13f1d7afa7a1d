"""Scenes for the crash lab: a cut is taken, restored, taken back; what comes before is not killed.

The store of a scene counts its calls and kills the process at one of them. Only what is meant goes
through it; agents talk through the store behind it. What a scene finds when it is played again
tells it how far it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from outlive.checkpoints import Cut, DurableRunner, SnapshotStore, restore_cut
from outlive.checkpoints.agents.agents import Agents
from outlive.checkpoints.agents.cuts import CutJournals, Cuts
from outlive.testing.crash.child import Stage
from tests.cuts.talkers import NAMES, check_cut, check_end, others, talk

CUT = "noon"
CHANCE_SEED = 7
#: How far agents are when the cut is taken: turns of each, twice.
TURNS = 5


@asynccontextmanager
async def runner_on(store: Any) -> AsyncIterator[DurableRunner]:
    async with SnapshotStore(store) as snapshots:
        yield DurableRunner(snapshots, enabled=True)


async def talk_for(runner: DurableRunner, turns: int) -> None:
    """Let each agent talk for so many turns, one after the other."""
    chance = Random(CHANCE_SEED)
    for name in NAMES * 2:
        await talk(await runner.exchange(name, others(name)), chance, turns)


async def talk_to_the_end(store: Any) -> None:
    """Let all agents talk at once until they are done, and look at what they have."""
    chance = Random(CHANCE_SEED)
    async with runner_on(store) as runner:

        async def live(name: str) -> None:
            await talk(await runner.exchange(name, others(name)), chance)

        await asyncio.gather(*map(live, NAMES))
        check_end({name: await runner.resume(name) for name in NAMES})


def behind(stage: Stage) -> Any:
    """The store of the scene, without what kills."""
    return getattr(stage.app.store, "_store")  # noqa: B009 - it is nobody else's business


async def a_cut(stage: Stage) -> Cut:
    """A cut in a file of its own."""
    async with runner_on(f"sqlite:///{stage.folder / 'source.db'}") as source:
        if CUT not in await source.list_cuts():
            await talk_for(source, TURNS)
        cut = await source.cut(NAMES, CUT)
    assert check_cut(cut) > 0, "nothing is in flight"
    return cut


async def take(stage: Stage) -> None:
    """A cut is taken, then agents go on."""
    prepared = stage.folder / "prepared"
    if not prepared.exists():
        async with runner_on(behind(stage)) as runner:
            await talk_for(runner, TURNS)
        prepared.touch()
    async with runner_on(stage.app.store) as runner:
        cut = await runner.cut(NAMES, CUT)
    assert check_cut(cut) > 0, "nothing is in flight"
    async with runner_on(behind(stage)) as runner:
        assert [CUT] == await runner.list_cuts()
        assert cut == await runner.get_cut(CUT)
    await talk_to_the_end(behind(stage))


async def restore(stage: Stage) -> None:
    """A cut is restored, again if that was killed, then agents go on."""
    cut = await a_cut(stage)
    async with runner_on(stage.app.store) as runner:
        await restore_cut(cut, into=runner)
    await talk_to_the_end(behind(stage))
    async with runner_on(behind(stage)) as runner:
        assert "restored" == (await runner.get_cut(CUT)).status


async def go_on(stage: Stage) -> None:
    """A cut is restored; if that is killed, agents go on as if it had not been."""
    cut = await a_cut(stage)
    async with runner_on(behind(stage)) as runner:
        is_there = bool(await runner.list_cuts())
    if not is_there:
        async with runner_on(stage.app.store) as runner:
            await restore_cut(cut, into=runner)
    await talk_to_the_end(behind(stage))


async def take_back(stage: Stage) -> None:
    """Half a cut is restored, and taken back; then nothing is there, and it can be restored."""
    cut = await a_cut(stage)
    prepared, taken_back = stage.folder / "prepared", stage.folder / "taken back"
    if not prepared.exists():
        await restore_half(cut, behind(stage))
        prepared.touch()
    if not taken_back.exists():
        async with runner_on(stage.app.store) as runner:
            if await runner.list_cuts():
                await runner.delete_cut(CUT)
        taken_back.touch()
    async with runner_on(behind(stage)) as runner:
        if CUT not in await runner.list_cuts():
            assert [] == [run.run_id for run in await runner.store.runs()]
        await restore_cut(cut, into=runner)
    await talk_to_the_end(behind(stage))


class Interrupted(Exception):
    """Somebody stops half-way."""


async def restore_half(cut: Cut, store: Any) -> None:
    """Restore two agents, and no more."""

    class Tired(Agents):
        puts = 0

        async def put(self, run_id: str, draft: Any) -> None:
            self.puts += 1
            if self.puts > 2:
                raise Interrupted
            await super().put(run_id, draft)

    async with SnapshotStore(store) as snapshots:
        try:
            await Cuts(Tired(snapshots), CutJournals(snapshots)).restore(cut)
        except Interrupted:
            return
    raise AssertionError("it was not interrupted")
