"""A record that was damaged, moved, cut or lent to another run is never taken for a whole one."""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import pytest

from outlive.errors import CorruptRecord, ValueRefused, WrongVersion
from outlive.journal import record
from outlive.journal.record import FORMAT, LINK_START, Envelope, pack, unpack

RUN = "ticket-1"
SIZES = (0, 1, 17, 200, 1500)
GOLDEN = (
    "4f6c010001210000000700000000002a"
    "46fb7408d4f285228f4af516ea25851b"
    "5a73173ddfe6045345020ec784ed2080"
    "68656c6c6f"
)


def one(size: int = 200, run: str = RUN) -> tuple[bytes, bytes]:
    return pack(
        run, prev=LINK_START, epoch=3, seq=1, kinds=5, body=bytes(i % 251 for i in range(size))
    )


class Journal:
    """A chain of records as a store would keep it, and its head."""

    def __init__(self, run: str, count: int) -> None:
        self.run = run
        self.records: list[tuple[int, bytes]] = []
        self.link, self.last = LINK_START, 0
        for n in range(count):
            events = n % 3 + 1
            body = f"{run} {n}".encode() * (n + 1)
            whole, self.link = pack(
                run, prev=self.link, epoch=1, seq=self.last + 1, kinds=n, body=body
            )
            self.records.append((events, whole))
            self.last += events


def verify(journal: Journal, records: list[tuple[int, bytes]]) -> None:
    """Read a chain against the head, as a reader does."""
    link, seq = LINK_START, 0
    for events, whole in records:
        link = unpack(journal.run, link, whole, seq + 1).link
        seq += events
    if (seq, link) != (journal.last, journal.link):
        raise CorruptRecord(journal.run, seq + 1, "the journal ends before its head")


def caught(attempt: Callable[[], object], run: str = RUN) -> bool:
    """True if it was refused as corrupt, naming the run and a seq."""
    try:
        attempt()
    except CorruptRecord as error:
        return error.run_id == run and error.seq >= 1 and run in str(error)
    return False


def forge(**changes: Any) -> bytes:
    """A record whose digest and link hold, whatever its header says."""
    body = b"body"
    fields = {"magic": b"Ol", "format": 1, "flags": 0, "codec": 1, "kinds": 0}
    fields |= {"epoch": 1, "high": 0, "seq": 1, **changes}
    placed = struct.pack(">2sBBBBIHI", *fields.values()) + blake2b(body, digest_size=16).digest()
    link = blake2b(LINK_START + placed + RUN.encode(), digest_size=16).digest()
    return placed + link + body


@pytest.mark.parametrize("size", SIZES)
def test_a_record_comes_back(size: int) -> None:
    """What was packed is what is unpacked, with its link."""
    whole, link = one(size)

    envelope = unpack(RUN, LINK_START, whole, 1)

    assert 48 + size == len(whole)
    assert isinstance(envelope, Envelope)
    assert (FORMAT, 0, 1, 5, 3, 1) == (
        envelope.format, envelope.flags, envelope.codec, envelope.kinds,
        envelope.epoch, envelope.seq,
    )  # fmt: skip
    assert (link, bytes(i % 251 for i in range(size))) == (envelope.link, envelope.body)


def test_the_format_is_final() -> None:
    """A record written today has the bytes that every release writes for it."""
    whole, link = pack("run-é", prev=bytes(range(16)), epoch=7, seq=42, kinds=0x21, body=b"hello")

    assert GOLDEN == whole.hex()
    assert GOLDEN[64:96] == link.hex()


def test_every_flipped_bit_is_caught(figure: Callable[[str, object], None]) -> None:
    """A record with any one bit changed is refused."""
    found = bits = 0
    for whole, _ in map(one, SIZES):
        bits += len(whole) * 8
        for bit in range(len(whole) * 8):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            found += caught(lambda damaged=bytes(damaged): unpack(RUN, LINK_START, damaged, 1))

    figure("values: flipped bits of records caught", f"{found} of {bits}")
    assert bits == found


def test_every_cut_and_every_addition_is_caught(figure: Callable[[str, object], None]) -> None:
    """A record that lost its end, its beginning, or got bytes added is refused."""
    damaged = []
    for whole, _ in map(one, SIZES):
        damaged += [whole[:n] for n in range(len(whole))]
        damaged += [whole[n:] for n in range(1, len(whole))]
        damaged += [whole + b"\0", b"\0" + whole, whole + whole, whole[:48] + b"x" + whole[48:]]

    found = sum(caught(lambda d=d: unpack(RUN, LINK_START, d, 1)) for d in damaged)

    figure("values: cuts of and additions to records caught", f"{found} of {len(damaged)}")
    assert len(damaged) == found


