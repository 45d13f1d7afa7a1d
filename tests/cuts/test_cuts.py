"""Exchange and cuts on the stores that need no server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from outlive.app.seal import sealed
from outlive.checkpoints import Cut, DurableRunner
from outlive.checkpoints.agents.agents import Agents
from outlive.checkpoints.agents.cuts import CutJournals, Cuts
from outlive.journal.lane import run_immediate
from outlive.journal.seal.keys import new_key
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from outlive.stores.sqlite.store import SQLiteStore
from tests.cuts.rules import CutRules, ada_asks_bob

KEYS = tuple(new_key(Random(seed).randbytes) for seed in (1, 2))


class TestMemory(CutRules):
    """In memory."""

    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore(ports=Ports(), lease_seconds=60)

    @pytest.fixture
    def other_store(self) -> Store:
        return MemoryStore(ports=Ports(), lease_seconds=60)

    async def test_whoever_opens_first_finishes_what_was_begun(
        self, cut: Cut, other: DurableRunner
    ) -> None:
        """Also an agent that had not begun, of which nothing is restored but its messages."""
        await Cuts(Agents(other.store), CutJournals(other.store))._begin(cut)  # and it died there
        bob = await other.exchange("bob", peers=["ada"])
        message = await bob.receive(timeout=0)

        assert message is not None
        assert "one" == message.body
        assert "restored" == (await other.get_cut("noon")).status


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Callable[[str], Store]]:
    """Opens files, and closes them behind the test."""
    opened: list[Store] = []

    def open_file(name: str) -> Store:
        opened.append(SQLiteStore(tmp_path / name))
        return opened[-1]

    yield open_file
    for store in opened:
        run_immediate(store.close())


class TestSQLite(CutRules):
    """From a file into a file."""

    @pytest.fixture
    def store(self, file: Callable[[str], Store]) -> Store:
        return file("one.db")

    @pytest.fixture
    def other_store(self, file: Callable[[str], Store]) -> Store:
        return file("other.db")


class TestSealed(CutRules):
    """From a file that is sealed into one with another key."""

    @pytest.fixture
    def store(self, file: Callable[[str], Store]) -> Store:
        return sealed(file("one.db"), KEYS[0], Ports())

    @pytest.fixture
    def other_store(self, file: Callable[[str], Store]) -> Store:
        return sealed(file("other.db"), KEYS[1], Ports())

    async def test_nobody_can_read_it(self, runner: DurableRunner, tmp_path: Path) -> None:
        """Neither states nor messages, long or short, stand in the file as they are."""
        await ada_asks_bob(runner, "a secret", "a secret that is long " * 50)
        cut = await runner.cut(["ada", "bob"])

        written = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())

        assert 2 == len(cut.in_flight["ada", "bob"])
        assert b"ada" in written
        assert b"secret" not in written
