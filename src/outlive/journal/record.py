"""A record: all events of one run in one commit, as bytes that know their place.

    "Ol" format flags codec kinds | epoch 4 | seq 6     the header, 16 bytes
    digest of the body 16 | link 16                     48 bytes in all
    body

The link is a hash over the previous record's link, the header, the digest and the run: checksum,
chain and place in one. Nothing that a record says of itself is believed before its link holds.
Digest and link are apart so that a body can be taken out of a chain that stays whole.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

import msgspec

from outlive.errors import CorruptRecord, Erased, ValueRefused, WrongVersion
from outlive.stores.types import RECORD_BYTES_MAX, StoredRecord

#: The newest record format that this release reads, and the one that it writes.
FORMAT = 1
#: What stands for the previous link in a journal's first record.
LINK_START = bytes(16)

CODEC = 1
SEALED = 1
COMPRESSED = 2
#: Some values of the record have parts that are nodes.
PARTED = 4
_READ = PARTED
#: Never stored: set on what was read and did not open, or lost its key.
BROKEN = 128
ERASED = 64

_MAGIC = b"Ol"
_HEADER = struct.Struct(">2sBBBBIHI")
_PLACE = struct.Struct(">6xIHI")
_LOW = 0xFFFF_FFFF
_DIGEST_END = _HEADER.size + 16
ENVELOPE_BYTES = _DIGEST_END + 16
_OWN = _MAGIC + bytes((FORMAT, 0, CODEC))
_PARTED_FLAGS = frozenset(bytes((flags,)) for flags in range(256) if flags & PARTED)
#: How a sealed record begins, and what stands for one that does not open or never will.
SEALED_BEGIN = _MAGIC + bytes((FORMAT, SEALED, CODEC))
SEAL_BROKEN = _MAGIC + bytes((FORMAT, SEALED | BROKEN, CODEC))
SEAL_ERASED = _MAGIC + bytes((FORMAT, SEALED | ERASED, CODEC))
BODY_BYTES_MAX = RECORD_BYTES_MAX - ENVELOPE_BYTES


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """A record that was found whole and in its place."""

    format: int
    flags: int
    codec: int
    kinds: int
    epoch: int
    seq: int
    digest: bytes
    link: bytes
    body: bytes


def pack(  # noqa: PLR0913 - a header has that many fields
    run_id: str, *, prev: bytes, epoch: int, seq: int, kinds: int, body: bytes, flags: int = 0
) -> tuple[bytes, bytes]:
    """The record that follows the one with link ``prev``, and its own link.

    Raises:
        ValueRefused: the body is larger than a store takes.
    """
    if len(body) > BODY_BYTES_MAX:
        raise ValueRefused(f"a record of {len(body)} bytes is over the {BODY_BYTES_MAX} allowed")
    header = _HEADER.pack(_MAGIC, FORMAT, flags, CODEC, kinds, epoch, seq >> 32, seq & _LOW)
    placed = header + blake2b(body, digest_size=16).digest()
    link = blake2b(prev + placed + run_id.encode(), digest_size=16).digest()
    return placed + link + body, link


def unpack(run_id: str, prev: bytes, record: bytes, expected_seq: int) -> Envelope:
    """Open the record that must follow link ``prev`` and begin at ``expected_seq``.

    Raises:
        CorruptRecord: it is damaged, cut, of another run or at another place.
        WrongVersion: it is whole, but a later release wrote it.
    """
    _check_open(run_id, record, expected_seq)
    placed = record[:_DIGEST_END]
    link = record[_DIGEST_END:ENVELOPE_BYTES]
    if len(link) < 16:
        raise CorruptRecord(run_id, expected_seq, f"cut after {len(record)} bytes")
    if link != blake2b(prev + placed + run_id.encode(), digest_size=16).digest():
        raise CorruptRecord(run_id, expected_seq, "its link does not follow: damaged or misplaced")
    return unpack_unlinked(run_id, record, expected_seq)


def is_parted(record: StoredRecord) -> bool:
    """Whether a record says that its values have parts; it is not verified yet."""
    body = record.body
    return type(body) is bytes and body[3:4] in _PARTED_FLAGS


def open_record(
    run: bytes, prev: bytes, record: bytes, expected_seq: int
) -> tuple[int, bytes, bytes] | None:
    """The same at less cost: epoch, link and body; None: let ``unpack`` say what is wrong."""
    placed, link = record[:_DIGEST_END], record[_DIGEST_END:ENVELOPE_BYTES]
    if len(link) < 16 or link != blake2b(prev + placed + run, digest_size=16).digest():
        return None
    body = record[ENVELOPE_BYTES:]
    epoch, high, low = _PLACE.unpack_from(placed)
    is_in_place = high << 32 | low == expected_seq and placed.startswith(_OWN)
    digest = blake2b(body, digest_size=16).digest()
    return (epoch, link, body) if is_in_place and placed.endswith(digest) else None


def unpack_unlinked(run_id: str, record: bytes, expected_seq: int) -> Envelope:
    """The same for a record of at least an envelope's size, taking its link on trust.

    For those who look for damage behind damage, where no link can be followed; nobody else.
    """
    _check_open(run_id, record, expected_seq)
    placed = record[:_DIGEST_END]
    link = record[_DIGEST_END:ENVELOPE_BYTES]
    magic, fmt, flags, codec, kinds, epoch, high, low = _HEADER.unpack_from(placed)
    seq = high << 32 | low
    body = record[ENVELOPE_BYTES:]
    digest = placed[_HEADER.size :]
    if seq != expected_seq:
        raise CorruptRecord(run_id, expected_seq, f"found seq {seq} in its place")
    if blake2b(body, digest_size=16).digest() != digest:
        raise CorruptRecord(run_id, expected_seq, "its body does not match its digest")
    if magic != _MAGIC or fmt != FORMAT or flags & ~_READ or codec != CODEC:
        raise _foreign(run_id, record)
    return Envelope(fmt, flags, codec, kinds, epoch, seq, digest, link, body)


def _check_open(run_id: str, record: bytes, expected_seq: int) -> None:
    if record == SEAL_ERASED:
        raise Erased(run_id)
    if record == SEAL_BROKEN:
        raise CorruptRecord(
            run_id, expected_seq, "its seal does not hold: damaged, moved, forged or not sealed"
        )


def _foreign(run_id: str, record: bytes) -> WrongVersion | CorruptRecord:
    magic, fmt, flags, codec, _, _, high, low = _HEADER.unpack_from(record)
    seq = high << 32 | low
    if magic != _MAGIC or fmt < 1:
        return CorruptRecord(run_id, seq, f"not a record: it begins with {magic!r}, format {fmt}")
    has = f"record format {fmt}, codec {codec}, {_render_flags(flags)}"
    return WrongVersion(
        f"run {run_id}, seq {seq}: written with {has}; this release reads record format {FORMAT}, "
        f"codec {CODEC}, not sealed: use the release that wrote it, or a later one"
    )


def _render_flags(flags: int) -> str:
    known = {SEALED: "sealed", COMPRESSED: "compressed", PARTED: "with values in parts"}
    names = [name for bit, name in known.items() if flags & bit]
    unknown = flags & ~(SEALED | COMPRESSED | PARTED)
    if unknown:
        names.append(f"unknown flags {unknown:#04x}")
    return " and ".join(names) or "no flags"
