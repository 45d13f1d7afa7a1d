"""Archive files: whole journals with checksums, kept after their deletion from the store.

    "OlAr" 1                                      the begin of a file
    "OlAr" 2 | a wrapped key, 64                  the begin of a sealed one: its bodies are sealed
    length 8 | digest 16 | body                   per run; the body is msgpack of ``Archived``
    0 (8 bytes) | digest 16                       the end: nothing may follow

A digest is over the digest before it and the body, so no run can be cut out or moved. A file is
written aside, flushed, and only then given its name: there are no half files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

import msgspec

from outlive.errors import CorruptArchive, RunIdTaken, UsageError, WrongKey
from outlive.journal.record import unpack_unlinked
from outlive.journal.seal.places import MASTER_ID_BYTES, WRAPPED_BYTES
from outlive.ports import Ports
from outlive.stores.seam import Store
from outlive.stores.types import Entry, Head, Header, Node, Reading, StoredRecord

if TYPE_CHECKING:  # cryptography need not be installed
    from outlive.journal.seal.rekey import ArchiveKeys, SealedCover

SUFFIX = ".outlive"
#: The suffix of a file that is being written, and the age from which a leftover is removed.
_PART = ".part"
PART_SECONDS_MAX = 3600.0
_BEGIN, _SEALED = b"OlAr\x01", b"OlAr\x02"
_NO_BEGIN = "it does not begin as an archive does"
_FRAME = struct.Struct(">Q16s")


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """A journal as the store had it."""

    head: Head
    header: Header
    records: Sequence[StoredRecord]
    nodes: Sequence[Node] = ()

    def reading(self) -> Reading:
        """The journal as a reading."""
        nodes = {node.address: node.body for node in self.nodes}
        return Reading(
            head=self.head, header=self.header, records=self.records, mail=(), nodes=nodes
        )


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Archived).decode


class Archive(Protocol):
    """A place where runs are kept before they are deleted."""

    async def keep(self, runs: Sequence[Archived]) -> None:
        """Archive runs; durable when this returns. Archiving a run again is fine."""
        ...

    async def close(self) -> None:
        """Close what was opened."""
        ...


class FileArchive:
    """A folder with a file per batch, by day."""

    def __init__(
        self, folder: str | os.PathLike[str], ports: Ports, keys: ArchiveKeys | None = None
    ) -> None:
        self._folder, self._ports, self._keys = Path(folder), ports, keys
        self._is_clear = False

    async def keep(self, runs: Sequence[Archived]) -> None:
        now = datetime.fromtimestamp(self._ports.clock.now_ms() / 1000, UTC)
        folder = self._folder / now.strftime("%Y-%m-%d")
        _make_private(folder)
        if not self._is_clear:
            self._is_clear = True
            self._clear(now.timestamp())
        name = f"{now:%H%M%S}-{self._ports.entropy(6).hex()}{SUFFIX}"
        write_archive(folder / name, runs, self._keys)
        _flush_folder(self._folder)

    def _clear(self, now: float) -> None:
        """Remove files left by processes that were killed while they wrote."""
        for aside in self._folder.glob(f"*/*{_PART}"):
            with suppress(FileNotFoundError):
                if aside.stat().st_mtime < now - PART_SECONDS_MAX:
                    aside.unlink()

    async def close(self) -> None:
        """Do nothing: every file is closed once it is complete."""


def write_archive(path: Path, runs: Sequence[Archived], keys: ArchiveKeys | None = None) -> None:
    """Write a complete file, or none."""
    aside = path.with_name(path.name + _PART)
    cover = None if keys is None else keys.new()
    begin = _BEGIN if cover is None else _SEALED + cover.wrapped
    try:
        _write(aside, runs, begin, cover)
        os.rename(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def _write(aside: Path, runs: Sequence[Archived], begin: bytes, cover: SealedCover | None) -> None:
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(begin)
        digest = _digest(b"", begin)
        for number, run in enumerate(runs, 1):
            body = _encode(run) if cover is None else cover.close(_encode(run), number)
            digest = _digest(digest, body)
            file.write(_FRAME.pack(len(body), digest) + body)
        file.write(_FRAME.pack(0, _digest(digest, b"")))
        file.flush()
        os.fsync(file.fileno())


def _make_private(folder: Path) -> None:
    """Create a folder, and its missing parents, for their owner alone."""
    if not folder.is_dir():
        _make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def read_archive(
    path: str | os.PathLike[str], keys: ArchiveKeys | None = None
) -> Iterator[Archived]:
    """Read the runs of a file, each verified; their journals are not verified yet.

    Raises:
        CorruptArchive: the file is damaged, cut, or not an archive.
        WrongKey: it is sealed, and with another key than given.
    """
    try:
        with open(path, "rb") as file:
            yield from _read(str(path), file, keys)
    except OSError as error:
        raise CorruptArchive(str(path), error.strerror or str(error)) from error


def check_archive(path: str | os.PathLike[str]) -> None:
    """Raise ``CorruptArchive`` if the file is missing, can't be read or is not an archive."""
    try:
        with open(path, "rb") as file:
            if file.read(len(_BEGIN)) not in (_BEGIN, _SEALED):
                raise CorruptArchive(str(path), _NO_BEGIN)
    except OSError as error:
        raise CorruptArchive(str(path), error.strerror or str(error)) from error


