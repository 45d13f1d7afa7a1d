"""Runs in files: whole journals with checksums, to be kept when the store forgets them.

    "OlAr" 1                                      the begin of a file
    length 8 | digest 16 | body                   per run; the body is msgpack of ``Archived``
    0 (8 bytes) | digest 16                       the end: what comes behind was never written

A digest is over the digest before it and the body, so no run can be cut out or moved. A file is
written aside, flushed, and only then given its name: there are no half files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from outlive.errors import CorruptArchive
from outlive.ports import Ports
from outlive.store import Head, Header, Node, Reading, StoredRecord

SUFFIX = ".outlive"
_BEGIN = b"OlAr\x01"
_FRAME = struct.Struct(">Q16s")


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """A journal as the store had it."""

    head: Head
    header: Header
    records: Sequence[StoredRecord]
    nodes: Sequence[Node] = ()

    def reading(self) -> Reading:
        """The same as it would be read from a store."""
        nodes = {node.address: node.body for node in self.nodes}
        return Reading(
            head=self.head, header=self.header, records=self.records, mail=(), nodes=nodes
        )


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Archived).decode


class Archive(Protocol):
    """Where runs are kept that are about to go."""

    async def keep(self, runs: Sequence[Archived]) -> None:
        """Durable when this returns; keeping the same run again is fine."""
        ...

    async def close(self) -> None:
        """Let go of what was opened."""
        ...


class FileArchive:
    """A folder with a file per batch, by day."""

    def __init__(self, folder: str | os.PathLike[str], ports: Ports) -> None:
        self._folder, self._ports = Path(folder), ports

    async def keep(self, runs: Sequence[Archived]) -> None:
        now = datetime.fromtimestamp(self._ports.clock.now_ms() / 1000, UTC)
        folder = self._folder / now.strftime("%Y-%m-%d")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{now:%H%M%S}-{self._ports.entropy(6).hex()}{SUFFIX}"
        write_archive(folder / name, runs)
        _flush_folder(self._folder)

    async def close(self) -> None:
        """Every file is closed when it is whole."""


def write_archive(path: Path, runs: Sequence[Archived]) -> None:
    """A whole file, or none."""
    aside = path.with_name(path.name + ".part")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(_BEGIN)
        digest = _digest(b"", _BEGIN)
        for run in runs:
            body = _encode(run)
            digest = _digest(digest, body)
            file.write(_FRAME.pack(len(body), digest) + body)
        file.write(_FRAME.pack(0, _digest(digest, b"")))
        file.flush()
        os.fsync(file.fileno())
    os.rename(aside, path)
    _flush_folder(path.parent)


def read_archive(path: str | os.PathLike[str]) -> Iterator[Archived]:
    """The runs of a file, each verified before it is given; their journals are not yet.

    Raises:
        CorruptArchive: the file is damaged, cut, or none of ours.
    """
    try:
        with open(path, "rb") as file:
            yield from _read(str(path), file)
    except OSError as error:
        raise CorruptArchive(str(path), error.strerror or str(error)) from error


def _read(name: str, file: BinaryIO) -> Iterator[Archived]:
    if file.read(len(_BEGIN)) != _BEGIN:
        raise CorruptArchive(name, "it does not begin as an archive does")
    digest, size = _digest(b"", _BEGIN), os.fstat(file.fileno()).st_size
    for number in range(1, size):
        frame = file.read(_FRAME.size)
        if len(frame) < _FRAME.size:
            raise CorruptArchive(name, f"it is cut at run {number}")
        length, found = _FRAME.unpack(frame)
        body = file.read(min(length, size))
        digest = _digest(digest, body)
        if digest != found or len(body) != length:
            raise CorruptArchive(name, f"run {number} is damaged")
        if not length:
            break
        try:
            run = _decode(body)
        except msgspec.MsgspecError as error:
            raise CorruptArchive(name, f"run {number} can't be read: {error}") from None
        yield run
    if file.read(1):
        raise CorruptArchive(name, "something follows its end")


def _digest(before: bytes, body: bytes) -> bytes:
    return blake2b(before + len(body).to_bytes(8) + body, digest_size=16).digest()


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
