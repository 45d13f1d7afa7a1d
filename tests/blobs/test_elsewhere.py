"""Blobs in another store than the journal: found again, deleted with it, and never mixed up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive import Blob, Retention
from outlive.app.open import open_app
from outlive.app.seal import erase_family, rekey_store
from outlive.errors import StoreUnavailable, UsageError
from outlive.journal.seal.keys import new_key
from outlive.ports import Ports
from outlive.stores.sqlite.store import SQLiteStore
from outlive.testing.suite.entries import delete_one
from tests.harness.clocks import ShiftedClock
from tests.harness.postgres_server import PostgresServer

CONTENT = b"planted-xyzzy " * 200_000
ALL = Retention(completed=0)
KEY = new_key(os.urandom)


@outlive.step
async def keep(size: int) -> Blob:
    return await Blob.of(CONTENT[:size])


@outlive.step
async def weigh(blob: Blob) -> int:
    return sum([len(chunk) async for chunk in blob.chunks()])


@outlive.flow
async def carried(size: int) -> Blob:
    blob = await keep(size)
    assert size == await weigh(blob)
    return blob


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Where the journal is, and where the blobs are."""
    return {"url": f"sqlite:///{tmp_path}/journal.db", "blobs": f"sqlite:///{tmp_path}/blobs.db"}


def opened(places: dict[str, str], **more: Any) -> Any:
    return open_app(places["url"], blobs=places["blobs"], **{"key": "", **more})


async def nodes_in(url: str) -> list[str]:
    """Families of which something is kept in a store, but what stores know of one another."""
    store = SQLiteStore(url.removeprefix("sqlite:///"))
    try:
        found = await store.families("", 100)
        return [name for name in found if name not in ("outlive/places", "outlive.seal")]
    finally:
        await store.close()


def data_in(folder: Path, name: str) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob(f"{name}*") if path.is_file())


async def bytes_of(app: Any, blob: Blob) -> bytes:
    return b"".join([chunk async for chunk in app.chunks(blob)])


@pytest.mark.parametrize("key", ["", KEY], ids=["plain", "sealed"])
async def test_chunks_are_there_and_nothing_else_is(
    places: dict[str, str], tmp_path: Path, key: str
) -> None:
    """The journal stays small; who opens both later reads the blob, sealed as well."""
    async with opened(places, key=key) as app:
        blob = await (await app.start(carried, len(CONTENT), id="r"))
    async with opened(places, key=key) as app:
        assert CONTENT == await bytes_of(app, blob)
        assert blob == await (await app.get("r", carried))
        assert places["blobs"] == (await app.health()).facts["blobs"]

    (family,) = await nodes_in(places["blobs"])
    assert family.startswith("outlive/blobs/")
    assert family.endswith("/r")
    assert (["r"] if key else []) == await nodes_in(places["url"])  # its data key
    journal, chunks = (data_in(tmp_path, name) for name in ("journal.db", "blobs.db"))
    assert b"planted-xyzzy" not in journal
    assert key == "" or b"planted-xyzzy" not in chunks


async def test_chunks_go_with_their_family(places: dict[str, str]) -> None:
    """When its last run is deleted; another family's stay."""
    async with opened(places) as app:
        for name in ("old", "young"):
            await (await app.start(carried, 3_000, id=name))
        retiree = (await app.read("old")).head
        assert await delete_one(app.store, "old", seq=retiree.seq, digest=b"", keep_until=0)
        young = await (await app.get("young", carried))

        assert ["young"] == [name.rpartition("/")[2] for name in await nodes_in(places["blobs"])]
        assert CONTENT[:3_000] == await bytes_of(app, young)


