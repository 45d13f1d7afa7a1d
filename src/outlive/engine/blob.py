"""Large payloads as streams: a blob is kept chunk by chunk, and a value names it.

A chunk is a node like any other, put into the store before the value that names it is recorded.
Behind them goes a list of their addresses, and its address is all that a ``Blob`` holds: who has
it can check every byte. Never more than a chunk or two is in memory. An attempt that was killed
half-way puts its chunks again, which changes nothing where they are there already.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, TypeAlias, cast

from outlive.engine.place import Body, place
from outlive.errors import BlobMissing, UsageError
from outlive.journal.codec.parts import ADDRESS_BYTES
from outlive.journal.codec.values import Damaged, node_of, payload_of
from outlive.stores.types import Node

CHUNK_BYTES: Final = 1024 * 1024
#: 64 GiB; the list of its addresses is a single node.
CHUNKS_MAX: Final = 65_536

Source: TypeAlias = (
    "bytes | str | os.PathLike[str] | BinaryIO | Iterable[bytes] | AsyncIterable[bytes]"
)


class Shelf(Protocol):
    """Where the blobs of a family are kept; the plain verbs are for threads without a loop."""

    family: str

    async def put(self, node: Node) -> None:
        """Durable when this returns."""
        ...

    async def get(self, family: str, address: bytes) -> bytes | None:
        """A node's bytes."""
        ...

    def put_plain(self, node: Node) -> None:
        """The same, from a thread."""
        ...

    def get_plain(self, family: str, address: bytes) -> bytes | None:
        """The same, from a thread."""
        ...


@dataclass(frozen=True, slots=True)
class Blob:
    """A large payload that is kept in the store, by its name: size and hash.

    Made inside a step or effect and returned from it, passed on like any value, and read where it
    is needed, as a stream. It belongs to the family of the run that made it, and goes with it.
    """

    family: str
    size: int
    #: The hash of its chunks' hashes.
    address: bytes

    @staticmethod
    async def of(source: Source) -> Blob:
        """Keep what a file, a path, bytes or an iterator of bytes holds. In a step's body.

        A file is read from where it stands.
        """
        shelf, chunks = _shelf(), _Chunks()
        async for piece in _pieces(source):
            for payload in chunks.cut(piece):
                await shelf.put(chunks.add(payload))
        for node in chunks.end():
            await shelf.put(node)
        return Blob(shelf.family, chunks.size, chunks.address)

    @staticmethod
    def of_plain(source: Source) -> Blob:
        """The same in the body of a plain (``def``) step."""
        shelf, chunks = _shelf(), _Chunks()
        for piece in _pieces_plain(source):
            for payload in chunks.cut(piece):
                shelf.put_plain(chunks.add(payload))
        for node in chunks.end():
            shelf.put_plain(node)
        return Blob(shelf.family, chunks.size, chunks.address)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Its bytes, a chunk at a time, each verified. In a step's body."""
        shelf = _shelf()
        async for chunk in read_chunks(shelf, self):
            yield chunk

    def chunks_plain(self) -> Iterator[bytes]:
        """The same in the body of a plain (``def``) step."""
        shelf = _shelf()
        for address in _addresses(self, shelf.get_plain(self.family, self.address)):
            yield _opened(self, address, shelf.get_plain(self.family, address))

    async def save(self, path: str | os.PathLike[str]) -> None:
        """Write it into a file: the whole of it, or none."""
        aside = Path(f"{os.fspath(path)}.part")
        with await asyncio.to_thread(aside.open, "wb") as file:
            async for chunk in self.chunks():
                await asyncio.to_thread(file.write, chunk)
        await asyncio.to_thread(aside.replace, path)

    def save_plain(self, path: str | os.PathLike[str]) -> None:
        """The same in the body of a plain (``def``) step."""
        aside = Path(f"{os.fspath(path)}.part")
        with aside.open("wb") as file:
            file.writelines(self.chunks_plain())
        aside.replace(path)


