"""What values cost in time: to put one that grew, to read one of many back, and to seal them.

Puts are taken by the clock of the thread, and the least of many counts: whatever else the machine
does only makes them longer. Each length has a process of its own, whose memory holds nothing of
the others. Plain and sealed stores take turns within one process.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.structs import replace

import outlive
from bench.growth import WORKLOADS, Author
from bench.values import turns
from outlive.app.open import open_app
from outlive.journal.codec.codec import Registry, codec_for
from outlive.journal.codec.restore import Restorer, with_nodes
from outlive.journal.codec.values import Values
from outlive.journal.lane import run_immediate
from outlive.journal.record import ENVELOPE_BYTES, LINK_START, PARTED, pack
from outlive.journal.seal.keys import new_key
from outlive.model.events import StepDone, decode_events, encode_events
from outlive.model.ids import digest
from outlive.stores.sqlite.store import SQLiteStore
from outlive.stores.types import Reading, StoredRecord

Answer = dict[str, float]
#: How often a put is timed; the least of them counts.
PUTS = 40
SMALL_BYTES, SMALL_PUTS = 200, 2_000
#: What of an effect is told when its store is sealed: its body gets a hundred bytes, as elsewhere.
EFFECT_BYTES = 100


def put_costs(length: int, size: int) -> Answer:
    """Microseconds per message of a list that is put again, one message longer each time."""
    codec, values, author = codec_for([list[Any]], Registry()), Values(), Author(1)
    messages = [author.message(size) for _ in range(length)]

    def put(some: list[Any]) -> None:
        raw = codec.write(some)
        digest(raw)
        values.stored(raw)
        values.take_nodes()

    put(messages)
    taken: dict[str, list[float]] = {"new": [], "grown": []}
    for number in range(PUTS):
        messages.append(author.message(size))
        alone = [author.message(size)]
        # By turns first: whoever is second finds the code at hand.
        order = [("new", alone), ("grown", messages)]
        for name, some in order if number % 2 else order[::-1]:
            taken[name].append(_timed(partial(put, some)))
    grown, new = min(taken["grown"]), min(taken["new"])
    whole = min(_timed(lambda: digest(codec.encode(messages))) for _ in range(PUTS))
    return {
        "length": length,
        "size": size,
        "put": grown / length,
        "beyond": max(0.0, grown - new) / length,
        "whole": whole / length,
    }


def small_costs() -> Answer:
    """Microseconds of a value of two hundred bytes: by the codec alone, and as it is put."""
    codec, values = codec_for([dict[str, str]], Registry()), Values()
    value = {"role": "user", "content": "x" * (SMALL_BYTES - 22)}

    def encode() -> None:
        for _ in range(SMALL_PUTS):
            codec.encode(value)

    def put() -> None:
        for _ in range(SMALL_PUTS):
            values.stored(codec.write(value))

    encoded = min(_timed(encode) for _ in range(PUTS)) / SMALL_PUTS
    return {"codec": encoded, "put": min(_timed(put) for _ in range(PUTS)) / SMALL_PUTS}


def _timed(work: Callable[[], object]) -> float:
    """Microseconds of this thread."""
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1e6


class _Counted:
    """A store that nodes are fetched from, and how much that was."""

    def __init__(self, store: SQLiteStore) -> None:
        self._store = store
        self.calls = self.nodes = self.bytes = 0

    async def get_blobs(self, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
        found = await self._store.get_blobs(family, addresses)
        self.calls, self.nodes = self.calls + 1, self.nodes + len(found)
        self.bytes += sum(map(len, found.values()))
        return found


def read_costs(count: int, at: Sequence[int]) -> list[Answer]:
    """What it takes to read the state of one turn back, of a run that saved one at every turn."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "read.db"
        asyncio.run(_saved(path, count))
        store = SQLiteStore(path)
        reading = run_immediate(store.read("read"))
        assert reading is not None, "it was just written"
        saved = [alone for record in reading.records for alone in _states_in(reading, record)]
        told = [_read_one(store, saved[turn - 1], turn) for turn in at if turn <= len(saved)]
        run_immediate(store.close())
    return told


async def _saved(path: Path, count: int) -> None:
    async with outlive.open(f"sqlite:///{path}") as app:
        await (await app.start(turns, 0, count, 1, id="read")).outcome()


def _states_in(reading: Reading, record: StoredRecord) -> Iterator[Reading]:
    """Each state that a record holds as if it were there alone: steps may share a record."""
    for event in decode_events(record.body[ENVELOPE_BYTES:]):
        if isinstance(event, StepDone):
            body = encode_events([event])
            alone, _ = pack(
                "read", prev=LINK_START, epoch=1, seq=1, kinds=0, body=body, flags=PARTED
            )
            yield replace(reading, records=[StoredRecord(1, alone)])


def _read_one(store: SQLiteStore, alone: Reading, turn: int) -> Answer:
    codec = codec_for([Any], Registry())
    taken, state = [], None
    for _ in range(PUTS):
        counted, began = _Counted(store), time.perf_counter()
        reading = run_immediate(with_nodes(counted, alone))  # type: ignore[arg-type]
        (event,) = decode_events(reading.records[0].body[ENVELOPE_BYTES:])
        whole = Restorer("read", reading.nodes).event(event, 1)
        assert isinstance(whole, StepDone), "only such were taken"
        state = codec.decode(whole.value)
        taken.append(time.perf_counter() - began)
    own = sum(len(message["content"]) for message in state or ())
    return {
        "turn": turn,
        "own_bytes": own,
        "read_bytes": counted.bytes + len(alone.records[0].body),
        "fetches": counted.calls,
        "nodes_beyond": counted.nodes - len(state or ()),
        "seconds": min(taken),
    }


@outlive.effect(name="values_act", doubt="retry")
async def act(argument: str) -> str:
    """A trivial effect."""
    return argument


@outlive.flow(name="values_acts")
async def acts(count: int) -> list[float]:
    """How long each of so many takes, from one body to the next."""
    taken = []
    argument = "a" * EFFECT_BYTES
    for _ in range(count):
        began = time.perf_counter()
        await act(argument)
        taken.append(time.perf_counter() - began)
    return taken


def seal_costs(effects: int, rounds: int) -> dict[str, list[Answer]]:
    """What an effect takes, without a key and with one, by turns."""
    told: dict[str, list[Answer]] = {"plain": [], "sealed": []}
    key = new_key(os.urandom)
    for _ in range(rounds):
        for name, given in (("plain", ""), ("sealed", key)):
            told[name].append(asyncio.run(_effects(effects, given)))
    return told


async def _effects(count: int, key: str) -> Answer:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "o.db"
        async with open_app(f"sqlite:///{path}", key=key) as app:
            await (await app.start(acts, 20, id="warm")).outcome()
            before, began = path.stat().st_size, time.process_time()
            taken = await (await app.start(acts, count, id="run")).outcome()
            cpu = (time.process_time() - began) / count
        grown = (path.stat().st_size - before) / count
    return {"p50": median(taken), "cpu": cpu, "bytes": grown}


def curve_lengths(is_full: bool) -> list[tuple[int, int]]:
    """Lists to be put: how many messages, and how large."""
    longest = (50, 100, 200, 500, 1_000, 2_000, 5_000) if is_full else (50, 200, 1_000)
    workload = WORKLOADS[0]
    return [(50, workload.size), (200, workload.size), *((length, 1_000) for length in longest)]