class _Begin(NamedTuple):
    body: bytes
    cover: SealedCover | None


def _read_begin(name: str, file: BinaryIO, keys: ArchiveKeys | None) -> _Begin:
    begin = file.read(len(_BEGIN))
    if begin == _BEGIN:
        return _Begin(begin, None)
    if begin != _SEALED:
        raise CorruptArchive(name, _NO_BEGIN)
    wrapped = file.read(WRAPPED_BYTES)
    if keys is None:
        raise WrongKey(f"archive {name}", [wrapped[:MASTER_ID_BYTES].hex()])
    return _Begin(begin + wrapped, keys.find(wrapped, f"archive {name}"))


def _read(name: str, file: BinaryIO, keys: ArchiveKeys | None) -> Iterator[Archived]:
    begin, cover = _read_begin(name, file, keys)
    digest, size = _digest(b"", begin), os.fstat(file.fileno()).st_size
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
        if cover is not None:
            body = cover.open(body, number) or b""
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


#: The number of records in one commit.
RECORDS_AT_ONCE = 500
_COPIER = "copied"


class StoreArchive:
    """Another store as the archive."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def keep(self, runs: Sequence[Archived]) -> None:
        for run in runs:
            await copy_run(self._store, run)

    async def close(self) -> None:
        await self._store.close()


async def copy_run(store: Store, run: Archived) -> bool:
    """Copy an ended run into a store; False: it is there already.

    Raises:
        RunIdTaken: another run has its id there, or had it not long ago.
        UsageError: its first records are deleted, so it can't be copied.
    """
    run_id = run.head.run_id
    if not run.records or run.records[0].seq != 1:
        raise UsageError(f"run {run_id} begins with a later chapter; it can't be copied")
    there = await store.read(run_id, 1 << 62)
    after = 0 if there is None else there.head.seq
    entries = [entry for entry in _entries(run) if entry.after >= after]
    for begin in range(0, len(entries), RECORDS_AT_ONCE):
        for conflict in await store.commit(entries[begin : begin + RECORDS_AT_ONCE]):
            if conflict is not None:
                why = "it belonged to a run that was deleted not long ago"
                raise RunIdTaken(run_id, why if conflict.gone else "it is another run")
    found = await store.read(run_id, 1 << 62)
    if found is None or (found.head.seq, found.head.link) != (run.head.seq, run.head.link):
        raise RunIdTaken(run_id, "it is another run")
    return bool(entries)


def _entries(run: Archived) -> Iterator[Entry]:
    run_id, epoch = run.head.run_id, 0
    ends = [record.seq - 1 for record in run.records[1:]] + [run.head.seq]
    for record, last in zip(run.records, ends, strict=True):
        envelope = unpack_unlinked(run_id, record.body, record.seq)
        takes, epoch = envelope.epoch > epoch, envelope.epoch
        is_edge = record.seq == 1 or last == run.head.seq
        yield Entry(
            run_id=run_id,
            after=record.seq - 1,
            last=last,
            epoch=epoch,
            record=record.body,
            link=envelope.link,
            # It has ended from the first record on: nobody drives it.
            header=run.header if is_edge else None,
            lease="take" if takes else "keep",
            worker=_COPIER if takes else None,
            nodes=tuple(run.nodes) if record.seq == 1 else (),
        )
