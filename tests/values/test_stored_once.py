"""Values stored once: what a run's store holds is what was new, and it reads back as it was."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import outlive
from outlive.app.app import App
from outlive.errors import CorruptRecord
from outlive.journal.codec import values as nodes_module
from outlive.journal.codec.restore import read_whole
from outlive.journal.codec.values import CHAPTERS_MAX
from outlive.journal.keeper import Keeper
from outlive.journal.lane import run_immediate
from outlive.journal.log import RunLog
from outlive.journal.reader import read_events
from outlive.journal.record import is_parted
from outlive.journal.retention.archive import copy_run, read_archive, write_archive
from outlive.journal.retention.deletion import archived_of
from outlive.model.events import ChapterBegan, Claimed, RunStarted, StepDone
from outlive.model.run import fold
from outlive.stores.memory import MemoryStore
from outlive.stores.types import LAST_CHAPTER, Entry, Node, StoredRecord
from tests.values.specimens import codec

SEED = 20_270_103
ALL = codec()
START = RunStarted("flow", "1", b"\x80", b"", b"", "3.11", 0, "family")

Figure = Callable[[str, object], None]


class Side:
    """Calls at once."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> object:
        return callback(*args)

    def call_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        callback(*args)


class CountingStore(MemoryStore):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.fetches = 0
        self.brought: list[Node] = []

    async def commit(self, batch: Sequence[Entry], *, wait: bool = True) -> Any:
        self.brought += [node for entry in batch for node in entry.nodes]
        return await super().commit(batch, wait=wait)

    async def get_blobs(self, family: str, addresses: Sequence[bytes]) -> Mapping[bytes, bytes]:
        self.fetches += 1
        return await super().get_blobs(family, addresses)


class Writer:
    """A driver that does nothing but write."""

    def __init__(self, store: MemoryStore, run_id: str = "r", family: str = "family") -> None:
        self.store = store
        self._keeper = Keeper(store, lambda: None)
        self.log = RunLog(self._keeper, Side(), run_id, worker="w")
        reading = run_immediate(read_whole(store, run_id))
        if reading is None:
            self.log.append(msgspec.structs.replace(START, family=family))
            self.log.append(Claimed(0, 1, "w", True))
        else:
            events = read_events(reading)
            run = fold(events)
            self.log.resume(run, reading.head, reading.header, reading.nodes)
        self.flush()

    def step(self, args: Any, value: Any) -> None:
        given, returned = ALL.write(args), ALL.write(value)
        self.log.append(StepDone(0, f"0/s#{self.log.seq}", 1, given, b"", returned))
        self.flush()

    def carry(self, args: Any) -> None:
        """Begin the next chapter with these arguments."""
        run, given = self.log.run, ALL.write(args)
        assert run.start is not None
        number = 1 if run.chapter is None else run.chapter.number + 1
        self.log.append(ChapterBegan(0, self.log.seq + 1, run.epoch, number, run.start, given))
        self.flush()
        self.log.close()
        self.log, _ = self.log.turn_page()

    def flush(self) -> None:
        run_immediate(self._keeper.flush_once())
        assert self._keeper.failure is None
        assert self.log.failure is None


def values_in(store: MemoryStore, run_id: str = "r") -> list[tuple[Any, Any]]:
    """What each step was given and returned, read by somebody who knows nothing."""
    reading = run_immediate(read_whole(store, run_id))
    assert reading is not None
    fresh = codec()
    return [
        (fresh.decode(event.args), fresh.decode(event.value))
        for event in read_events(reading)
        if isinstance(event, StepDone)
    ]


def edits(rng: random.Random, state: list[Any], count: int) -> Iterator[list[Any]]:
    """A state that changes in every way in which users' states do."""

    def message() -> dict[str, Any]:
        text = rng.choice(("a", "b", "αβ", "\x00")) * rng.choice((5, 300, 600, 1500))
        return {"role": rng.choice(("user", "tool")), "content": f"{rng.random()}{text}"}

    for _ in range(count):
        place = rng.randrange(len(state) + 1)
        match rng.randrange(8):
            case 0 | 1 | 2:
                state.append(message())
            case 3:
                state.insert(place, message())
            case 4:
                state = state[rng.randrange(3) :]
            case 5 if place < len(state):
                state[place]["content"] = message()["content"]
            case 6:
                state = state[-20:]
            case _:
                state = [*state[place:], *state[:place]]
        yield state


