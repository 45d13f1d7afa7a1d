"""Locks over real processes, which are killed and stopped."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlive.locks import DistributedLock
from outlive.locks.place import StorePlace
from tests.harness.processes import ROOT, until

LEASE_SECONDS = 2


class Crowd:
    """Processes that contend for one lock."""

    def __init__(self, url: str, folder: Path, sections: int, inside: float = 0.002) -> None:
        self.folder, self._inside, self._sections, self._url = folder, inside, sections, url
        self._members: list[subprocess.Popen[bytes]] = []
        self.env = {**os.environ, "OUTLIVE_LEASE_SECONDS": str(LEASE_SECONDS)}

    def start(self) -> subprocess.Popen[bytes]:
        """Start one more."""
        name = str(len(self._members))
        args = [self._url, str(self.folder), name, str(self._sections), str(self._inside)]
        member = subprocess.Popen(
            [sys.executable, "-m", "tests.locks.contender", *args], cwd=ROOT, env=self.env
        )
        self._members.append(member)
        return member

    @property
    def alive(self) -> list[subprocess.Popen[bytes]]:
        """Those that still work."""
        return [member for member in self._members if member.poll() is None]

    def close(self) -> None:
        """End all that still live."""
        for member in self._members:
            if member.poll() is None:
                member.kill()
            member.wait()

    def writes(self) -> list[tuple[int, str, str]]:
        """What the receiver accepted: token, who, what; in order."""
        path = self.folder / "receiver"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(token), who, what) for token, who, what in map(str.split, lines)]


@pytest.fixture
def crowds(tmp_path: Path) -> Iterator[Callable[..., Crowd]]:
    made: list[Crowd] = []

    def make(sections: int, inside: float = 0.002) -> Crowd:
        made.append(Crowd(f"sqlite:///{tmp_path}/locks.db", tmp_path, sections, inside))
        return made[-1]

    yield make
    for crowd in made:
        crowd.close()


def _more(crowd: Crowd, count: int) -> Callable[[], bool]:
    """Whether the receiver has accepted more than so many writes since now."""
    before = len(crowd.writes())
    return lambda: len(crowd.writes()) > before + count


def check(writes: list[tuple[int, str, str]]) -> None:
    """By the receiver's check never two were inside: tokens rise, and each has one holder."""
    tokens = [token for token, _, _ in writes]
    assert tokens == sorted(tokens)
    holders: dict[int, str] = {}
    for token, who, what in writes:
        assert holders.setdefault(token, who) == who
        assert what in ("enter", "leave")
    assert len(writes) == len(set(writes))


@pytest.mark.alone("processes")
def test_a_killed_holder_frees_the_lock_at_once(
    crowds: Callable[..., Crowd], tmp_path: Path
) -> None:
    """Item 62: after kill -9 the next one enters, long before the lease would have ended."""
    crowd = crowds(1, inside=600)
    crowd.env["OUTLIVE_LEASE_SECONDS"] = "600"
    holder = crowd.start()
    until(crowd.writes, "a holder that is inside")
    place = StorePlace(f"sqlite:///{tmp_path}/locks.db")
    lock = DistributedLock(resource="gate", persistence=place, timeout_seconds=0.05)
    with pytest.raises(TimeoutError):
        lock.acquire()
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    assert lock.acquire(timeout=120) == crowd.writes()[-1][0] + 1
    lock.release()
    place.close()


@pytest.mark.alone("processes")
def test_a_stopped_holder_is_fenced(crowds: Callable[..., Crowd]) -> None:
    """Item 62: who was stopped for more than a lease is refused by the receiver when it wakes."""
    crowd = crowds(1, inside=LEASE_SECONDS)
    stopped = crowd.start()
    until(crowd.writes, "a holder that is inside")
    stopped.send_signal(signal.SIGSTOP)
    crowd.start()
    until(lambda: len(crowd.writes()) > 1, "somebody else inside")
    stopped.send_signal(signal.SIGCONT)
    until(lambda: not crowd.alive, "the end of both")

    writes = crowd.writes()
    assert [(1, "0", "enter"), (2, "1", "enter"), (2, "1", "leave")] == writes
    assert "fenced\n" == (crowd.folder / "log-0").read_text()


@pytest.mark.alone("processes")
@pytest.mark.timeout(600)
def test_a_storm_of_kills_and_stops(
    crowds: Callable[..., Crowd],
    chance: random.Random,
    figure: Callable[[str, object], None],
    full: bool,
) -> None:
    """Item 62: processes that are killed and stopped in and outside of the section: never two."""
    count, sections, faults = (8, 2000, 60) if full else (4, 120, 8)
    crowd = crowds(sections)
    stopped: list[subprocess.Popen[bytes]] = []
    for fault in range(faults):
        while len(crowd.alive) < count:
            crowd.start()
        until(_more(crowd, 4), "progress", seconds=120)
        victim = chance.choice(crowd.alive)
        is_stopped = fault % 4 == 1
        victim.send_signal(signal.SIGSTOP if is_stopped else signal.SIGKILL)
        if is_stopped:
            stopped.append(victim)
    time.sleep(LEASE_SECONDS)
    for victim in stopped:
        victim.send_signal(signal.SIGCONT)
    is_past = _more(crowd, 20)
    until(lambda: is_past() or not crowd.alive, "progress after the storm", seconds=120)

    writes = crowd.writes()
    check(writes)
    figure("critical sections in a storm of kills and stops", len(writes) // 2)
