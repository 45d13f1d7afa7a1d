"""Every value of every event is stored once, also those of kinds that are yet to come."""

from __future__ import annotations

import asyncio
import typing
from typing import Any

import msgspec
import pytest

import outlive
from outlive.app.app import App
from outlive.journal.codec.parts import Parted, part, with_values
from outlive.journal.codec.restore import read_whole
from outlive.model.events import Event, encode_events
from outlive.model.kinds import KINDS
from outlive.stores.memory import MemoryStore
from tests.unit.every_event import EVERY_EVENT

#: Bytes that are no user's value: hashes, seeds, JSON, and what belongs to journals beside runs.
NO_VALUES = {
    "digest", "seed", "link", "before", "schema", "Answered.value", "Forked.value", "KeyKept.value",
    "Fault.args", "Fault.state",
}  # fmt: skip
BIG = part(msgspec.msgpack.encode("x" * 2_000))


def bytes_fields(struct: type) -> set[str]:
    hints = typing.get_type_hints(struct)
    return {
        name
        for name in struct.__struct_fields__  # type: ignore[attr-defined]
        if hints[name] is bytes and not {name, f"{struct.__name__}.{name}"} & NO_VALUES
    }


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_value_is_forgotten(kind: type[Event]) -> None:
    """A large value in any field of any event can be written and comes back to its place."""
    events = [each for each in EVERY_EVENT if type(each) is kind]
    assert events
    for event in events:
        large = _enlarge(event)
        small = with_values(large, lambda raw: b"small" if type(raw) is Parted else raw)

        assert encode_events([small]), "no field has kept a value in parts"


def _enlarge(event: Any) -> Any:
    changed: dict[str, Any] = {}
    if isinstance(event, list):
        return [_enlarge(each) for each in event]
    if not isinstance(event, msgspec.Struct) or getattr(event, "is_json", False):
        return event
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if name in bytes_fields(type(event)):
            changed[name] = BIG
        elif isinstance(value, msgspec.Struct | list):
            changed[name] = _enlarge(value)
    return msgspec.structs.replace(event, **changed)


@outlive.step
async def grow(texts: list[str]) -> list[str]:
    return [*texts, f"{len(texts):03}" * 400]


@outlive.flow
async def growing(texts: list[str]) -> int:
    for _ in range(8):
        texts = await grow(texts)
    await outlive.sleep(0)
    return len(texts)


def test_a_fork_shares_the_values_of_its_prefix() -> None:
    """Arguments, outcomes and all: nothing of the shared part is stored again."""
    store = MemoryStore()

    async def scene() -> tuple[int, int, int]:
        async with App(store) as app:
            first = await (await app.start(growing, ["y" * 900] * 3, id="r")).outcome()
            before = sum(len(body) for body in store._nodes["r"].values())
            fork = await app.fork("r", at=6, id="f")
            second = await (await app.resume(fork.id, [growing])).outcome()
            after = sum(len(body) for body in store._nodes["r"].values())
            return first, second, after - before

    first, second, added = asyncio.run(scene())
    assert first == second == 11
    assert added < 2_500
    reading = asyncio.run(read_whole(store, "f"))
    assert reading is not None
    assert "r" == reading.header.family