@pytest.mark.parametrize("part", range(2))
def test_whatever_a_state_becomes_reads_back(part: int, full: bool, figure: Figure) -> None:
    """Grown, edited, cut, turned around, under two drivers, beside another state: exactly."""
    seeds, steps = (60 if full else 3), 120
    for seed in range(SEED + part * seeds, SEED + (part + 1) * seeds):
        rng, store = random.Random(seed), MemoryStore()
        writer, expected = Writer(store), []
        other = [{"role": "log", "content": f"{n}" * 40} for n in range(60)]
        for number, state in enumerate(edits(rng, [], steps)):
            if number % 50 == 49:
                writer = Writer(store)  # another driver takes over
            given = {"messages": state} if rng.random() < 0.5 else (state, number)
            value = state if rng.random() < 0.8 else other
            writer.step(given, value)
            expected.append(msgspec.msgpack.decode(msgspec.msgpack.encode((given, value))))
        found = values_in(store)
        assert expected == msgspec.msgpack.decode(msgspec.msgpack.encode(found)), seed
    figure(f"values: steps with changing states read back (part {part + 1})", seeds * steps)


def test_a_step_brings_only_what_is_new() -> None:
    """A message that was stored is not stored again, whoever passes it on."""
    store = CountingStore()
    writer = Writer(store)
    messages: list[Any] = []
    for number in range(100):
        reply = f"{number:03}" * 400
        writer.step({"messages": messages}, reply)
        messages = [*messages, {"role": "assistant", "content": reply}]

    leaves = [node for node in store.brought if len(node.body) > 20 and _is_leaf(node)]
    assert 100 == len(leaves) == len({node.address for node in store.brought if _is_leaf(node)})
    spine = sum(len(node.body) for node in store.brought if not _is_leaf(node))
    assert spine < 100 * 200


def _is_leaf(node: Node) -> bool:
    return isinstance(msgspec.msgpack.decode(nodes_module.opened(node.body)), (str, bytes))


def test_another_driver_knows_what_is_stored() -> None:
    """After a takeover nothing that the journal names is brought again."""
    store = CountingStore()
    messages = [{"role": "user", "content": f"{number:03}" * 400} for number in range(50)]
    Writer(store).step({"messages": messages}, None)
    store.brought.clear()

    Writer(store).step({"messages": [*messages, {"role": "user", "content": "y" * 900}]}, None)

    assert 1 == sum(map(_is_leaf, store.brought))


def test_a_long_journal_needs_few_fetches(figure: Figure) -> None:
    """However many values it has: not one call for each."""
    store = CountingStore()
    writer = Writer(store)
    messages: list[Any] = []
    for number in range(300):
        messages = [*messages, {"role": "user", "content": f"{number:03}" * 300}]
        writer.step({"messages": messages}, messages)
    store.fetches = 0

    found = values_in(store)

    assert 300 == len(found)
    assert messages == found[-1][1]
    assert store.fetches <= 12
    figure("values: fetches for a journal of 600 large values", store.fetches)


def test_a_journal_of_small_values_needs_none() -> None:
    """Nothing is fetched where nothing stands by itself."""
    store = CountingStore()
    writer = Writer(store)
    for number in range(50):
        writer.step({"number": number}, "small" * 20)

    assert 50 == len(values_in(store))
    assert 0 == store.fetches


def test_what_is_no_record_at_all_is_left_to_who_verifies() -> None:
    """A store whose rows were overwritten gives other things than bytes."""
    bodies: list[Any] = [None, 7, "text", b"", b"Ol"]

    assert not any(is_parted(StoredRecord(1, body)) for body in bodies)


@pytest.mark.parametrize("kind", ["leaf", "delta"])
@pytest.mark.parametrize("how", ["missing", "damaged", "swapped", "cut"])
def test_a_node_that_is_gone_or_damaged_is_reported(kind: str, how: str) -> None:
    """With the run and the seq of the first event that needs it; never a wrong value."""
    store = MemoryStore()
    writer = Writer(store)
    messages = [{"role": "user", "content": f"{number:03}" * 300} for number in range(60)]
    writer.step("small", "small")
    writer.step({"messages": messages}, None)
    kept = store._nodes["family"]
    address = next(a for a, b in kept.items() if _is_leaf(Node(a, b)) == (kind == "leaf"))
    other = next(body for each, body in kept.items() if each != address)
    match how:
        case "missing":
            del kept[address]
        case "damaged":
            body = kept[address]
            kept[address] = body[:-1] + bytes((body[-1] ^ 1,))
        case "swapped":
            kept[address] = other
        case "cut":
            kept[address] = kept[address][:10]

    with pytest.raises(CorruptRecord) as caught:
        values_in(store)

    assert ("r", 4) == (caught.value.run_id, caught.value.seq)
    assert address.hex() in str(caught.value)


