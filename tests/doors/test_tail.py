"""Reading a journal on: verified where the last look ended."""

from __future__ import annotations

import msgspec
import pytest

import outlive
from outlive.errors import CorruptRecord
from outlive.journal.reader import Tail
from outlive.stores.types import StoredRecord
from tests.harness.theatre import Theatre


@outlive.flow
async def collect(count: int) -> int:
    for _ in range(count):
        await outlive.wait_signal("go")
    return count


async def test_what_was_added_is_verified(stage: Theatre) -> None:
    """A record that is missing, damaged or foreign to the last look is named by its seq."""
    handle = await stage.open().start(collect, 1, id="r")
    await stage.status("r", "waiting")
    before = await stage.store.read("r")
    await handle.signal("go", 1)
    await stage.outcome(handle)
    after = await stage.store.read("r", before.head.seq)
    at = before.head.seq + 1
    first = after.records[0]
    spoilt = StoredRecord(first.seq, first.body[:-1] + bytes((first.body[-1] ^ 1,)))

    tail = Tail()
    events = tail.take(before) + tail.take(after)
    assert await stage.events("r") == events
    assert len(events) == tail.seq
    assert [] == tail.take(await stage.store.read("r", tail.seq))
    for records in ([], after.records[1:], [spoilt, *after.records[1:]]):
        broken = msgspec.structs.replace(after, records=records)
        with pytest.raises(CorruptRecord, match=f"run r, seq {at}: "):
            Tail(before.head).take(broken)
