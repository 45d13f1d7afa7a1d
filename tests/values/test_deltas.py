"""What is new in bytes that are much like others: little, wherever it is, and never torn."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.msgpack import Ext

from outlive.journal.codec.deltas import apply, difference
from outlive.journal.codec.scalars import pack
from outlive.journal.codec.values import REFERENCE

SEED = 20_270_102

Figure = Callable[[str, object], None]


def entry(rng: random.Random) -> bytes:
    """A message as it stands in a long list: some text, and a reference."""
    return rng.choice((b"role", b"user content ", b"")) + REFERENCE.head + rng.randbytes(16)


def changed(rng: random.Random, entries: list[bytes]) -> list[bytes]:
    """Up to four changes of all kinds."""
    now = list(entries)
    for _ in range(rng.randrange(5)):
        place = rng.randrange(len(now) + 1)
        match rng.randrange(6):
            case 0:
                now.append(entry(rng))
            case 1:
                now.insert(place, entry(rng))
            case 2:
                del now[place : place + rng.randrange(3)]
            case 3:
                now = now[rng.randrange(4) :]
            case 4 if place < len(now):
                torn = bytearray(now[place])
                torn[rng.randrange(len(torn))] ^= rng.choice((1, 128, 255))
                now[place] = bytes(torn)
            case _:
                rng.shuffle(now)
    return now


def test_what_is_taken_apart_is_put_together(full: bool, figure: Figure) -> None:
    """Whatever was changed; and every reference that is new stands whole in what is new."""
    count = 200_000 if full else 10_000
    rng, fresh = random.Random(SEED), 0
    for n in range(count):
        before = [entry(rng) for _ in range(rng.randrange(30))]
        now = changed(rng, before)
        old, new = b"".join(before), b"".join(now)
        delta = difference(old, new, REFERENCE)
        assert new == apply(old, delta, len(new)), (SEED, n)
        literals = [op for op in delta if isinstance(op, bytes)]
        for each in set(now) - set(before):
            fresh += 1
            reference = each[-REFERENCE.size :]
            is_there = reference in old or any(reference in literal for literal in literals)
            assert is_there or not reference.startswith(REFERENCE.head), (SEED, n)
    figure("deltas: put together again (new references found whole)", f"{count} ({fresh})")


@pytest.mark.parametrize("place", [0, 1, 250, 499, 500])
def test_an_insertion_costs_the_same_wherever_it_is(place: int) -> None:
    """What is new does not depend on its position, nor on what shifts behind it."""
    rng = random.Random(SEED)
    entries = [entry(rng) for _ in range(500)]
    old, new = b"".join(entries), b"".join([*entries[:place], entry(rng), *entries[place:]])

    delta = difference(old, new, REFERENCE)

    assert sum(len(op) for op in delta if isinstance(op, bytes)) < 80
    assert len(delta) <= 5


def test_a_window_costs_what_came_in() -> None:
    """The oldest go, new ones come."""
    rng = random.Random(SEED)
    entries = [entry(rng) for _ in range(60)]
    old, new = b"head" + b"".join(entries[:50]), b"head" + b"".join(entries[3:53])

    delta = difference(old, new, REFERENCE)

    assert new == apply(old, delta, 10_000)
    assert sum(len(op) for op in delta if isinstance(op, bytes)) < 3 * 40


@pytest.mark.parametrize(
    "delta", [[0, 5], [-1, 2], [0, -1], [1], ["x"], [0, "y"], [3, 2], [0.0, 1]]
)
def test_a_delta_that_does_not_fit_is_refused(delta: list[object]) -> None:
    """Never bytes that nobody wrote."""
    with pytest.raises(ValueError, match=r"piece|delta"):
        apply(b"old!", delta, 100)


def test_a_delta_can_not_grow_beyond_its_bound() -> None:
    """A few bytes that ask for many are refused."""
    with pytest.raises(ValueError, match="more than 100 bytes"):
        apply(b"x" * 60, [0, 60, 0, 60], 100)


@pytest.mark.parametrize("length", [5, 14, 15, 16, 40, 65_534, 65_535, 65_536])
def test_what_was_appended_is_seen_at_once(length: int) -> None:
    """However many bytes the count before it takes; a count that grows a byte is no obstacle."""
    items = [
        Ext(48, bytes((number % 256, number // 256 % 256)) * 8) for number in range(length + 2)
    ]
    for more in (0, 1, 2):
        old, new = pack(items[:length]), pack(items[: length + more])

        delta = difference(old, new, REFERENCE)

        assert new == apply(old, delta, 1 << 30)
        assert len(pack(delta)) < 64 + 19 * more


def test_a_change_at_the_end_is_no_append() -> None:
    """What was there must be there still, to the last byte."""
    items = [Ext(48, bytes((number,)) * 16) for number in range(40)]
    changed = [*items[:-1], Ext(48, b"other" * 3 + b"!"), items[0]]

    delta = difference(pack(items), pack(changed), REFERENCE)

    assert pack(changed) == apply(pack(items), delta, 1 << 30)