def test_an_archive_keeps_the_nodes(tmp_path: Path) -> None:
    """A run that is archived, or copied into another store, has its values there."""
    store, other = MemoryStore(), MemoryStore()
    writer = Writer(store)
    messages = [{"role": "user", "content": f"{number:03}" * 300} for number in range(60)]
    for length in range(50, 60):
        writer.step({"messages": messages[:length]}, "y" * 700)
    reading = run_immediate(read_whole(store, "r"))
    assert reading is not None
    header = msgspec.structs.replace(reading.header, ended_at=1, status="completed")
    archived = archived_of(msgspec.structs.replace(reading, header=header))
    write_archive(tmp_path / "a.outlive", [archived])

    (found,) = read_archive(tmp_path / "a.outlive")
    run_immediate(copy_run(other, found))

    assert read_events(reading) == read_events(found.reading())
    assert values_in(store) == values_in(other)


def test_children_share_with_their_parent(tmp_path: Path) -> None:
    """What a parent passes to its child is stored once in the family."""
    store = CountingStore()

    async def scene() -> str:
        async with App(store) as app:
            return await (await app.start(parent, 20, id="parent")).outcome()

    assert "x" * 5_000 == asyncio.run(scene())
    stored = sum(len(body) for body in store._nodes["parent"].values())
    records = sum(len(r.body) for j in store._journals.values() for r in j.records)
    assert 3 <= len(store._journals)
    assert stored + records < 20 * 1_500


@outlive.step
async def fetch(number: int) -> str:
    return f"{number:02}" * 600


@outlive.flow
async def child(texts: list[str]) -> list[str]:
    return texts


@outlive.flow
async def parent(count: int) -> str:
    texts = [await fetch(number) for number in range(count)]
    same = await outlive.call(child, texts)
    again = await outlive.call(child.options(id="second"), [*same])
    assert texts == again
    return "x" * 5_000


def last_chapter(store: MemoryStore) -> Any:
    """What the last chapter began with, read by somebody who knows nothing."""
    reading = run_immediate(read_whole(store, "r", LAST_CHAPTER))
    assert reading is not None
    (chapter,) = read_events(reading)
    assert isinstance(chapter, ChapterBegan)
    return codec().decode(chapter.args)


def test_chapters_that_are_much_alike_are_stored_once() -> None:
    """A state of five kilobytes, one line of which changes per chapter."""
    store = CountingStore()
    writer = Writer(store)
    dice = random.Random(SEED)
    lines = [dice.randbytes(20).hex() for _ in range(120)]
    fetches = set()
    for number in range(4 * CHAPTERS_MAX):
        lines[number % 120] = dice.randbytes(20).hex()
        writer.carry(lines)
        store.fetches = 0
        assert lines == last_chapter(store)
        fetches.add(store.fetches)

    whole = len(ALL.write(lines))
    assert sum(len(node.body) for node in store.brought) < 4 * 3 * whole
    assert max(fetches) < CHAPTERS_MAX.bit_length()


def test_a_chapter_knows_of_no_more_than_it_was_given() -> None:
    """What is stored and named again is not sent again; what the past had is forgotten."""
    store = CountingStore()
    writer = Writer(store)
    kept = "k" * 700
    for number in range(50):
        writer.step([f"{number:03}" * 300], None)
        writer.carry([kept])
    writer.step([kept], None)

    assert 51 == len(store.brought)
    assert writer.log._values is not None
    assert 1 == len(writer.log._values.known)


def test_what_is_carried_arrives_whole() -> None:
    """Arguments that are carried, signals that are kept, and what a resumed run is given back."""
    store = CountingStore()

    async def scene() -> int:
        async with App(store) as app:
            return await (await app.start(chapters, ["y" * 700] * 2, 0, id="c")).outcome()

    assert 42 == asyncio.run(scene())


@outlive.flow
async def chapters(texts: list[str], number: int) -> int:
    for each in range(5):
        texts = [*texts, await fetch(number * 5 + each)]
    if number < 8:
        await outlive.carry(texts, number + 1)
    return len(texts) - 5
