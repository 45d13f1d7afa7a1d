"""The writer of a stream is killed at its batches; a reader in another process sees what counts."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from outlive.app.app import App
from outlive.errors import RunNotFound
from outlive.model.events import Event, Published, Streamed, StreamReset
from tests.conftest import Figure
from tests.harness.processes import CHILDREN, end_child
from tests.harness.readers import Screen
from tests.harness.stores import open_shared
from tests.processes.speakers import QUICK, SHOWN, STEP, TOKENS, speak

pytestmark = [pytest.mark.alone("processes")]

#: Commits of an undisturbed run: start, batches, end; a busy machine makes more of them.
COMMITS = 10
#: Kill points: the number of a commit, and whether it is done by then.
POINTS = [(number, is_done) for number in range(1, COMMITS + 1) for is_done in (False, True)]


async def watch(url: str) -> tuple[Screen, App]:
    """Read the stream of a run, from its start to its end, in this process."""
    app = App(open_shared(url), drive=False, settings=QUICK)
    while True:
        try:
            handle = await app.get("r")
            break
        except RunNotFound:
            await asyncio.sleep(0.01)
    screen = Screen()
    await screen.follow(handle.stream("tokens"))
    return screen, app


async def play(url: str, kills: Sequence[tuple[int, bool]]) -> tuple[Screen, list[Event], int]:
    """What a reader sees of a run whose writers die so; its events, and how many were killed."""
    watching = asyncio.ensure_future(watch(url))
    killed = 0
    for kill_at, is_done in [*kills, (None, False)]:
        child = CHILDREN.Process(target=speak, args=(url, kill_at), kwargs={"is_done": is_done})
        child.start()
        try:
            await asyncio.to_thread(child.join, 60)
            assert child.exitcode in (0, -signal.SIGKILL)
            killed += child.exitcode != 0
        finally:
            end_child(child)
    screen, app = await asyncio.wait_for(watching, 60)
    events = await (await app.get("r")).read()
    assert {"progress": len(TOKENS) - 1} == await (await app.get("r")).published()
    await app.aclose()
    await app.store.close()
    return screen, events, killed


def check(screen: Screen, events: Sequence[Event]) -> int:
    """Each token once, in order, one reset for each attempt of which somebody saw something."""
    assert SHOWN == screen.shown
    written = {e.attempt for e in events if isinstance(e, Streamed) and e.step == STEP}
    resets = [e for e in events if isinstance(e, StreamReset)]
    assert [STEP] * len(resets) == screen.resets
    assert len(written) == len(resets) + 1
    assert any(isinstance(event, Published) for event in events)
    return len(resets)


@pytest.mark.parametrize("part", range(2))
async def test_a_writer_killed_at_each_batch_shows_each_token_once(
    part: int, tmp_path: Path, full: bool, figure: Figure
) -> None:
    """Whichever commit it dies at, and whether that is done by then."""
    points = POINTS if full else random.sample(POINTS[2:], 4)
    resets = killed = 0
    for kill_at, is_done in points[part::2]:
        url = f"sqlite:///{tmp_path}/{kill_at}-{is_done}.db"
        screen, events, died = await play(url, [(kill_at, is_done)])
        resets += check(screen, events)
        killed += died
    assert killed
    figure(f"streams: writers killed at a batch, part {part}", f"{killed}, {resets} resets")


async def test_a_writer_killed_again_and_again_gives_one_reset_each_time(
    tmp_path: Path, figure: Figure
) -> None:
    """Three drivers die while they stream; the fourth ends the run."""
    kills = [(4, True), (5, False), (4, True)]
    screen, events, killed = await play(f"sqlite:///{tmp_path}/o.db", kills)

    assert 3 == killed
    assert check(screen, events) >= 2
    figure("streams: resets of a run whose writer was killed three times", len(screen.resets))
