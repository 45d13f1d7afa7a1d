"""Killed between the user's commit and the journal's, or before both: each thing happens once."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from outlive.testing.crash.lab import Lab, Play
from tests.conftest import Figure
from tests.harness.places import Place
from tests.harness.postgres_server import PostgresServer
from tests.transactions.booking import PARTS, booked, expected, recover, spawn
from tests.transactions.scene import SERVER

pytestmark = [pytest.mark.alone("sweep"), pytest.mark.timeout(3600)]

#: Kills at named moments, and from outside at any moment, on each store.
AT_MOMENTS, AT_MOMENTS_FULL = 16, 450
FROM_OUTSIDE, FROM_OUTSIDE_FULL = 4, 50
TOGETHER = 8
#: Store calls and moments, unless all are wanted.
POINTS = 8
SEED = 20_261
KILLED = -signal.SIGKILL
#: Most of them between the two commits.
MOMENTS = (
    ("transaction.after",) * 4 + ("transaction.before",) * 2 + ("effect.after", "effect.before")
)


def portions(names: Sequence[str]) -> Iterator[list[str]]:
    for begin in range(0, len(names), TOGETHER):
        yield list(names[begin : begin + TOGETHER])


def run_killed(
    place: Place, names: list[str], begin: Callable[[str], BaseProcess]
) -> tuple[int, list[str]]:
    """Have these driven and killed, some at a time, and go on with them; how many died so."""
    killed = 0
    for some in portions(names):
        children = [begin(name) for name in some]
        for child in children:
            child.join(60)
            killed += child.exitcode == KILLED
            child.close()
        outcomes = asyncio.run(asyncio.wait_for(recover(place, some), 60))
        for name in some:
            parts = [f"{name}/{part}" for part in PARTS]
            assert parts == [each.partition(" ")[0] for each in outcomes[name]]
    return killed, booked(place)


def test_killed_at_a_moment(place: Place, full: bool, figure: Figure) -> None:
    """At each of the moments around both commits, for steps that await and that do not."""
    rng = random.Random(SEED)
    count = AT_MOMENTS_FULL if full else AT_MOMENTS
    names = [f"m{number:03}" for number in range(count)]
    points = {name: (rng.choice(MOMENTS), rng.randint(1, len(PARTS))) for name in names}

    killed, rows = run_killed(place, names, lambda name: spawn(place, name, *points[name]))

    assert expected(names) == rows
    assert count == killed
    figure(
        f"transactional steps, {type(place).__name__}: killed at a moment", f"{killed}, seed {SEED}"
    )


def test_killed_from_outside(place: Place, full: bool, figure: Figure) -> None:
    """At any time at all."""
    rng = random.Random(SEED)
    count = FROM_OUTSIDE_FULL if full else FROM_OUTSIDE
    names = [f"o{number:03}" for number in range(count)]

    def begin(name: str) -> BaseProcess:
        child = spawn(place, name, "", 0)
        time.sleep(rng.uniform(0.0, 0.35))
        child.kill()
        return child

    killed, rows = run_killed(place, names, begin)

    assert expected(names) == rows
    figure(f"transactional steps, {type(place).__name__}: killed from outside", killed)


def test_nothing_is_left_beside_the_journals(place: Place) -> None:
    """What a dead process could not forget goes with its run; others leave nothing."""
    names = [f"n{number}" for number in range(4)]

    run_killed(place, names, lambda name: spawn(place, name, "transaction.after", 1))

    assert place.count("outcomes") <= len(names)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_at_every_store_call_and_moment(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, full: bool, figure: Figure
) -> None:
    """Before and after whatever the engine asks of the store."""
    monkeypatch = request.getfixturevalue("monkeypatch")
    server: PostgresServer | None = None
    if kind == "postgresql":
        server = request.getfixturevalue("postgres")
        monkeypatch.setenv(SERVER, server.url())
    play = Play(
        target="tests.transactions.scene:scene",
        policies={"book": "once", "book_plainly": "once"},
        events_min=4,
        search_path=(str(Path(__file__).parents[2]),),
        server=None if server is None else server.url(),
    )
    with Lab(play, tmp_path, parallel=TOGETHER) as lab:
        survey = lab.survey()
        points = [*survey.call_points(), *survey.moment_points()]
        if not full:
            points = random.Random(SEED).sample(points, min(POINTS, len(points)))
        report = lab.crash_at(points)

    assert not report.violations, "\n".join(report.violations[:5])
    figure(f"transactional steps, {kind}: store calls and moments", f"{report.hits} kills")
