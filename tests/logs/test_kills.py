"""Who appends to logs may be killed at each call of the store, and at each moment of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import outlive
from outlive.testing.crash.lab import Lab, Play
from tests.conftest import Figure
from tests.harness.postgres_server import PostgresServer
from tests.harness.stores import url_of
from tests.logs.conftest import KEY
from tests.logs.racer import KEYS

pytestmark = [pytest.mark.alone("sweep")]

ROOT = Path(__file__).parents[2]
PARALLEL = 4
REACHED_MIN = 0.5
#: Whoever deletes journals hears from the auditor that they are gone, or others.
GONE = re.compile(r"journal ends at \d+$|was there and is gone$|event \d+ was \w+\(.* and is \w+\(")


def kill(folder: Path, scene: str, chance: Random, share: float, server: str | None = None) -> str:
    """Kill a scene at a part of its points; says how many were reached."""
    play = Play(
        target=f"tests.logs.scenes:{scene}",
        policies={},
        events_min=0,  # there are no runs
        search_path=(str(ROOT),),
        server=server,
    )
    with Lab(play, folder, parallel=PARALLEL) as lab:
        survey = lab.survey()
        points = [*survey.call_points(), *survey.moment_points()]
        some = chance.sample(points, round(share * len(points)))
        report = lab.crash_at(some)
    wrong = [each for each in report.violations if not (scene == "drops" and GONE.search(each))]
    assert not wrong, "\n".join(wrong[:5])
    assert report.hits >= REACHED_MIN * len(some)
    return f"{report.hits} of {len(points)}"


@pytest.mark.parametrize("scene", ["appends", "drops"])
def test_killed_at_every_point(
    scene: str, trials: Path, chance: Random, full: bool, figure: Figure
) -> None:
    """Nothing acknowledged is lost, nothing is there twice, and no half of two keys."""
    reached = kill(trials, scene, chance, 1.0 if full else 0.3)

    figure(f"logs, SQLite: points at which '{scene}' was killed", reached)


def test_killed_at_every_point_on_a_server(
    postgres: PostgresServer, trials: Path, chance: Random, full: bool, figure: Figure
) -> None:
    """The same where a server keeps them."""
    reached = kill(trials, "appends", chance, 1.0 if full else 0.08, postgres.url())

    figure("logs, PostgreSQL: points at which 'appends' was killed", reached)


def test_killed_at_every_point_of_a_sealed_store(
    trials: Path, chance: Random, full: bool, figure: Figure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where all is sealed."""
    monkeypatch.setenv("OUTLIVE_KEY", KEY)
    reached = kill(trials, "appends", chance, 1.0 if full else 0.2)

    figure("logs, sealed: points at which 'appends' was killed", reached)


class Racer:
    """A process that appends, and writes down what was acknowledged."""

    def __init__(self, url: str, name: str, folder: Path) -> None:
        self.path = folder / f"{name}.told"
        with self.path.open("wb") as told:
            command = [sys.executable, "-m", "tests.logs.racer", url, name]
            self.process = subprocess.Popen(command, stdout=told, cwd=ROOT)

    def kill(self) -> list[list[str]]:
        """End it as the kernel does; returns what it was told."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        lines = self.path.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]


def storm(url: str, folder: Path, chance: Random, kills: int) -> Iterator[list[str]]:
    """Three processes append to the same keys; one after the other is killed and replaced."""
    racers = [Racer(url, f"r{number}", folder) for number in range(3)]
    for number in range(kills):
        until = time.monotonic() + 30
        victim = chance.choice(racers)
        while not victim.path.stat().st_size and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.3))
        yield from victim.kill()
        racers[racers.index(victim)] = Racer(url, f"r{number + 3}", folder)
    time.sleep(0.3)
    for racer in racers:
        yield from racer.kill()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_nothing_acknowledged_is_lost_in_a_storm(
    kind: str, tmp_path: Path, chance: Random, request: pytest.FixtureRequest, figure: Figure
) -> None:
    """Several processes append to the same keys and are killed: all is there, and once."""
    url = url_of(kind, tmp_path, request)
    kills = 40 if request.getfixturevalue("full") else 2
    async with outlive.open(url, drive=False) as app:
        told = list(storm(url, tmp_path, chance, kills))
        log = app.log("race")
        found = {key: [entry.value for entry in await log.read(key)] for key in KEYS}

    for key, some in found.items():
        assert len(some) == len({op for op, _ in some}), key
    everywhere = [op for some in found.values() for op, _ in some]
    for op, keys in told:
        assert all(any(op == each for each, _ in found[key]) for key in keys), op
    for op, keys in ((op, keys) for some in found.values() for op, keys in some):
        assert everywhere.count(op) == len(keys), op
    figure(f"logs: acknowledged in a storm on {kind}", len(told))
    assert len(told) > 20