def rearrangements(journal: Journal, other: Journal) -> list[list[tuple[int, bytes]]]:
    """Every swap, deletion, duplicate, rotation, tail cut and record of another run."""
    whole = journal.records
    count = len(whole)
    found = []
    for i in range(count):
        for j in range(i + 1, count):
            swapped = list(whole)
            swapped[i], swapped[j] = swapped[j], swapped[i]
            found.append(swapped)
    found += [whole[:i] + whole[i + 1 :] for i in range(count)]
    found += [whole[: i + 1] + whole[i:] for i in range(count)]
    found += [whole[i:] + whole[:i] for i in range(1, count)]
    found += [whole[:i] for i in range(count)]
    found += [[*whole[:i], other.records[i], *whole[i + 1 :]] for i in range(count)]
    found += [whole[::-1], other.records, [*whole, other.records[-1]]]
    return found


def test_every_rearrangement_is_caught(figure: Callable[[str, object], None]) -> None:
    """Records swapped, deleted, doubled, reordered, cut off or lent by another run are noticed."""
    journal, other = Journal(RUN, 24), Journal("ticket-2", 24)
    verify(journal, journal.records)
    verify(other, other.records)

    damaged = rearrangements(journal, other)
    found = sum(caught(lambda d=d: verify(journal, d)) for d in damaged)

    figure("values: rearrangements of records caught", f"{found} of {len(damaged)}")
    assert len(damaged) == found


def test_damage_is_named_where_it_is() -> None:
    """The seq in the error is that of the record which is damaged."""
    journal = Journal(RUN, 10)
    events, whole = journal.records[4]
    damaged = [*journal.records[:4], (events, whole[:-1] + b"\0"), *journal.records[5:]]

    with pytest.raises(CorruptRecord) as refused:
        verify(journal, damaged)

    assert 1 + sum(events for events, _ in journal.records[:4]) == refused.value.seq


def test_a_record_of_another_run_is_refused() -> None:
    """A record says to which run it belongs, without holding its id."""
    whole, _ = one(run="ticket-10")

    for run in ("ticket-1", "ticket-", "", "ticket-100", "Ticket-10"):
        assert caught(lambda run=run: unpack(run, LINK_START, whole, 1), run)


def test_a_record_after_another_link_is_refused() -> None:
    """The first record is the first, and no other."""
    whole, link = one()

    assert caught(lambda: unpack(RUN, link, whole, 1))
    assert caught(lambda: unpack(RUN, LINK_START, whole, 2))


@pytest.mark.parametrize(
    ("forged", "named"),
    [
        (forge(format=2), "record format 2"),
        (forge(format=255), "record format 255"),
        (forge(codec=2), "codec 2"),
        (forge(codec=0), "codec 0"),
        (forge(flags=1), "sealed"),
        (forge(flags=2), "compressed"),
        (forge(flags=3), "sealed and compressed"),
        (forge(flags=0x84), "unknown flags 0x80"),
    ],
)
def test_a_record_of_a_later_release_is_named(forged: bytes, named: str) -> None:
    """A whole record that this release can't read is an error that names both versions."""
    with pytest.raises(WrongVersion) as refused:
        unpack(RUN, LINK_START, forged, 1)

    assert named in str(refused.value)
    assert "reads record format 1" in str(refused.value)


def test_a_damaged_record_of_a_later_release_is_damaged() -> None:
    """No flag and no format is believed before the link holds."""
    for forged in (forge(format=2), forge(flags=1), forge(flags=2), forge(codec=9)):
        for bit in range(len(forged) * 8):
            damaged = bytearray(forged)
            damaged[bit // 8] ^= 1 << bit % 8
            assert caught(lambda damaged=bytes(damaged): unpack(RUN, LINK_START, damaged, 1))


@pytest.mark.parametrize(
    "forged", [forge(magic=b"No"), forge(format=0), forge(seq=2), forge(high=1)]
)
def test_what_was_never_a_record_is_damage(forged: bytes) -> None:
    """A right link does not make a record of something else."""
    assert caught(lambda: unpack(RUN, LINK_START, forged, 1))


def test_a_body_that_no_store_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of the seam is met before anything is hashed."""
    monkeypatch.setattr(record, "BODY_BYTES_MAX", 100)

    with pytest.raises(ValueRefused, match="101 bytes is over the 100"):
        one(101)

    one(100)
