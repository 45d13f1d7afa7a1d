"""Large payloads: in and out as streams, verified, and never whole in memory."""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive import sync
from outlive.app.app import App
from outlive.engine.blob import CHUNK_BYTES, Blob
from outlive.errors import BlobMissing, RunFailed, UsageError
from outlive.stores.memory import MemoryStore
from tests.harness.programs import run_python

Figure = Callable[[str, object], None]

SIZES = (0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 17)


def content(size: int) -> bytes:
    return random.Random(size).randbytes(size)


async def trickle(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 300_000):
        yield data[at : at + 300_000]


@outlive.step
async def keep(how: str, size: int, folder: str) -> Blob:
    data = content(size)
    path = Path(folder) / "source"
    path.write_bytes(data)
    match how:
        case "bytes":
            return await Blob.of(data)
        case "path":
            return await Blob.of(path)
        case "file":
            with path.open("rb") as file:
                return await Blob.of(file)
        case "memory file":
            return await Blob.of(io.BytesIO(data))
        case "iterator":
            return await Blob.of([data[:7], data[7:]])
        case _:
            return await Blob.of(trickle(data))


@outlive.step
def keep_plain(how: str, size: int, folder: str) -> Blob:
    data = content(size)
    path = Path(folder) / "source"
    path.write_bytes(data)
    return Blob.of_plain(path if how == "path" else data)


@outlive.step
async def weigh(blob: Blob, folder: str) -> list[Any]:
    digest = hashlib.sha256()
    async for chunk in blob.chunks():
        digest.update(chunk)
    await blob.save(Path(folder) / "target")
    return [
        blob.size,
        digest.hexdigest(),
        Path(folder, "target").read_bytes() == content(blob.size),
    ]


@outlive.step
def weigh_plain(blob: Blob, folder: str) -> list[Any]:
    digest = hashlib.sha256(b"".join(blob.chunks_plain()))
    blob.save_plain(Path(folder) / "target")
    return [
        blob.size,
        digest.hexdigest(),
        Path(folder, "target").read_bytes() == content(blob.size),
    ]


@outlive.flow
async def carried(how: str, size: int, folder: str, plain: bool) -> tuple[Blob, list[Any]]:
    blob = await (keep_plain if plain else keep)(how, size, folder)  # type: ignore[misc]
    return blob, await (weigh_plain if plain else weigh)(blob, folder)  # type: ignore[misc]


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize("how", ["bytes", "path", "file", "memory file", "iterator", "trickle"])
async def test_a_blob_goes_from_step_to_step(tmp_path: Path, how: str, plain: bool) -> None:
    """From whatever it is made of; read in a step, saved, and read from outside."""
    async with outlive.open(f"sqlite:///{tmp_path}/o.db") as app:
        for size in SIZES:
            handle = await app.start(carried, how, size, str(tmp_path), plain, id=f"r-{size}")
            blob, told = await handle.outcome()
            outside = b"".join([chunk async for chunk in app.chunks(blob)])

            assert [size, hashlib.sha256(content(size)).hexdigest(), True] == told
            assert content(size) == outside


def test_plain_code_reads_a_blob(tmp_path: Path) -> None:
    """The blocking app has the same verb."""
    with sync.open(f"sqlite:///{tmp_path}/o.db") as app:
        blob, _ = app.run(carried, "path", SIZES[-1], str(tmp_path), True)

        assert content(SIZES[-1]) == b"".join(app.chunks(blob))


async def test_a_blob_is_a_small_value_and_equal_ones_are_kept_once(tmp_path: Path) -> None:
    """The journal holds its name; the same bytes again add nothing."""
    store = MemoryStore()
    async with App(store) as app:
        await (await app.start(carried, "bytes", 3_000_000, str(tmp_path), False, id="r")).outcome()
        kept = sum(len(body) for body in store._nodes["r"].values())
        records = sum(len(record.body) for record in store._journals["r"].records)

    assert kept < 3_100_000
    assert records < 2_000


@pytest.mark.parametrize("how", ["missing", "damaged"])
async def test_a_chunk_that_is_gone_or_damaged_is_reported(tmp_path: Path, how: str) -> None:
    """Never other bytes than were kept."""
    store = MemoryStore()
    async with App(store) as app:
        handle = await app.start(carried, "bytes", 3_000_000, str(tmp_path), False, id="r")
        blob, _ = await handle.outcome()
        nodes = store._nodes["r"]
        address = max(nodes, key=lambda each: len(nodes[each]))
        nodes[address] = b"\0" + bytes(CHUNK_BYTES)
        if how == "missing":
            del nodes[address]

        with pytest.raises(BlobMissing, match=address.hex()):
            _ = [chunk async for chunk in app.chunks(blob)]


async def test_a_blob_is_refused_where_nothing_can_keep_it(tmp_path: Path) -> None:
    """Outside of a step, and of what is no bytes: said at once."""

    @outlive.step
    async def wrong() -> Blob:
        return await Blob.of(["text"])  # type: ignore[list-item]

    @outlive.flow
    async def misused() -> Blob:
        return await wrong()

    with pytest.raises(UsageError, match="inside the body of a step"):
        await Blob.of(b"x")
    async with App(MemoryStore()) as app:
        with pytest.raises(RunFailed, match="made of bytes, not of str"):
            await (await app.start(misused)).outcome()


@pytest.mark.timeout(1800)
def test_a_gigabyte_is_killed_resumed_and_never_in_memory(
    tmp_path: Path, full: bool, figure: Figure
) -> None:
    """Killed at chunks on its way in and out; below 100 MB resident; the same bytes in the end."""
    megabytes = 1024 if full else 48
    kills = (1, megabytes // 3, megabytes - 1, megabytes + 2, megabytes // 2)
    killed = [_play(tmp_path, megabytes, at) for at in kills]
    code, told = _play(tmp_path, megabytes, 0)

    assert [-9] * len(kills) == [each for each, _ in killed]
    assert 0 == code
    digest, resident = told.split()
    assert (tmp_path / "digest").read_text() == digest
    assert int(resident) < 100_000
    figure(f"blobs: kB resident with {megabytes} MB in and out", resident)


@pytest.mark.timeout(600)
def test_the_same_with_blobs_elsewhere(
    tmp_path: Path, full: bool, figure: Figure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal never names a chunk that is not in the other store by then."""
    megabytes = 256 if full else 16
    monkeypatch.setenv("OUTLIVE_BLOBS", f"sqlite:///{tmp_path}/chunks.db")
    kills = (1, megabytes // 3, megabytes - 1, megabytes + 2, megabytes // 2)
    killed = [_play(tmp_path, megabytes, at) for at in kills]
    code, told = _play(tmp_path, megabytes, 0)

    assert [-9] * len(kills) == [each for each, _ in killed]
    assert 0 == code
    digest, resident = told.split()
    assert (tmp_path / "digest").read_text() == digest
    assert (tmp_path / "o.db").stat().st_size < 1_000_000
    assert (tmp_path / "chunks.db").stat().st_size > megabytes * 1_000_000
    figure(f"blobs elsewhere: kB resident with {megabytes} MB in and out", resident)


def _play(folder: Path, megabytes: int, kill_at: int) -> tuple[int, str]:
    done = run_python("-m", "tests.values.blob_process", folder, megabytes, kill_at)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode, done.stdout
