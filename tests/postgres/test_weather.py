"""Runs under way while connections are cut and servers crash: nothing is lost, nothing is done
twice, and everybody is driven again within the lease and two seconds of the server's return.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conftest import Figure, Stretch
from tests.harness.postgres_server import PostgresServer
from tests.harness.processes import until
from tests.postgres.proxy import COMMITS, Proxy
from tests.postgres.weather import STILL_SECONDS_MAX, Weather
from tests.processes.stage import Stage

pytestmark = [pytest.mark.alone("postgres"), pytest.mark.timeout(3600)]

#: Seconds that one statement may take: a connection that is half open is given up then.
LIMIT_SECONDS = 1.0

Trouble = Callable[[Proxy], object]
Note = Callable[[str, Weather, int], None]


def cut(proxy: Proxy) -> None:
    """All connections end."""
    proxy.cut()


def be_half_open(proxy: Proxy) -> None:
    """Nothing is heard for longer than a statement may take."""
    proxy.mute()
    time.sleep(LIMIT_SECONDS * 1.2)
    proxy.mend()


def lose_an_answer(proxy: Proxy) -> None:
    """A commit is done, and nobody hears of it."""
    before = proxy.lost
    proxy.lose_next_answer(to=COMMITS)
    until(lambda: proxy.lost > before, "a commit")


#: In every test, and in full.
TROUBLES: dict[Trouble, tuple[int, int]] = {
    cut: (5, 200),
    be_half_open: (2, 200),
    lose_an_answer: (10, 200),
}


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda each: each.__name__)
def test_a_troubled_connection(
    postgres: PostgresServer, stage: Stage, trouble: Trouble, note: Note, full: bool
) -> None:
    """Again and again, with commits, beats and claims under way."""
    count = TROUBLES[trouble][full]
    with Proxy(postgres.port) as proxy:
        behind = stage.url.replace(f":{postgres.port}/", f":{proxy.port}/")
        stage.move_to(f"{behind}&limit={LIMIT_SECONDS}")
        weather = Weather(stage)
        for _ in range(count):
            weather.strike(lambda: trouble(proxy))
        effects = weather.end()
        stage.close()

    note(trouble.__name__.replace("_", " "), weather, effects)


@pytest.fixture
def note(figure: Figure, stretch: Stretch) -> Note:
    """Call it for what came of it; the auditor found nothing lost and nothing twice."""

    def tell(name: str, weather: Weather, effects: int) -> None:
        count, longest = len(weather.still), max(weather.still)
        figure(
            f"postgresql: {name}: times, effects, acknowledged events lost, effects twice",
            (count, effects, 0, 0),
        )
        figure(f"postgresql: {name}: all runs driven again, longest ms", round(1000 * longest))
        if weather.waited_in_doubt:
            figure(f"postgresql: {name}: waits for an effect in doubt", weather.waited_in_doubt)
        assert longest < STILL_SECONDS_MAX * stretch()
        assert effects > len(weather.run_ids)

    return tell


def test_a_server_that_crashes(
    own_postgres: PostgresServer, stage: Stage, note: Note, full: bool
) -> None:
    """It is ended as by a power cut, and comes back."""
    stage.move_to(own_postgres.url())
    weather = Weather(stage)

    def crash() -> None:
        own_postgres.crash()
        own_postgres.start()

    for _ in range(20 if full else 2):
        weather.strike(crash)
    effects = weather.end()
    stage.close()

    note("crash of the server", weather, effects)


class Pair:
    """A server and its standby, on two ports; whichever is alone gets a new standby."""

    def __init__(self) -> None:
        self.primary = PostgresServer().create().start()
        self.standby = self.primary.add_standby()

    @property
    def url(self) -> str:
        """Either of them, whichever can be written to."""
        first = f"127.0.0.1:{self.primary.port}"
        return self.primary.url().replace(first, f"{first},127.0.0.1:{self.standby.port}")

    def fail_over(self) -> None:
        """The primary is gone for good, and the standby takes over."""
        lost = self.primary
        lost.crash()
        self.standby.promote()
        self.primary = self.standby
        lost.remove()

    def complete(self) -> None:
        """A new standby where the lost server was."""
        self.standby = self.primary.add_standby(self._other_port)

    def wait_for_standby(self) -> None:
        """Until commits wait for it."""
        until(self._is_synchronous, "the standby")

    def _is_synchronous(self) -> bool:
        with psycopg.connect(self.primary.url(), autocommit=True) as db:
            found = db.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
        return found == [("sync",)]

    def __enter__(self) -> Pair:
        self._ports = {self.primary.port, self.standby.port}
        return self

    @property
    def _other_port(self) -> int:
        (port,) = self._ports - {self.primary.port}
        return port

    def __exit__(self, *_: object) -> None:
        for server in {self.primary, self.standby}:
            server.remove()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair() as pair:
        yield pair


def test_a_failover(pair: Pair, tmp_path: Path, note: Note, full: bool) -> None:
    """To a synchronous standby, and from there to the next: all go on by themselves, after a lease
    in which everybody looks whether something is missing.
    """
    stage = Stage(tmp_path)
    stage.move_to(pair.url)
    weather = Weather(stage)
    try:
        for number in range(5 if full else 1):
            if number:
                pair.complete()
            pair.wait_for_standby()
            weather.wait_for_all(time.time())
            weather.strike(pair.fail_over)
        effects = weather.end()
    finally:
        stage.close()

    note("failover", weather, effects)