async def test_what_a_kill_leaves_is_swept(
    places: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the two stores, chunks stay; a sweep finds them, and drops them a day on."""
    calendar = ShiftedClock()
    async with opened(places, ports=Ports(clock=calendar)) as app:
        await (await app.start(carried, 3_000, id="r"))
        with monkeypatch.context() as patch:
            patch.setattr(SQLiteStore, "without_runs", _killed)
            with pytest.raises(RuntimeError, match="killed"):
                await app.retain(ALL)
        assert 1 == len(await nodes_in(places["blobs"]))

        assert 0 == (await app.retain(ALL)).families
        calendar.pass_days(2)
        assert 1 == (await app.retain(ALL)).families

    assert [] == await nodes_in(places["blobs"])


async def _killed(*_: object) -> Any:
    raise RuntimeError("killed")


async def test_several_stores_may_share_a_place(places: dict[str, str], tmp_path: Path) -> None:
    """Runs of the same id do not meet, and nobody sweeps what is another's."""
    calendar, other = ShiftedClock(), places | {"url": f"sqlite:///{tmp_path}/other.db"}
    ports = Ports(clock=calendar)
    async with opened(places, ports=ports) as app, opened(other, ports=ports) as second:
        blobs = [await (await each.start(carried, 2_000, id="r")) for each in (app, second)]
        for _ in range(3):
            await app.retain(ALL)
            calendar.pass_days(2)

        assert blobs[0] == blobs[1]
        assert CONTENT[:2_000] == await bytes_of(second, blobs[1])
        assert 1 == len(await nodes_in(places["blobs"]))
        # Nor does the place itself, if it is a store with runs of its own.
        async with open_app(places["blobs"], key="", ports=ports, retention=ALL) as third:
            for _ in range(2):
                assert 0 == (await third.retain(ALL)).families
                calendar.pass_days(2)
        assert CONTENT[:2_000] == await bytes_of(second, blobs[1])


async def test_sealed_blobs_are_erased_and_rekeyed(places: dict[str, str]) -> None:
    """Their keys are with the journal: changing or dropping one reaches the blobs."""
    fresh = new_key(os.urandom)
    async with opened(places, key=KEY) as app:
        blob = await (await app.start(carried, 2_000, id="r"))
    async with opened(places, key=f"{fresh},{KEY}") as app:
        assert 2 == await rekey_store(app.store, lambda name: None)
    async with opened(places, key=fresh) as app:
        assert CONTENT[:2_000] == await bytes_of(app, blob)
        assert ["r"] == await erase_family(app.store, "r", 0)

    assert [] == await nodes_in(places["blobs"])


# ---------------------------------------------------------------- wrong places


async def test_without_its_place_a_store_is_not_opened(places: dict[str, str]) -> None:
    """The error says where its blobs are; those who only look may."""
    async with opened(places):
        pass

    with pytest.raises(StoreUnavailable, match=r"keeps its blobs in sqlite:.*blobs\.db; set"):
        open_app(places["url"], key="")
    open_app(places["url"], key="", only_looks=True).close()


async def test_another_place_is_told_from_the_first(places: dict[str, str], tmp_path: Path) -> None:
    """By what it is, not by its name: it may have been moved."""
    async with opened(places) as app:
        blob = await (await app.start(carried, 2_000, id="r"))
    wrong = places | {"blobs": f"sqlite:///{tmp_path}/wrong.db"}
    async with open_app(wrong["blobs"], key=""):
        pass

    with pytest.raises(StoreUnavailable, match=r"blobs\.db; .*wrong\.db is another place"):
        opened(wrong)
    for path in tmp_path.glob("blobs.db*"):
        path.rename(tmp_path / path.name.replace("blobs", "moved"))
    with pytest.raises(StoreUnavailable, match=r"no store at .*blobs\.db; see OUTLIVE_BLOBS"):
        opened(places)
    async with opened(places | {"blobs": f"sqlite:///{tmp_path}/moved.db"}) as app:
        assert CONTENT[:2_000] == await bytes_of(app, blob)


@pytest.mark.parametrize(("blobs", "why"), [("memory://", "gone with the process"), ("", "itself")])
async def test_places_without_sense_are_refused(
    places: dict[str, str], blobs: str, why: str
) -> None:
    """What would not last, and the store itself."""
    with pytest.raises(UsageError, match=why):
        opened(places | {"blobs": blobs or places["url"]})


async def test_blobs_from_before_are_found(places: dict[str, str]) -> None:
    """What was kept with the journal when there was no other place is still read."""
    async with open_app(places["url"], key="") as app:
        blob = await (await app.start(carried, 2_000, id="r"))

    async with opened(places) as app:
        assert CONTENT[:2_000] == await bytes_of(app, blob)


async def test_blobs_in_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    """A file for the journal, a server for what is large, and the other way round."""
    file = f"sqlite:///{tmp_path}/o.db"
    for number, (url, blobs) in enumerate(
        [
            (file, postgres.url(schema="chunks")),
            (postgres.url(schema="journal"), f"sqlite:///{tmp_path}/chunks.db"),
        ]
    ):
        async with open_app(url, blobs=blobs, key="") as app:
            blob = await (await app.start(carried, len(CONTENT), id=f"r{number}"))
            assert CONTENT == await bytes_of(app, blob)
            await app.retain(ALL)
            assert {} == await app.store.get_blobs(f"r{number}", [blob.address])