async def read_chunks(shelf: Shelf, blob: Blob) -> AsyncIterator[bytes]:
    """A blob's bytes, a chunk at a time.

    Raises:
        BlobMissing: a chunk is not there, or is not what it was.
    """
    for address in _addresses(blob, await shelf.get(blob.family, blob.address)):
        yield _opened(blob, address, await shelf.get(blob.family, address))


class _Chunks:
    """Cuts what comes in, and notes the addresses."""

    def __init__(self) -> None:
        self._addresses: list[bytes] = []
        self._rest = bytearray()
        self.size = 0
        self.address = b""

    def cut(self, piece: bytes) -> Iterator[bytes]:
        """Whole chunks of what came so far."""
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise UsageError(f"a blob is made of bytes, not of {type(piece).__name__}")
        self._rest += piece
        while len(self._rest) >= CHUNK_BYTES:
            payload = bytes(self._rest[:CHUNK_BYTES])
            del self._rest[:CHUNK_BYTES]
            yield payload

    def add(self, payload: bytes) -> Node:
        """A chunk as it is kept."""
        if len(self._addresses) >= CHUNKS_MAX:
            raise UsageError(f"a blob has at most {CHUNKS_MAX * CHUNK_BYTES:,} bytes")
        node = node_of(payload)
        self._addresses.append(node.address)
        self.size += len(payload)
        return node

    def end(self) -> Iterator[Node]:
        """The last chunk, and the list."""
        if self._rest:
            yield self.add(bytes(self._rest))
        listed = node_of(self.size.to_bytes(8) + b"".join(self._addresses))
        self.address = listed.address
        yield listed


def _shelf() -> Shelf:
    here = place.get()
    if type(here) is not Body or here.shelf is None:
        raise UsageError(
            "a blob is made and read inside the body of a step or effect; elsewhere use "
            "`async for chunk in app.chunks(blob)`"
        )
    return cast("Shelf", here.shelf())


def _addresses(blob: Blob, body: bytes | None) -> Sequence[bytes]:
    listed = _opened(blob, blob.address, body)
    if int.from_bytes(listed[:8]) != blob.size:
        raise _missing(blob, f"it has another size than {blob.size}")
    return [listed[at : at + ADDRESS_BYTES] for at in range(8, len(listed), ADDRESS_BYTES)]


def _opened(blob: Blob, address: bytes, body: bytes | None) -> bytes:
    if body is None:
        raise _missing(blob, f"chunk {address.hex()} is not there")
    try:
        return payload_of(address, body)
    except Damaged as damaged:
        raise _missing(blob, f"chunk {address.hex()} is damaged: {damaged}") from None


def _missing(blob: Blob, why: str) -> BlobMissing:
    return BlobMissing(f"blob {blob.address.hex()} of family {blob.family}: {why}")


async def _pieces(source: Any) -> AsyncIterator[bytes]:
    if isinstance(source, AsyncIterable):
        async for piece in source:
            yield piece
        return
    pieces = _pieces_plain(source)
    get: Callable[[], bytes | None] = partial(next, pieces, None)
    while (piece := await asyncio.to_thread(get)) is not None:
        yield piece


def _pieces_plain(source: Any) -> Iterator[bytes]:
    if isinstance(source, bytes | bytearray | memoryview):
        view = memoryview(source)
        yield from (bytes(view[at : at + CHUNK_BYTES]) for at in range(0, len(view), CHUNK_BYTES))
    elif isinstance(source, str | os.PathLike):
        with open(source, "rb") as file:
            yield from iter(partial(file.read, CHUNK_BYTES), b"")
    elif hasattr(source, "read"):
        yield from iter(partial(source.read, CHUNK_BYTES), b"")
    elif isinstance(source, Iterable):
        yield from source
    else:
        raise UsageError(
            f"a blob is made of a file, a path, bytes or an iterator of bytes, not of {source!r}"
        )
