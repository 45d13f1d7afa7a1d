"""Retention and forks on a sealed store: as on any other, but nothing readable leaves it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outlive import Retention
from outlive.app.app import App
from outlive.app.open import open_app
from outlive.app.seal import archive_keys, sealed
from outlive.errors import CorruptArchive, WrongKey
from outlive.journal.retention.archive import read_archive
from outlive.journal.seal.keys import new_key
from outlive.ports import Ports
from outlive.stores.memory import MemoryStore
from outlive.stores.seam import Store
from tests.forks.rules import ForkRules
from tests.harness.clocks import ShiftedClock
from tests.retention.flows import shop
from tests.retention.rules import RetentionRules

KEY, OTHER_KEY = new_key(os.urandom), new_key(os.urandom)
SECRET = "planted-xyzzy"


def sealed_store(ports: Ports) -> Store:
    return sealed(MemoryStore(ports=ports, lease_seconds=30.0), KEY, ports)


class TestSealed(RetentionRules):
    """Rules of deletion."""

    key = KEY

    @pytest.fixture
    def store(self, ports: Ports) -> Store:
        return sealed_store(ports)

    @pytest.fixture
    async def file(self, app: App, calendar: ShiftedClock, tmp_path: Path) -> Path:
        """An archive of two runs."""
        for number in (1, 2):
            await (await app.start(shop, f"{SECRET}-{number}", id=f"shop-{number}"))
        calendar.pass_days(11)
        await app.retain(Retention(completed="10d", archive=str(tmp_path / "old")))
        (path,) = (tmp_path / "old").rglob("*.outlive")
        return path

    async def test_an_archive_can_not_be_read_without_the_key(self, file: Path) -> None:
        """Neither by looking at its bytes nor by asking for its runs; the error names the key."""
        assert SECRET.encode() not in file.read_bytes()
        assert b"shop" not in file.read_bytes()
        with pytest.raises(WrongKey, match=r"old.*is sealed with key .*no key was given"):
            list(read_archive(file))
        with pytest.raises(WrongKey, match="the keys given are"):
            list(read_archive(file, archive_keys(OTHER_KEY, Ports())))

    async def test_an_archive_opens_with_any_of_several_keys(self, file: Path) -> None:
        """The key may have been changed since."""
        found = read_archive(file, archive_keys(f"{OTHER_KEY},{KEY}", Ports()))

        assert ["shop-1", "shop-2"] == [run.head.run_id for run in found]

    async def test_damage_is_found_with_the_key_and_without(self, file: Path) -> None:
        """A changed byte anywhere is no archive; runs can't change places."""
        whole = file.read_bytes()
        places = range(70, len(whole), 97)
        assert len(places) > 1
        for at in places:
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(CorruptArchive):
                list(read_archive(file, archive_keys(KEY, Ports())))

    async def test_a_restored_run_is_sealed_again(self, file: Path, tmp_path: Path) -> None:
        """In the file of the other store nothing can be read either."""
        url = f"sqlite:///{tmp_path}/again.db"
        async with open_app(url, key=KEY) as there:
            for run in there.archived(file):
                assert await there.restore(run)
            assert f"receipt 1 for {SECRET}-1" == await (await there.get("shop-1"))
        data = b"".join(path.read_bytes() for path in tmp_path.glob("again.db*") if path.is_file())
        assert SECRET.encode() not in data
        async with open_app(f"sqlite:///{tmp_path}/plain.db", key="") as plain:
            with pytest.raises(WrongKey):
                list(plain.archived(file))


class TestSealedForks(ForkRules):
    """Rules of forks."""

    @pytest.fixture
    def store(self) -> Store:
        return sealed_store(Ports())
