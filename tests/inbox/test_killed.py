"""Inboxes whose processes are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from outlive.inbox import (
    AckStage,
    JSONFilePersistence,
    PersistentActivityBuffer,
    SQLitePersistence,
)
from tests.harness.processes import ROOT, until
from tests.inbox.conftest import envelope


@pytest.mark.parametrize("kind", [JSONFilePersistence, SQLitePersistence])
def test_nothing_recorded_is_lost_by_a_kill(kind: type, tmp_path: Path) -> None:
    """Items 13, 14, 16, 22, 26, 41, 45: at every instant between two calls, with no flush."""
    sent = [envelope(f"t{n}") for n in range(4)]
    stages = (AckStage.RECEIVED, AckStage.READ, AckStage.FULFILLED)
    for last in range(len(stages) + 2):
        path = tmp_path / f"at-{last}"
        child = os.fork()
        if child == 0:
            inbox = PersistentActivityBuffer(persistence=kind(path), max_items=4)
            for each in sent:
                inbox.record_incoming(each)
            for stage in stages[:last]:
                name = sent[0]["message_id"]
                inbox.ack({"ack_for_message_id": name, "ack_stage": stage})
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        place = kind(path)
        inbox = PersistentActivityBuffer(persistence=place, max_items=4)
        assert [each["message_id"] for each in sent] == list(inbox._order)
        reached = max((0, *stages[:last]))
        assert reached == inbox.recent()[0].ack_stage
        assert (3 if reached == AckStage.FULFILLED else 4) == len(inbox.reconcile())
        inbox.close()


def test_a_torn_write_of_the_last_change_is_passed_over(tmp_path: Path) -> None:
    """Items 2, 16: what was cut off was never acknowledged; all before it is there."""
    inbox = PersistentActivityBuffer(persistence=JSONFilePersistence(tmp_path / "a.json"))
    inbox.record_incoming(envelope("a"))
    log = tmp_path / "a.json.log"
    whole = log.read_bytes()
    inbox.record_incoming(envelope("b"))
    longer = log.read_bytes()
    for size in range(len(whole), len(longer), 7):
        log.write_bytes(longer[:size])
        again = PersistentActivityBuffer(persistence=JSONFilePersistence(tmp_path / "a.json"))
        assert 1 == len(again)
    again.record_incoming(envelope("c"))
    found = PersistentActivityBuffer(persistence=JSONFilePersistence(tmp_path / "a.json"))
    assert ["a", "c"] == [each.idempotency_token for each in found.recent()]


@pytest.mark.alone("processes")
@pytest.mark.timeout(900)
def test_a_storm_of_kills(
    tmp_path: Path, chance: random.Random, figure: Callable[[str, object], None], full: bool
) -> None:
    """Items 36, 41, 45, 47: no message is lost, and no token is processed twice."""
    count, kills = (2500, 100) if full else (60, 8)
    (tmp_path / "effects").touch()
    agents: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        args = [str(tmp_path), str(len(agents)), str(count)]
        agents.append(
            subprocess.Popen([sys.executable, "-m", "tests.inbox.agent", *args], cwd=ROOT)
        )

    def alive() -> list[subprocess.Popen[bytes]]:
        return [each for each in agents if each.poll() is None]

    try:
        for _ in range(kills):
            while len(alive()) < 3:
                start()
            before = len((tmp_path / "effects").read_text())
            until(_grown(tmp_path / "effects", before, alive), "progress", seconds=120)
            for victim in chance.sample(alive(), min(1, len(alive()))):
                victim.kill()
                victim.wait()
        start()
        until(lambda: not alive(), "the end of all", seconds=600)
    finally:
        for each in alive():
            each.kill()
            each.wait()
    assert 0 == agents[-1].returncode

    done = Counter((tmp_path / "effects").read_text().split())
    assert {f"token-{number}": 1 for number in range(count)} == dict(done)
    place = SQLitePersistence(tmp_path / "inbox.db")
    inbox = PersistentActivityBuffer(persistence=place, max_items=100_000)
    open_ones = {each.idempotency_token for each in inbox.reconcile()}
    assert set() == {token for token in open_ones if inbox.begin(token).status != "DUPLICATE"}
    figure("messages in a storm of kills", len(inbox))
    place.close()


def _grown(path: Path, before: int, alive: Callable[[], list[object]]) -> Callable[[], bool]:
    return lambda: len(path.read_text()) > before or len(alive()) < 3
