"""Deltas: bytes as pieces of similar earlier bytes, and the rest as it is.

Long values of a run mostly differ a little from what they were a step ago: something was appended,
one place was changed, the oldest part was dropped. ``difference`` finds the pieces that both have
by comparing from both ends and by looking for what comes next, at the speed of C; ``apply`` puts
them together. A delta is a flat list: (begin, length) of a piece of the old bytes, or new bytes.

Some bytes mean something only together (a reference): new ones are never torn, so that whoever
reads a delta alone finds all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

Delta: TypeAlias = list[int | bytes]
#: The start of a piece in the old bytes, its start in the new ones, and its end there.
_Piece: TypeAlias = tuple[int, int, int]

#: The number of next bytes that are searched for in the old bytes.
_PROBE: Final = 24
#: Looks in vain before the rest counts as new, and bytes that they may search in all.
_MISSES_MAX: Final = 64
_SEARCHED_MAX: Final = 8 * 1024 * 1024
#: The distance from the expected place that is searched first.
_NEAR: Final = 256
#: So many bytes are compared as numbers, to tell where they differ.
_BLOCK: Final = 128
#: A piece that is shorter is cheaper as it is.
_PIECE_MIN: Final = 8
#: The bytes that msgpack needs for the length of a list or dict.
_COUNTS: Final = (3, 1, 5)


@dataclass(frozen=True, slots=True)
class Atom:
    """Bytes that are not torn: what they begin with, and how many they are."""

    head: bytes
    size: int

    def begin(self, data: bytes, at: int) -> int:
        """The start of the first element that continues at this place; else the place itself."""
        found = data.find(self.head, max(0, at - self.size + 1), at + len(self.head) - 1)
        return at if found < 0 else min(at, found)

    def end(self, data: bytes, at: int) -> int:
        """The end of the last element that continues at this place; else the place itself."""
        found = data.rfind(self.head, max(0, at - self.size + 1), at + len(self.head) - 1)
        return at if found < 0 else max(at, min(len(data), found + self.size))


def difference(old: bytes, new: bytes, atom: Atom) -> Delta:
    """Compute the pieces of ``old`` that make up ``new``."""
    delta: Delta = []
    at = 0
    for source, begin, end in _untorn(_pieces(old, new), new, atom):
        if begin > at:
            delta.append(new[at:begin])
        delta += (source, end - begin)
        at = end
    if at < len(new):
        delta.append(new[at:])
    return delta


def apply(old: bytes, delta: list[Any], size_max: int) -> bytes:
    """The new bytes.

    Raises:
        ValueError: the delta does not fit the old bytes, or makes more than ``size_max``.
    """
    pieces: list[bytes] = []
    room = size_max
    ops = iter(delta)
    for op in ops:
        if type(op) is bytes:
            piece = op
        else:
            length = next(ops, None)
            if type(op) is not int or type(length) is not int or op < 0 or length < 0:
                raise ValueError("a delta of other things than pieces")
            piece = old[op : op + length]
            if len(piece) != length:
                raise ValueError("a piece of more than there is")
        room -= len(piece)
        if room < 0:
            raise ValueError(f"more than {size_max} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _untorn(pieces: list[_Piece], new: bytes, atom: Atom) -> list[_Piece]:
    """The pieces without their ends where these belong to an atom that is new."""
    trimmed: list[_Piece] = []
    last = len(pieces) - 1
    at = 0
    for number, (source, begin, end) in enumerate(pieces):
        first = atom.end(new, begin) if begin > at else begin
        at = end
        is_followed = end < (pieces[number + 1][1] if number < last else len(new))
        until = atom.begin(new, end) if is_followed else end
        if until > first:
            trimmed.append((source + first - begin, first, until))
    return trimmed


def _pieces(old: bytes, new: bytes) -> list[_Piece]:
    for count in _COUNTS:
        # Something was appended, and nothing else: mostly so, and seen at once.
        if len(old) > count + _PIECE_MIN and new.startswith(old[count:], count):
            return [(count, count, len(old))]
    shorter = min(len(old), len(new))
    head = _common_prefix(old, new, shorter)
    tail = _common_suffix(old, new, shorter - head)
    begin, end = (head if head >= _PIECE_MIN else 0), len(new) - (tail if tail >= _PIECE_MIN else 0)
    pieces = [(0, 0, begin)] if begin else []
    pieces += _found(old, new, begin, end)
    if end < len(new):
        pieces.append((len(old) - len(new) + end, end, len(new)))
    return pieces


def _found(old: bytes, new: bytes, at: int, end: int) -> list[_Piece]:
    """Greedily: what is found in the old bytes goes as far as both agree, to both sides."""
    pieces: list[_Piece] = []
    begin, misses, shift, middle = at, 0, 0, new[:end]
    misses_max = min(_MISSES_MAX, 1 + _SEARCHED_MAX // (len(old) + 1))
    while at + _PROBE <= end and misses < misses_max:
        at, found = _look(old, middle, at, max(0, at + shift))
        if found < 0:
            misses += 1
            at += _PROBE * misses
            continue
        back = _common_suffix(old[:found], middle[begin:at], min(found, at - begin))
        at, found = at - back, found - back
        length = _common_prefix(old[found:], middle[at:], min(len(old) - found, end - at))
        pieces.append((found, at, at + length))
        begin = at = at + length
        misses, shift = 0, found + length - at
    return pieces


def _look(old: bytes, new: bytes, at: int, expected: int) -> tuple[int, int]:
    """Find new bytes in the old ones, from here on or a little further; -1: not found.

    Mostly a little was changed, and what follows is about where it is expected: whoever looks
    there first need not go through all of the old bytes.
    """
    for ahead in (0, _PROBE):
        probe = new[at + ahead : at + ahead + _PROBE]
        if len(probe) == _PROBE:
            found = old.find(probe, expected, expected + _NEAR)
            if found >= 0:
                return at + ahead, found
    return at, old.find(new[at : at + _PROBE])


def _common_prefix(one: bytes, other: bytes, most: int) -> int:
    """The length of the common beginning, up to a limit."""
    low, step = 0, _BLOCK
    while low + step <= most and one.startswith(other[low : low + step], low):
        low += step
        step *= 2
    high = min(most, low + step)
    while high - low > _BLOCK:
        middle = (low + high) // 2
        if one.startswith(other[low:middle], low):
            low = middle
        else:
            high = middle
    return high - _unlike(one[low:high], other[low:high], "big")


def _common_suffix(one: bytes, other: bytes, most: int) -> int:
    """The length of the common end, up to a limit."""
    low, step = 0, _BLOCK
    while low + step <= most and _end_alike(one, other, low, low + step):
        low += step
        step *= 2
    high = min(most, low + step)
    while high - low > _BLOCK:
        middle = (low + high) // 2
        if _end_alike(one, other, low, middle):
            low = middle
        else:
            high = middle
    at, end = len(one), len(other)
    return high - _unlike(one[at - high : at - low], other[end - high : end - low], "little")


def _end_alike(one: bytes, other: bytes, low: int, high: int) -> bool:
    end = len(other)
    return one.endswith(other[end - high : end - low], 0, len(one) - low)


def _unlike(one: bytes, other: bytes, order: Literal["big", "little"]) -> int:
    """The bytes that remain from the first difference: counted from the front, or the back."""
    unlike = int.from_bytes(one, order) ^ int.from_bytes(other, order)
    return (unlike.bit_length() + 7) // 8
