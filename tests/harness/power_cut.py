"""Power cuts on paper: what a disk may hold if the power fails before the n-th operation.

A program is run once on a disk that writes down every operation (``Trace``). What it had done up
to operation n decides what the disk holds then: all that was flushed, and of the rest whatever
the cut left. So every cut can be looked at without running the program again:

- ``drop``    nothing that was not flushed is there;
- ``prefix``  of each file the first few unflushed operations are there, in order;
- ``torn``    any 512-byte sectors of any unflushed write are there, in no order.

Limits: a file's creation and deletion count as durable at once, and what was flushed stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeAlias

Mode = Literal["drop", "prefix", "torn"]
SECTOR_BYTES = 512

#: What is on a disk: file name -> its bytes.
Image: TypeAlias = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes at a place; with ``cut``, the file ends there instead."""

    name: str
    offset: int
    data: bytes
    cut: bool = False

    def apply(self, content: bytearray) -> None:
        """What the file holds afterwards."""
        if self.cut:
            del content[self.offset :]
            content.extend(bytes(self.offset - len(content)))
            return
        content.extend(bytes(max(0, self.offset - len(content))))
        content[self.offset : self.offset + len(self.data)] = self.data

    def sectors(self) -> Iterator[Write]:
        """The write in pieces that reach the disk whole or not at all."""
        begin = 0
        while begin < len(self.data):
            size = SECTOR_BYTES - (self.offset + begin) % SECTOR_BYTES
            yield Write(self.name, self.offset + begin, self.data[begin : begin + size])
            begin += size


@dataclass(frozen=True, slots=True)
class Flush:
    """Everything written to the file is durable afterwards."""

    name: str


@dataclass(frozen=True, slots=True)
class Make:
    """A file comes into being."""

    name: str


@dataclass(frozen=True, slots=True)
class Remove:
    """A file is gone."""

    name: str


Operation: TypeAlias = Write | Flush | Make | Remove


@dataclass(slots=True)
class Trace:
    """Every operation of a program on its disk, and how far it had got when each began."""

    operations: list[Operation] = field(default_factory=list)
    #: What the program had been told was done, before each operation.
    acknowledged: list[int] = field(default_factory=list)
    done: int = 0

    def add(self, operation: Operation) -> None:
        """The program is about to do this."""
        self.operations.append(operation)
        self.acknowledged.append(self.done)


@dataclass(slots=True)
class Disk:
    """What is durable, and what waits to be flushed."""

    durable: dict[str, bytearray] = field(default_factory=dict)
    waiting: dict[str, list[Write]] = field(default_factory=dict)

    def apply(self, operation: Operation, *, flushes_lie: bool = False) -> None:
        """Go on by one operation."""
        name = operation.name
        match operation:
            case Make():
                self.durable.setdefault(name, bytearray())
            case Remove():
                self.durable.pop(name, None)
                self.waiting.pop(name, None)
            case Write():
                self.waiting.setdefault(name, []).append(operation)
            case Flush():
                if not flushes_lie:
                    for write in self.waiting.pop(name, []):
                        write.apply(self.durable[name])

    def image(self, mode: Mode, chance: Random) -> Image:
        """What the disk may hold if the power fails now."""
        found = {name: bytearray(content) for name, content in self.durable.items()}
        for name, writes in self.waiting.items():
            for write in _survivors(writes, mode, chance):
                write.apply(found[name])
        return {name: bytes(content) for name, content in found.items()}


def _survivors(writes: list[Write], mode: Mode, chance: Random) -> list[Write]:
    if mode == "drop":
        return []
    if mode == "prefix":
        return writes[: chance.randint(0, len(writes))]
    pieces = [piece for write in writes for piece in ([write] if write.cut else write.sectors())]
    return [piece for piece in pieces if chance.random() < 0.5]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One possible end: where, how, and what is found when the power is back."""

    position: int
    mode: Mode
    seed: int
    acknowledged: int
    image: Image


def cuts(trace: Trace, seeds: int, *, flushes_lie: bool = False) -> Iterator[Cut]:
    """Every operation of a trace, and its end, cut in every mode; random modes once per seed."""
    disk = Disk()
    ends: list[tuple[Mode, int]] = [("drop", 0)]
    ends += [(mode, seed) for mode in ("prefix", "torn") for seed in range(seeds)]
    for position, acknowledged in enumerate([*trace.acknowledged, trace.done]):
        for mode, seed in ends:
            yield Cut(
                position=position,
                mode=mode,
                seed=seed,
                acknowledged=acknowledged,
                image=disk.image(mode, Random(f"{position} {mode} {seed}")),
            )
        for operation in trace.operations[position : position + 1]:
            disk.apply(operation, flushes_lie=flushes_lie)
